"""The keeper: a thread that keeps its process's session alive and observes other sessions (S1, S4).

The keeper thread never accesses the database. Several times in a session timeout, at each tick, the
keeper thread renews its process's lease, unless the event loop is stuck (DESIGN.md, rule 4). The
keeper thread also checks whether peers hold and renew their leases. While the store's thread waits
for the store's lock, the keeper thread looks for a stuck holder of the lock. The keeper thread
reports to the store's thread. The kernel reports the death of a peer's process to the keeper thread
at once, even between two ticks.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable

from tidelog.runtime.stores.leases import Lease, ObservedLease, SessionRow
from tidelog.runtime.stores.store_lock import HolderWatch, StoreLock

_NS_PER_MS = 1_000_000
_MAX_TICK_MS = 100
_MIN_TICK_MS = 5
_TICKS_PER_TIMEOUT = 20
_RENEWALS_PER_TIMEOUT = 12
#: Number of session timeouts after which requests that wait for the lock fail. After one session
#: timeout the keeper kills the lock's holder, so that the next process in the queue gets the lock.
_DENIED_AFTER_TIMEOUTS = 1.5
#: Time after which the keeper reports a lost peer again if the peer's session still exists.
_REPORT_AGAIN_MS = 500


class Keeper:
    """The keeper thread of one open store."""

    def __init__(
        self,
        directory: str,
        timeout_ms: int,
        lock: StoreLock,
        clock: Callable[[], int],
        log: Callable[[str], None],
        on_peer_lost: Callable[[int, int | None], None],
        on_lock_delayed: Callable[[], None],
        on_lock_denied: Callable[[], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """Create a keeper, whose thread calls `on_peer_lost`, `on_lock_delayed`, `on_lock_denied`
        and `on_failed`.

        `on_peer_lost` gets the session of a lost peer. The second argument of `on_peer_lost` is
        None if the peer's process has ended. If the peer's counter has not changed for longer than
        the session timeout, the second argument is the counter. `on_lock_delayed` reports a wait
        for the lock longer than a third of the session timeout. `on_lock_denied` reports a wait
        that goes on although a stuck holder must have been killed. `on_failed` gets the exception
        that has ended the keeper thread.
        """
        self._directory = directory
        self._timeout_ms = timeout_ms
        self._lock = lock
        self._clock = clock
        self._on_peer_lost = on_peer_lost
        self._on_lock_delayed = on_lock_delayed
        self._on_lock_denied = on_lock_denied
        self._on_failed = on_failed
        self._holder_watch = HolderWatch(lock, timeout_ms, log)
        self._tick_ms = max(_MIN_TICK_MS, min(_MAX_TICK_MS, timeout_ms // _TICKS_PER_TIMEOUT))
        #: Monotonic time (ns) of the event loop's last sign of life, which the loop sets.
        self.last_beat_ns = clock()
        self._mutex = threading.Lock()
        self._lease: Lease | None = None
        self._wanted: list[SessionRow] | None = None
        self._stopping = False
        self._peers: dict[int, ObservedLease] = {}
        self._reported_ns: dict[int, int] = {}
        self._last_tick_ns = clock()
        self._renewed_ns = 0
        self._waiting_since_ns: int | None = None
        self._waited_ms = 0.0
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self._wake, select.POLLIN)
        self._thread = threading.Thread(target=self._run, name="tidelog-keeper", daemon=True)
        self._thread.start()

    # The store's thread calls the following methods.

    def keep(self, lease: Lease | None) -> None:
        """Close the current lease, and renew `lease` (or none) from now on."""
        with self._mutex:
            old, self._lease = self._lease, lease
        if old is not None:
            old.close()

    def watch_peers(self, rows: list[SessionRow]) -> None:
        """Observe exactly these sessions from now on."""
        with self._mutex:
            self._wanted = rows
        os.eventfd_write(self._wake, 1)

    def stop(self) -> None:
        """End the thread and close its descriptors and the lease."""
        self._stopping = True
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        self.keep(None)
        os.close(self._wake)

    # the thread

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._turn()
        except BaseException as error:
            self._on_failed(error)
        finally:
            for peer in self._peers.values():
                peer.close()

    def _turn(self) -> None:
        ended = [descriptor for descriptor, _ in self._poll.poll(self._tick_ms)]
        if self._wake in ended:
            os.eventfd_read(self._wake)
        now_ns = self._clock()
        # Time in which this process did not run does not count as silence of peers.
        elapsed_ms = min((now_ns - self._last_tick_ns) / _NS_PER_MS, 3.0 * self._tick_ms)
        self._last_tick_ns = now_ns
        self._renew(now_ns)
        self._adopt_peers()
        for session_id, peer in self._peers.items():
            if peer.process_descriptor in ended:
                # The descriptor of an ended process stays readable, so each later poll would return
                # at once.
                self._poll.unregister(peer.process_descriptor)
            self._look_at(session_id, peer, elapsed_ms, now_ns)
        self._look_at_lock(elapsed_ms)

    def _renew(self, now_ns: int) -> None:
        beat_age_ms = (now_ns - self.last_beat_ns) / _NS_PER_MS
        due = (now_ns - self._renewed_ns) / _NS_PER_MS >= self._timeout_ms / _RENEWALS_PER_TIMEOUT
        if due and beat_age_ms * 3 < self._timeout_ms:
            with self._mutex:
                if self._lease is not None:
                    self._lease.renew()
                    self._renewed_ns = now_ns

    def _adopt_peers(self) -> None:
        with self._mutex:
            rows, self._wanted = self._wanted, None
        if rows is None:
            return
        wanted = {row.session_id: row for row in rows}
        for session_id in [session_id for session_id in self._peers if session_id not in wanted]:
            peer = self._peers.pop(session_id)
            self._reported_ns.pop(session_id, None)
            if peer.process_descriptor is not None:
                self._forget(peer.process_descriptor)
            peer.close()
        for session_id, row in wanted.items():
            if session_id not in self._peers:
                peer = self._peers[session_id] = ObservedLease(self._directory, row)
                if peer.process_descriptor is not None:
                    self._poll.register(peer.process_descriptor, select.POLLIN)

    def _forget(self, descriptor: int) -> None:
        try:
            self._poll.unregister(descriptor)
        except KeyError:
            return  # the descriptor was unregistered when the peer's process ended

    def _look_at(
        self, session_id: int, peer: ObservedLease, elapsed_ms: float, now_ns: int
    ) -> None:
        abandoned = peer.is_abandoned()
        silent = peer.observe(elapsed_ms)
        if not (abandoned or silent):
            return
        reported_ns = self._reported_ns.get(session_id)
        if reported_ns is None or now_ns - reported_ns >= _REPORT_AGAIN_MS * _NS_PER_MS:
            self._reported_ns[session_id] = now_ns
            self._on_peer_lost(session_id, None if abandoned else peer.count)

    def _look_at_lock(self, elapsed_ms: float) -> None:
        since_ns = self._lock.waiting_since_ns
        if since_ns is None or since_ns != self._waiting_since_ns:
            self._waiting_since_ns = since_ns
            self._waited_ms = 0.0
            self._holder_watch.reset()
            return
        self._holder_watch.check(elapsed_ms)
        before_ms = self._waited_ms
        self._waited_ms += elapsed_ms
        if before_ms <= self._timeout_ms / 3 < self._waited_ms:
            self._on_lock_delayed()
        if self._waited_ms > self._timeout_ms * _DENIED_AFTER_TIMEOUTS:
            self._on_lock_denied()
