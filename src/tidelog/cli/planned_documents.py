"""JSON documents of commands that plan moves between the log directories of a broker (D12, D15).

They are those of `documents`, in a module of their own: `log-dirs drain` and `log-dirs balance`
print them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DirectoryMovePlanned:
    """A replica that a drain or balancing moves to another log directory of its broker.

    `result` is would_move, accepted, done (with --wait), or Kafka's error name. `log_dir` is null
    for a replica that fits nowhere now. `reason` is why.
    """

    broker: int
    topic: str
    partition: int
    result: str
    log_dir_before: str
    log_dir: str | None
    size_bytes: int
    reason: str


@dataclass(frozen=True, slots=True)
class LogDirDrained:
    """A log directory whose replicas move to others; `executed` is false with --dry-run.

    `replicas` and `size_bytes` are left there. `moves` are those that the broker plans, or makes.
    """

    broker: int
    log_dir: str
    executed: bool
    replicas: int
    size_bytes: int
    moves: list[DirectoryMovePlanned]
