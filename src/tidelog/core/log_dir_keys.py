"""Declarations of the keys of log directories: failed, replaced, cordoned and full ones.

Rules D4, D6, D12 and D14. Each declaration is a field of `BrokerConfig`. Kafka's keys have the
names, types, ranges and defaults that they have in Kafka.
"""

from __future__ import annotations

from typing import Any, Final

from tidelog.core.config_keys import boolean, long, paths_or_all
from tidelog.core.errors import ConfigError

#: Stands for all log directories in cordoned.log.dirs.
ALL: Final = "*"
_MIB: Final = 1 << 20


def failure_timeout() -> Any:
    """Return the field of log.dir.failure.timeout.ms of Kafka."""
    return long(
        30_000,
        "A broker that cannot report a failed log directory for this long ends (rule D4).",
        at_least=1,
    )


def room_check() -> Any:
    """Return the field of log.dirs.room.check.enable."""
    return boolean(
        True, "Whether replicas of dropped or replaced log directories must fit.", ours=True
    )


def cordoned() -> Any:
    """Return the field of cordoned.log.dirs (KIP-1066)."""
    return paths_or_all(
        "Log directories that take no new replicas; those that are there go on (KIP-1066, rule "
        "D12). * stands for all."
    )


def check_cordoned(cordoned_dirs: tuple[str, ...], log_dirs: tuple[str, ...]) -> None:
    """Raise ConfigError for a cordoned directory that is none of the broker's."""
    for path in cordoned_dirs:
        if path != ALL and path not in log_dirs:
            raise ConfigError(
                f"cordoned.log.dirs={','.join(cordoned_dirs)!r} names {path}, which is none of"
                f" log.dirs={','.join(log_dirs)}"
            )


def is_cordoned(path: str, cordoned_dirs: tuple[str, ...]) -> bool:
    """Return whether a log directory takes no new replicas."""
    return ALL in cordoned_dirs or path in cordoned_dirs


def reserve() -> Any:
    """Return the field of log.dir.reserve.bytes."""
    return long(
        64 * _MIB,
        "A log directory whose volume has fewer usable bytes is read-only: it serves reads, its "
        "leaders move away, and it takes records again when the volume has twice as much. At most "
        "a twentieth of the volume counts; 0: only a refused write makes it read-only (rule D14).",
        at_least=0,
        ours=True,
    )
