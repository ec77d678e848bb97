"""The thread that keeps one session with ZooKeeper by connecting and reconnecting.

The client library kazoo chooses an address, connects with TLS, authenticates, and starts the
session or renews it under the same id. After the handshake, `zookeeper_conversation` takes over the
connection from kazoo. The library kazoo delivers events and responses on different threads, loses
watches with each connection, and cannot distinguish sent from unsent requests. The thread of this
module passes all results to the loop as calls, in order. A lost connection does not expire the
session; only a server ends a session (S3).
"""

from __future__ import annotations

import logging
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionDropped,
    KazooException,
    SASLException,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler

from tidelog.runtime.stores.zookeeper_conversation import (
    Call,
    Conversation,
    Dropped,
    Line,
    LoopSide,
    ServerRequest,
)
from tidelog.runtime.stores.zookeeper_servers import Servers

#: Number of session timeouts for which the thread does not reconnect while the loop is stuck,
#: because connecting would renew the session. After this time without a connection, the thread
#: connects to learn the session's state.
_STUCK_PART = 1.5
_FIRST_PAUSE_S = 0.02
_LONGEST_PAUSE_S = 0.5
#: How long a server may take for each response of the handshake. Each handshake that times out
#: doubles the time for the next handshake, up to the session timeout. A starting server sometimes
#: loses a handshake, and an ensemble under load takes seconds to create a session.
_FIRST_HANDSHAKE_TIMEOUT_S = 2.0

_log = logging.getLogger("tidelog.kazoo")
_log.addHandler(logging.NullHandler())
_log.propagate = False


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """The socket handler for kazoo, with bounds on connecting that leave time for other servers.

    By default, kazoo waits for a handshake as long as the session timeout, so one lost handshake
    would cost the session.
    """

    def __init__(self, connect_timeout_s: float) -> None:
        super().__init__()
        self._connect_timeout_s = connect_timeout_s
        self.handshake_timeout_s: float
        self.reset_handshake_timeout()

    def create_connection(self, *arguments: Any, **named: Any) -> Any:
        named["timeout"] = self._connect_timeout_s
        return super().create_connection(*arguments, **named)

    def select(
        self,
        readable: Sequence[Any],
        writable: Sequence[Any],
        failed: Sequence[Any],
        timeout_s: float | None = None,
    ) -> Any:
        bound_s = (
            self.handshake_timeout_s
            if timeout_s is None
            else min(timeout_s, self.handshake_timeout_s)
        )
        return super().select(readable, writable, failed, bound_s)

    def double_handshake_timeout(self, session_timeout_s: float) -> float:
        """Double the time limit of the next handshake; return the previous limit in seconds."""
        waited_s = self.handshake_timeout_s
        self.handshake_timeout_s = min(2 * waited_s, session_timeout_s)
        return waited_s

    def reset_handshake_timeout(self) -> None:
        """Reset the time limit of the next handshake to its first value."""
        self.handshake_timeout_s = min(_FIRST_HANDSHAKE_TIMEOUT_S, self._connect_timeout_s)


class _Client(KazooClient):  # type: ignore[misc]
    """A never started kazoo client, which holds addresses, credentials and the session."""

    def _session_callback(self, state: str) -> None:
        """Ignore kazoo's report of the session's state, which the thread itself checks."""


def _client(servers: Servers, timeout_ms: int, handler: _Handler) -> Any:
    tls, options = servers.tls, {}
    if tls is not None:
        options = {
            "use_ssl": True,
            "ca": tls.ca_file or None,
            "certfile": tls.certificate_file or None,
            "keyfile": tls.key_file or None,
            "check_hostname": tls.check_hostname,
        }
    sasl = None
    if servers.sasl is not None:
        user, password = servers.sasl
        sasl = {"mechanism": "DIGEST-MD5", "username": user, "password": password}
    return _Client(
        hosts=servers.hosts,
        timeout=timeout_ms / 1000,
        handler=handler,
        sasl_options=sasl,
        logger=_log,
        **options,
    )


class ServerThread:
    """The thread of one session, with its current connection.

    `deliver` runs calls on the loop, in order; `log` gets warnings, on any thread.
    """

    def __init__(
        self,
        servers: Servers,
        timeout_ms: int,
        deliver: Callable[[Sequence[Call]], None],
        loop_side: LoopSide,
        log: Callable[[str], None],
    ) -> None:
        self._log = log
        self._handler = _Handler(timeout_ms / 1000 / (len(servers.addresses) + 1))
        self._client = _client(servers, timeout_ms, self._handler)
        self._connection = self._client._connection
        self._generation = 0
        self.line = Line(deliver, loop_side, timeout_s=timeout_ms / 1000)
        # The thread is a daemon, because a hanging resolver must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="tidelog-zookeeper", daemon=True)
        self._thread.start()

    # The loop calls the following methods.

    @property
    def session_timeout_ms(self) -> int:
        """The session timeout in ms that the server granted; until then, the requested timeout."""
        return round(self.line.timeout_s * 1000)

    def beat(self) -> None:
        """Record that the loop is not stuck, and let the thread send requests that it held back."""
        turned = self.line.loop_turns
        self.line.last_beat_s = time.monotonic()
        if not turned:
            self.line.rouse()

    def submit(self, generation: int, requests: Sequence[ServerRequest]) -> None:
        """Send requests over connection `generation`, unless a newer connection replaced it."""
        self.line.outbox.extend([(generation, request) for request in requests])
        self.line.rouse()

    def stop(self) -> None:
        """End the thread, but not the session."""
        self.line.is_stopping = True
        self.line.rouse()

    # the thread

    def _run(self) -> None:
        line, fault = self.line, None
        try:
            self._live()
        except SessionExpiredError:
            line.deliver([line.loop_side.expired])
        except BaseException as error:
            fault = error
        line.deliver([lambda: line.loop_side.ended(fault)])

    def _live(self) -> None:
        """Connect and serve connections until the session ends or the thread is stopped."""
        pause_s = _FIRST_PAUSE_S
        while not self.line.is_stopping:
            addresses = self._connection._expand_client_hosts()
            if not addresses:
                self.line.last_failure = f"no address of {self._client.hosts} is known"
            for host, address, port in addresses:
                if self.line.is_stopping or not self._may_connect():
                    break
                try:
                    granted_s = self._connect(host, address, port)
                except Dropped as dropped:
                    self.line.last_failure = str(dropped)
                    continue
                pause_s = _FIRST_PAUSE_S
                self._handler.reset_handshake_timeout()
                self._converse(f"{host}:{port}", granted_s)
                break
            self._pause(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S, self.line.timeout_s / 8)

    def _may_connect(self) -> bool:
        line = self.line
        if self._client._session_id is None or line.loop_turns:
            return True
        return time.monotonic() - line.last_contact_s > line.timeout_s * _STUCK_PART

    def _pause(self, pause_s: float) -> None:
        poll = select.poll()
        poll.register(self.line.wake, select.POLLIN)
        deadline = time.monotonic() + pause_s
        while not self.line.is_stopping and (left_s := deadline - time.monotonic()) > 0:
            if poll.poll(left_s * 1000):
                self.line.hear()

    def _connect(self, host: str, address: str, port: int) -> float:
        """Connect, authenticate, and start or renew the session.

        Returns the session timeout in seconds that the server granted. Raises Dropped,
        SessionExpiredError.
        """
        where = f"{host}:{port}"
        connection, client = self._connection, self._client
        connection._socket = None
        client.last_zxid = self.line.seen_zxid
        try:
            _, part_ms = connection._connect(host, address, port)
        except SessionExpiredError:
            _close(connection._socket)
            raise
        except KazooTimeoutError as error:
            if connection._socket is None:
                raise Dropped(f"{where}: {error or 'no answer'}") from error
            _close(connection._socket)
            waited_ms = self._handler.double_handshake_timeout(self.line.timeout_s) * 1000
            raise Dropped(
                f"{where}: no answer to the handshake within {waited_ms:.0f} ms"
            ) from error
        except (ConnectionDropped, OSError) as error:
            _close(connection._socket)
            raise Dropped(f"{where}: {error or 'no answer'}") from error
        except (AuthFailedError, SASLException) as error:
            _close(connection._socket)
            raise Dropped(f"{where}: authentication failed: {_cause(error)}") from error
        except KazooException as error:
            _close(connection._socket)
            raise Dropped(f"{where}: {_cause(error)}") from error
        return float(part_ms) * len(client.hosts) / 1000

    def _converse(self, where: str, granted_s: float) -> None:
        """Serve one connection until it drops."""
        line = self.line
        if self._generation == 0 and abs(granted_s - line.timeout_s) > 0.001:
            self._log(
                f"ZooKeeper at {where} grants a session timeout of {granted_s * 1000:.0f} ms in"
                f" place of {line.timeout_s * 1000:.0f} ms: its tickTime, minSessionTimeout and"
                " maxSessionTimeout bound it"
            )
        line.timeout_s = granted_s
        self._generation += 1
        generation, session_id, seen = self._generation, self._client._session_id, line.seen_zxid
        sock = self._connection._socket
        conversation = Conversation(line, generation, sock)
        line.deliver([lambda: line.loop_side.connected(generation, session_id, seen)])
        try:
            conversation.serve()
        except (Dropped, OSError) as error:
            reason = f"{where}: {error}"
            line.last_failure = reason
            if not line.is_stopping:
                self._log(f"the connection to ZooKeeper is lost: {reason}")
            line.deliver([lambda: line.loop_side.dropped(reason)])
        finally:
            sock.close()


def _close(sock: socket.socket | None) -> None:
    if sock is not None:
        sock.close()


def _cause(error: BaseException) -> str:
    """Return the text of an exception, or its name if it has no text."""
    return str(error) or type(error).__name__
