"""The limits of moves between log directories: concurrent moves, and their throttle (D11).

A few moves copy at a time (`num.replica.alter.log.dirs.threads`), and all moves share one rate
(`replica.alter.log.dirs.io.max.bytes.per.second`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.core.completion import Completion
from tidelog.core.throttle_keys import UNLIMITED
from tidelog.replication.byte_rate import ByteRate

if TYPE_CHECKING:
    from tidelog.broker.services import Services

#: Longest pause in milliseconds between two checks of an exceeded throttle, whose rate may have
#: changed.
_LOOK_MS: Final = 500
_MS_PER_S: Final = 1_000


class MovePace:
    """The limits on copying that all moves between log directories of one broker share. Only the
    event loop uses this class.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        config = services.config
        self._rate = ByteRate(
            config.alter_log_dirs_replication_quota_window_num,
            config.alter_log_dirs_replication_quota_window_size_seconds * _MS_PER_S,
        )
        #: Number of moves that copy now.
        self._copying = 0
        #: The moves that wait for their turn, the longest waiting first.
        self._waiting: list[Completion[None]] = []

    async def turn(self) -> None:
        """Wait until the move that calls this method may copy."""
        config = self._services.config
        limit = config.num_replica_alter_log_dirs_threads
        if self._copying >= (len(config.log_dirs) if limit < 0 else limit):
            waiting: Completion[None] = Completion()
            self._waiting.append(waiting)
            await waiting
        else:
            self._copying += 1

    def turn_over(self) -> None:
        """Give the next turn to copy to the move that has waited longest."""
        if self._waiting:
            self._waiting.pop(0).resolve(None)
        else:
            self._copying -= 1

    @property
    def is_throttled(self) -> bool:
        """Whether moves have a throttle, exceeded or not."""
        return self._services.config.replica_alter_log_dirs_io_max_bytes_per_second != UNLIMITED

    def waits_ms(self) -> int:
        """Return the milliseconds until the throttle lets moves copy again; 0 for at once."""
        now_ms = self._services.clock.monotonic_ms()
        rate = self._services.config.replica_alter_log_dirs_io_max_bytes_per_second
        self._rate.limited(None if rate == UNLIMITED else rate, now_ms)
        if not self._rate.is_exceeded(now_ms):
            return 0
        self._services.tracer.mark("directory_move_throttled")
        return min(self._rate.recovers_in_ms(now_ms), _LOOK_MS)

    def copied(self, count_bytes: int, now_ms: int) -> None:
        """Count bytes that were copied."""
        self._rate.record(count_bytes, count_bytes, now_ms)

    def bytes_per_second(self, now_ms: int) -> int:
        """Return the recent rate of copying, in bytes a second."""
        return self._rate.per_second(now_ms)
