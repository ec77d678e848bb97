"""The requests by which this broker asks the controller to send all commands again.

The broker asks when an operator has restored a replica that was set aside, because the replica
needs a role (V35). The broker also asks when a log directory has failed, because the controller
must learn which replicas the directory held (D16). The broker's LeaderAndIsr response reports the
restored and the lost replicas. The broker repeats a request until the controller accepts it or the
registration ends, because a new registration gets all commands anyway. A Kafka controller does not
know RequestCommands and closes the connection; the broker then stops asking.
"""

from __future__ import annotations

import logging
from typing import Final

from tidelog.broker.services import Services
from tidelog.core.errors import ErrorCode, TidelogError
from tidelog.core.types import NO_BROKER_EPOCH
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.request_commands import (
    RequestCommandsRequest,
    RequestCommandsResponse,
)
from tidelog.wire.registry import API_VERSIONS, REQUEST_COMMANDS

_VERSION: Final = 0
_API_VERSIONS_VERSION: Final = 3
_PURPOSE: Final = "commands"
_TIMEOUT_MS: Final = 2_000
_RETRY_MS: Final = 50
#: After this number of refusals, which takes at least a second, the broker checks whether the
#: controller knows RequestCommands.
_REFUSALS: Final = 20


class CommandRequests:
    """The command requests of one broker; requests made while another is in flight are merged."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._is_asking = self._is_wanted = False

    def ask(self, why: str) -> None:
        """Request all commands of this broker; the log shows the reason `why`."""
        self._is_wanted = True
        if not self._is_asking:
            self._is_asking = True
            self._services.tasks.spawn("ask for commands", self._ask(why))

    async def _ask(self, why: str) -> None:
        services = self._services
        epoch = services.broker_epoch
        refusals = 0
        try:
            while self._is_wanted and services.broker_epoch == epoch != NO_BROKER_EPOCH:
                self._is_wanted = False
                if await self._is_heard(epoch, why):
                    continue
                refusals += 1
                if refusals % _REFUSALS == 0 and not await self._may_be_known():
                    return
                self._is_wanted = True
                await services.tasks.sleep(_RETRY_MS)
        finally:
            self._is_asking = False

    async def _is_heard(self, epoch: int, why: str) -> bool:
        services = self._services
        request = RequestCommandsRequest(services.broker_id, epoch)
        try:
            connection = services.peers.connection(services.view.controller_id, _PURPOSE)
            answer: RequestCommandsResponse = await connection.call(
                REQUEST_COMMANDS, _VERSION, request, _TIMEOUT_MS
            )
        except TidelogError as error:
            reason = str(error)
        else:
            if not answer.error_code:
                return True
            reason = ErrorCode(answer.error_code).name
        services.tracer.log(
            "controller",
            logging.INFO,
            f"cannot ask the controller for all commands, as {why}: {reason}",
        )
        return False

    async def _may_be_known(self) -> bool:
        """Return whether the controller serves RequestCommands; True if it does not respond."""
        services = self._services
        controller_id = services.view.controller_id
        try:
            response: ApiVersionsResponse = await services.peers.connection(
                controller_id, _PURPOSE
            ).call(
                API_VERSIONS,
                _API_VERSIONS_VERSION,
                ApiVersionsRequest("tidelog", ""),
                services.config.request_timeout_ms,
            )
        except TidelogError:
            return True
        if any(each.api_key == REQUEST_COMMANDS for each in response.api_keys):
            return True
        services.tracer.log(
            "controller",
            logging.WARNING,
            f"controller {controller_id} does not serve RequestCommands (key 20003):"
            " roles that it has not sent come with its next full command",
        )
        return False
