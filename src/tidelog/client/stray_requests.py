"""Replicas that brokers have set aside: list, delete and restore them, broker by broker (V35).

A stray is a replica that the controller no longer assigns to its broker. The broker sets the stray
aside, and deletes it only after log.stray.delete.delay.ms. Only tidelog has the APIs for strays;
other brokers respond with UNSUPPORTED_VERSION. The client sends deletions and restores only once.
If no response comes, a new list of the strays shows the outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from tidelog.client.retries import Patience
from tidelog.client.routing import ClusterRouter, ask, expect
from tidelog.client.steps import Call, NotSent, Operation, always
from tidelog.client.versions import error_code
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ConnectionLost, ErrorCode, KafkaError, RequestTimeout
from tidelog.core.types import TopicId, TopicPartition
from tidelog.wire.messages import alter_strays
from tidelog.wire.messages.alter_strays import (
    AlteredStray,
    AlterStraysRequest,
    AlterStraysResponse,
    NamedStray,
)
from tidelog.wire.messages.list_strays import (
    ListedStrayDirectory,
    ListStraysRequest,
    ListStraysResponse,
)
from tidelog.wire.registry import ALTER_STRAYS, LIST_STRAYS


class StrayAction(IntEnum):
    """The action to take on a stray."""

    DELETE = alter_strays.DELETE
    RESTORE = alter_strays.RESTORE


@dataclass(frozen=True, slots=True)
class StrayReplica:
    """A replica that a broker has set aside; `tp` is None if its directory's name is unreadable."""

    broker_id: int
    log_dir: str
    name: str
    tp: TopicPartition | None
    topic_id: TopicId
    since_ms: int
    size_bytes: int
    #: Time of the deletion; None while the stray waits for an operator's decision.
    delete_at_ms: int | None
    is_restorable: bool


@dataclass(frozen=True, slots=True)
class StrayAltered:
    """The result for one stray replica; offsets are -1 unless the replica was restored."""

    stray: StrayReplica
    error: ErrorCode
    message: str
    log_start_offset: int
    log_end_offset: int


class StrayAdmin:
    """Operations that list strays, restore them, or delete them."""

    def __init__(self, router: ClusterRouter) -> None:
        self._router = router

    def list_strays(self, broker_id: int) -> Operation[list[StrayReplica]]:
        """Return the strays of a broker, sorted by partition. Raises KafkaError."""

        def attempt(patience: Patience) -> Operation[list[StrayReplica]]:
            node = yield from self._router.broker(broker_id, patience)
            response = yield from ask(
                node, LIST_STRAYS, ListStraysRequest(), patience, ListStraysResponse
            )
            found: list[StrayReplica] = []
            for directory in response.directories:
                if directory.error_code:
                    code = error_code(directory.error_code)
                    raise KafkaError(code, f"{directory.log_dir} of broker {broker_id}")
                found += _read(broker_id, directory)
            return sorted(found, key=lambda stray: (str(stray.tp or ""), stray.name))

        return self._router.repeat(f"listing the strays of broker {broker_id}", attempt)

    def alter(
        self, action: StrayAction, strays: Sequence[StrayReplica]
    ) -> Operation[list[StrayAltered]]:
        """Delete or restore strays of one broker; the result has the error of each.

        Raises KafkaError, and ConnectionLost or RequestTimeout if the outcome is unknown.
        """
        broker_id = strays[0].broker_id
        assert all(each.broker_id == broker_id for each in strays), "one broker has them all"
        wanted = [NamedStray(stray.log_dir, stray.name) for stray in strays]
        message = AlterStraysRequest(action, wanted)

        def attempt(patience: Patience) -> Operation[list[StrayAltered]]:
            node = yield from self._router.broker(broker_id, patience)
            timeout_ms = max(1, patience.remaining_ms)
            try:
                answer = yield Call(node.address, ALTER_STRAYS, always(message), timeout_ms)
            except NotSent:
                raise
            except (ConnectionLost, RequestTimeout):
                patience.is_over = True
                raise
            response = expect(answer, AlterStraysResponse)
            if response.error_code:
                raise KafkaError(error_code(response.error_code), f"at {node.address}")
            results = {(result.log_dir, result.name): result for result in response.results}
            return [_outcome(stray, results.get((stray.log_dir, stray.name))) for stray in strays]

        return self._router.repeat(f"altering strays of broker {broker_id}", attempt)


def _read(broker_id: int, directory: ListedStrayDirectory) -> list[StrayReplica]:
    return [
        StrayReplica(
            broker_id,
            directory.log_dir,
            stray.name,
            TopicPartition(stray.topic, stray.partition) if stray.partition >= 0 else None,
            bytes(stray.topic_id),
            stray.since_ms,
            stray.size_bytes,
            stray.delete_at_ms if stray.delete_at_ms >= 0 else None,
            stray.is_restorable,
        )
        for stray in directory.strays
    ]


def _outcome(stray: StrayReplica, result: AlteredStray | None) -> StrayAltered:
    if result is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker's answer does not mention {stray.name}"
        )
    code = error_code(result.error_code)
    return StrayAltered(
        stray, code, result.error_message or "", result.log_start_offset, result.log_end_offset
    )
