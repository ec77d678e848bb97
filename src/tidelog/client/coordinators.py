"""Group coordinators: any broker can look them up, and the client remembers them.

After a rejection or a broken connection, the next try looks up the coordinator again. From version
4 on FindCoordinator has the form of KIP-699.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tidelog.client.cluster import BrokerNode
from tidelog.client.retries import Patience
from tidelog.client.routing import ClusterRouter, expect
from tidelog.client.steps import Call, Operation, Response
from tidelog.client.versions import error_code
from tidelog.core.errors import ConnectionLost, ErrorCode, KafkaError, RequestTimeout
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidelog.wire.registry import FIND_COORDINATOR

#: From this version on, one FindCoordinator request names many keys.
_KEYS_VERSION: Final = 4
#: Errors with which a broker says that it is not the group's coordinator.
_MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_FIND_MS: Final = 5_000


class Coordinators:
    """The coordinators of the groups looked up so far."""

    def __init__(self, router: ClusterRouter) -> None:
        self._router = router
        self._nodes: dict[str, BrokerNode] = {}

    def find(self, group: str, patience: Patience) -> Operation[BrokerNode]:
        """Return a group's coordinator; raise KafkaError, mostly COORDINATOR_NOT_AVAILABLE."""
        node = self._nodes.get(group)
        if node is None:
            node = self._nodes[group] = yield from self._look_up(group, patience)
        return node

    def ask(
        self,
        group: str,
        api_key: int,
        build: Callable[[int], Any],
        patience: Patience,
        timeout_ms: int | None = None,
    ) -> Operation[Response]:
        """Send one request to a group's coordinator, by default with the timeout of `patience`."""
        node = yield from self.find(group, patience)
        wait_ms = max(1, patience.remaining_ms if timeout_ms is None else timeout_ms)
        try:
            return (yield Call(node.address, api_key, build, wait_ms))
        except (ConnectionLost, RequestTimeout):
            self._nodes.pop(group, None)
            raise

    def check(self, group: str, number: int, what: str = "") -> None:
        """Raise KafkaError if the code `number` is an error; forget a coordinator that has moved.

        `what` is the error's message, by default the group and its coordinator.
        """
        code = error_code(number)
        if code is ErrorCode.NONE:
            return
        node = self._nodes.get(group)
        if code in _MOVED:
            self._nodes.pop(group, None)
        where = f" at its coordinator {node.address}" if node is not None else ""
        raise KafkaError(code, what or f"group {group!r}{where}")

    def _look_up(self, group: str, patience: Patience) -> Operation[BrokerNode]:
        def build(version: int) -> FindCoordinatorRequest:
            if version >= _KEYS_VERSION:
                return FindCoordinatorRequest(coordinator_keys=[group])
            return FindCoordinatorRequest(key=group)

        node = yield from self._router.any_broker(patience)
        timeout_ms = max(1, min(_FIND_MS, patience.remaining_ms))
        answer = yield Call(node.address, FIND_COORDINATOR, build, timeout_ms)
        response = expect(answer, FindCoordinatorResponse)
        found: Any = response
        if answer.version >= _KEYS_VERSION:
            found = next((each for each in response.coordinators if each.key == group), None)
            if found is None:
                raise KafkaError(
                    ErrorCode.UNKNOWN_SERVER_ERROR, f"{node.address} did not answer for {group!r}"
                )
        if found.error_code:
            message = found.error_message or f"no coordinator of group {group!r} at {node.address}"
            raise KafkaError(error_code(found.error_code), message)
        return BrokerNode(found.node_id, found.host, found.port)
