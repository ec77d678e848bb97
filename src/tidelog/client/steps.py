"""The steps that operations request from their driver, and the driver's responses.

An operation is a generator: it yields a `Call` (a request to an address) or a `Pause`, and returns
its result. The driver sends the generator a `Response` for a call, and `NO_ANSWER` after a pause.
The driver throws failures into the generator: NotSent, ConnectionLost, RequestTimeout,
ProtocolError, or KafkaError if no API version is in common. Operations use no sockets and no clock,
so any loop can drive them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final, NamedTuple, TypeVar

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ConnectionLost

T = TypeVar("T")


class Address(NamedTuple):
    """The address at which a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        if ":" in self.host:
            return f"[{self.host}]:{self.port}"
        return f"{self.host}:{self.port}"


class NotSent(ConnectionLost):
    """The error for a connection that could not be opened: the request was not sent and had no
    effect.
    """


@dataclass(frozen=True, slots=True)
class Call:
    """One request; `build(version)` makes the message for the negotiated version.

    `max_version` caps the negotiation. `answered` is False for Produce with acks=0: the operation
    gets NO_ANSWER as soon as the request is sent.
    """

    address: Address
    api_key: int
    build: Callable[[int], Any]
    timeout_ms: int
    max_version: int = 0x7FFF
    answered: bool = True


@dataclass(frozen=True, slots=True)
class Pause:
    """A step that an operation yields to wait for `delay_ms`."""

    delay_ms: int


class Response(NamedTuple):
    """The response message and its version."""

    version: int
    message: Any


NO_ANSWER: Final = Response(-1, None)

Operation = Generator[Call | Pause, Response, T]


def always(message: Any) -> Callable[[int], Any]:
    """Return a `Call.build` that returns the same message at every version."""
    return lambda version: message
