"""Answers to requests: the result of each part of a request once the decision is durable.

A result that depends on a write names that write, and the controller makes the answer when the
write has its outcome. No broker or client thus learns of a state that is not durable (V2, A1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from enum import IntEnum
from typing import Any, Generic, TypeVar

from tidelog.controller.events import Event
from tidelog.controller.writes import Conflict, Outcome
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ErrorCode, KafkaError

Subject = TypeVar("Subject")


class Precedence(IntEnum):
    """The order of answers within one decision, by the kind of the answered request."""

    ALTER_PARTITION = 0
    CREATE_TOPICS = 1
    CREATE_PARTITIONS = 2
    REMOVE_PARTITIONS = 3
    ELECT_LEADERS = 4
    REASSIGNMENTS = 5
    REASSIGNMENTS_LISTED = 6
    PRODUCER_IDS = 7
    #: ControlledShutdown is answered last. DeleteTopics is not in this enum, because its answer may
    #: wait for later decisions.
    CONTROLLED_SHUTDOWN = 8


@dataclass(slots=True)
class Result(Generic[Subject]):
    """The result of a request for one partition, topic or broker that the request names."""

    subject: Subject
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    #: Index, in the decision, of the write that must succeed before this result is a success; None
    #: if the result depends on no write.
    write: int | None = None

    def refuse(self, error: KafkaError) -> None:
        """Make this result a failure with the code and the message of `error`."""
        self.error, self.message = error.code, error.message


#: Function that returns error and message of a result whose write conflicted.
OnConflict = Callable[[Result[Subject], Conflict], tuple[ErrorCode, str | None]]


def changed_meanwhile(result: Result[Any], conflict: Conflict) -> tuple[ErrorCode, str | None]:
    """Return the error of a request after another writer has changed its partition or topic."""
    return ErrorCode.INVALID_UPDATE_VERSION, conflict.reason


@dataclass(slots=True)
class Answer(Generic[Subject]):
    """The answer to the request that the number `ticket` identifies."""

    ticket: int
    precedence: Precedence
    #: Function that makes the response from the results.
    respond: Callable[[Sequence[Result[Subject]]], Any]
    on_conflict: OnConflict[Subject] = changed_meanwhile
    results: list[Result[Subject]] = field(default_factory=list)
    #: The request, if the controller handles it once more after a conflict; None if the response
    #: reports the conflict.
    again: Event | None = None

    def is_due_again(self, outcomes: Sequence[Outcome]) -> bool:
        """Return whether the controller must handle the request again after a conflict."""
        return self.again is not None and any(
            isinstance(_outcome(result, outcomes), Conflict) for result in self.results
        )

    def message(self, outcomes: Sequence[Outcome]) -> Any:
        """Return the response, given the outcomes of the writes."""
        return self.respond([self._settled(result, outcomes) for result in self.results])

    def _settled(self, result: Result[Subject], outcomes: Sequence[Outcome]) -> Result[Subject]:
        outcome = _outcome(result, outcomes)
        if not isinstance(outcome, Conflict):
            return result
        error, message = self.on_conflict(result, outcome)
        return replace(result, error=error, message=message)


def _outcome(result: Result[Any], outcomes: Sequence[Outcome]) -> Outcome | None:
    if result.write is None:
        return None
    assert result.write < len(outcomes), f"{result} waits for a write of another decision"
    return outcomes[result.write]
