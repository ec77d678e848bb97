"""Requests and their responses, as connections and API handlers exchange them.

A handler is not a coroutine: it returns the response, a `Pending` that is completed later, or None
for no response (DESIGN.md, rule 5). The connection sends responses in the order of its requests,
even if they are completed in another order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from tidelog.core.authorization import Principal, Right
from tidelog.core.dataclass import dataclass
from tidelog.wire.codec import RequestHeader

#: The class of a request's message.
M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class Card:
    """The description of an API: its versions for ApiVersions, and rights that requests need."""

    api_key: int
    min_version: int
    max_version: int
    #: Whether only brokers use the API. A request of such an API marks its connection as a
    #: broker's.
    inter_broker: bool = False
    note: str = ""
    #: Why the broker refuses every request of this API (`apis.refused`); empty for an implemented
    #: API.
    refused: str = ""
    #: Rights that some requests of the API need; none if every client may send them.
    rights: tuple[Right, ...] = ()
    #: If set, ApiVersions advertises this first version instead of `min_version`, because some
    #: clients need to see a lower version, which the broker does not serve.
    advertised_min_version: int | None = None

    @property
    def first_advertised_version(self) -> int:
        """The first version of the range that ApiVersions advertises."""
        advertised = self.advertised_min_version
        return self.min_version if advertised is None else advertised


class RequestConnection(Protocol):
    """The interface of a request's connection that handlers use."""

    @property
    def peer(self) -> str:
        """`host:port` of the peer."""

    @property
    def listener(self) -> str:
        """Name of the connection's listener; responses name endpoints of this listener."""

    @property
    def serves_own(self) -> bool:
        """Whether the connection may use tidelog's own APIs."""

    @property
    def unread_bytes(self) -> int:
        """Bytes of responses that the peer has not received."""

    @property
    def principal(self) -> Principal:
        """The principal of the peer."""

    @property
    def is_broker(self) -> bool:
        """Whether the peer has sent a request that only brokers send."""

    def prove_broker(self, broker_id: int = -1) -> None:
        """Note that the peer sent a request that only brokers send.

        `broker_id` is the broker that the request names; -1 for none.
        """

    def close(self, reason: str) -> None:
        """Close the connection, and cancel its waiting requests."""

    def keep_frames(self) -> None:
        """Keep the bytes of the current request valid after its handler returns."""


class Request(Generic[M]):
    """One decoded request; `M` is the class of its message."""

    __slots__ = ("connection", "header", "message", "received_ms")

    def __init__(
        self,
        header: RequestHeader,
        message: M,
        connection: RequestConnection,
        received_ms: int,
    ) -> None:
        self.header = header
        self.message = message
        self.connection = connection
        #: Monotonic time at which the request arrived, in milliseconds.
        self.received_ms = received_ms

    @property
    def principal(self) -> Principal:
        """The principal of the sender, which never changes on one connection (KIP-368)."""
        return self.connection.principal


class Pending:
    """A response that is completed later, and at most once."""

    __slots__ = ("_cancel", "_deliver", "_done", "_early")

    def __init__(self) -> None:
        self._done = False
        self._early: Any = None
        self._deliver: Callable[[Any], None] | None = None
        self._cancel: list[Callable[[], None]] = []

    @property
    def done(self) -> bool:
        """Whether the response is completed or cancelled."""
        return self._done

    def complete(self, message: Any) -> None:
        """Complete the response; None means that no response is sent.

        A second completion has no effect, because a result may arrive just after a timeout.
        """
        if self._done:
            return
        self._done = True
        self._cancel.clear()
        if self._deliver is None:
            self._early = message
        else:
            self._deliver(message)

    def on_cancel(self, callback: Callable[[], None]) -> None:
        """Call `callback` if the connection is lost before the response is completed."""
        if not self._done:
            self._cancel.append(callback)

    def cancel(self) -> None:
        """Cancel the wait: the connection is closed, and no client waits for the response."""
        if self._done:
            return
        self._done = True
        callbacks, self._cancel = self._cancel, []
        for callback in callbacks:
            callback()

    def deliver_to(self, deliver: Callable[[Any], None]) -> None:
        """Set the function that receives the response; call it at once if the response is there."""
        if self._done:
            deliver(self._early)
        else:
            self._deliver = deliver
