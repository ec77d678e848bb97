"""Declarations of the keys of log directories.

The keys set how a broker treats log directories that are failed, replaced, cordoned, drained, full,
slow or unbalanced (rules D4, D6, D12 to D15). Each declaration is a field of `BrokerConfig`.
Kafka's keys keep their names, types, ranges and defaults.
"""

from __future__ import annotations

from typing import Any, Final

from tidelog.core.config_keys import (
    boolean,
    choice,
    comma_list,
    integer,
    long,
    paths,
    paths_or_all,
)
from tidelog.core.errors import ConfigError

#: The value of cordoned.log.dirs that names all log directories.
ALL: Final = "*"
_MIB: Final = 1 << 20
#: The first of the four values of log.dir.slow.action, which say what a broker does with a slow log
#: directory. Each of the following values includes the actions of the values before it.
REPORT: Final = "report"
DEMOTE: Final = "demote"
CORDON: Final = "cordon"
OFFLINE: Final = "offline"
SLOW_ACTIONS: Final = (REPORT, DEMOTE, CORDON, OFFLINE)


def failure_timeout() -> Any:
    """Return the declaration of log.dir.failure.timeout.ms of Kafka."""
    return long(
        30_000,
        "A broker that cannot report a failed log directory for this long ends (rule D4).",
        at_least=1,
    )


def room_check() -> Any:
    """Return the declaration of log.dirs.room.check.enable."""
    return boolean(
        True, "Whether replicas of dropped or replaced log directories must fit.", ours=True
    )


def cordoned() -> Any:
    """Return the declaration of cordoned.log.dirs (KIP-1066)."""
    return paths_or_all(
        "Log directories that take no new replicas; those that are there go on (KIP-1066, rule "
        "D12). * stands for all."
    )


def check_cordoned(cordoned_dirs: tuple[str, ...], log_dirs: tuple[str, ...]) -> None:
    """Raise ConfigError for a cordoned directory that is not in log.dirs."""
    for path in cordoned_dirs:
        if path != ALL and path not in log_dirs:
            raise ConfigError(
                f"cordoned.log.dirs={','.join(cordoned_dirs)!r} names {path}, which is none of"
                f" log.dirs={','.join(log_dirs)}"
            )


def draining() -> Any:
    """Return the declaration of draining.log.dirs."""
    return paths(
        "Log directories whose replicas move to the others, and that take no new ones; "
        "`tidelog log-dirs drain` sets it (rule D12).",
        ours=True,
    )


def check_draining(draining_dirs: tuple[str, ...], log_dirs: tuple[str, ...]) -> None:
    """Raise ConfigError if a drained directory is not in log.dirs, or all of log.dirs are drained.

    Replicas that leave a drained directory need another directory.
    """
    text = f"draining.log.dirs={','.join(draining_dirs)!r}"
    for path in draining_dirs:
        if path not in log_dirs:
            raise ConfigError(
                f"{text} names {path}, which is none of log.dirs={','.join(log_dirs)}"
            )
    if draining_dirs and len(draining_dirs) == len(log_dirs):
        raise ConfigError(f"{text} names all of log.dirs: no directory is left for their replicas")


#: Dynamic keys that name log directories.
_NAMING: Final = ("cordoned.log.dirs", "draining.log.dirs")


def still_there(name: str, text: str, log_dirs: tuple[str, ...]) -> str:
    """Return the stored value of a key without the directories that are no longer in log.dirs.

    An operator removes a drained directory from log.dirs, but its name stays in the store for a
    while. If the key names no directories, its value is returned unchanged.
    """
    if name not in _NAMING:
        return text
    known = (ALL, *log_dirs)
    kept = [each for each in comma_list(text) if each in known or each.rstrip("/") in known]
    if name == "draining.log.dirs" and {each.rstrip("/") or "/" for each in kept} == {*log_dirs}:
        return ""
    return ",".join(kept)


def takes_no_new(path: str, cordoned_dirs: tuple[str, ...], draining_dirs: tuple[str, ...]) -> bool:
    """Return whether a log directory takes no new replicas, because it is cordoned or drained."""
    return is_cordoned(path, cordoned_dirs) or path in draining_dirs


def balance_enable() -> Any:
    """Return the declaration of log.dir.balance.enable."""
    return boolean(
        False,
        "Whether the broker moves replicas from full volumes to emptier ones by itself. It needs a "
        "limit in replica.alter.log.dirs.io.max.bytes.per.second, and rests without one (rule "
        "D15).",
        ours=True,
    )


def balance_threshold() -> Any:
    """Return the declaration of log.dir.balance.threshold.percent."""
    return integer(
        10,
        "Balancing begins when the fills of two volumes differ by more, in percent of a volume, "
        "and brings them within half of it.",
        at_least=1,
        at_most=100,
        ours=True,
    )


def balance_interval() -> Any:
    """Return the declaration of log.dir.balance.check.interval.seconds."""
    return long(
        300,
        "How often the broker looks whether its volumes are balanced.",
        at_least=1,
        ours=True,
    )


def is_cordoned(path: str, cordoned_dirs: tuple[str, ...]) -> bool:
    """Return whether a log directory is cordoned."""
    return ALL in cordoned_dirs or path in cordoned_dirs


def reserve() -> Any:
    """Return the declaration of log.dir.reserve.bytes."""
    return long(
        64 * _MIB,
        "A log directory whose volume has fewer usable bytes is read-only: it serves reads, its "
        "leaders move away, and it takes records again when the volume has twice as much. At most "
        "a twentieth of the volume counts; 0: only a refused write makes it read-only (rule D14).",
        at_least=0,
        ours=True,
    )


def slow_threshold() -> Any:
    """Return the declaration of log.dir.slow.threshold.ms.

    A healthy disk under full load completes operations within some 100 ms. Linux delays a writer by
    200 ms at a time when the device does not keep up. A p99 of one second is therefore a sign of a
    failing device, not of load.
    """
    return long(
        1_000,
        "A log directory is slow when more than one in a hundred of its writes, or of its reads "
        "from the disk, take this long, in three windows in a row (log.dir.slow.window.ms). 0: "
        "nothing is watched (rule D13).",
        at_least=0,
        ours=True,
    )


def slow_window() -> Any:
    """Return the declaration of log.dir.slow.window.ms."""
    return long(
        10_000,
        "The time over which operations are counted: a log directory is slow after three windows, "
        "and fast again after six (rule D13).",
        at_least=100,
        ours=True,
    )


def slow_action() -> Any:
    """Return the declaration of log.dir.slow.action."""
    return choice(
        REPORT,
        "What is done about a slow log directory (rule D13). Each includes those before it. "
        "report: log, metric, event; demote: other replicas lead; cordon: no new replicas; "
        "offline: it is given up as if it had failed, once it leads nothing and while another "
        "one is fast.",
        *SLOW_ACTIONS,
        ours=True,
    )


def slow_action_includes(action: str, wanted: str) -> bool:
    """Return whether an action on slow log directories includes the `wanted` action."""
    return SLOW_ACTIONS.index(action) >= SLOW_ACTIONS.index(wanted)
