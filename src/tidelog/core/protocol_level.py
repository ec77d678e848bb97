"""Levels of the protocol between brokers, set by `inter.broker.protocol.version` (A12).

A level is one of Kafka's MetadataVersion names. Below 2.7-IV2, a leader writes the state nodes of
its partitions itself; from 2.7-IV2 on, it sends AlterPartition. A lower level also lowers the
versions of the requests that a broker sends to other brokers. A broker never sends request versions
without the fields on which rules depend: topic ids (V23), the type of a command (V35) and broker
epochs of followers (V63). Brokers serve every version at any level, so levels may differ within one
cluster.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

#: Supported levels in ascending order (MetadataVersion).
LEVELS: Final = (
    "2.6-IV0", "2.7-IV0", "2.7-IV1", "2.7-IV2", "2.8-IV0", "2.8-IV1", "3.0-IV0", "3.0-IV1",
    "3.1-IV0", "3.2-IV0", "3.3-IV0", "3.3-IV1", "3.3-IV2", "3.3-IV3", "3.4-IV0", "3.5-IV0",
    "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2", "3.7-IV0", "3.7-IV1", "3.7-IV2",
    "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0",
)  # fmt: skip
NEWEST: Final = "3.9-IV0"
EXPECTED: Final = "a version of Kafka from 2.6 to 3.9, such as 2.6 or 3.9-IV0"
#: The first level at which leaders send AlterPartition (isAlterPartitionSupported).
_FIRST_WITH_ALTER_PARTITION: Final = "2.7-IV2"
#: The last level of each release, by the release's name.
_LAST_OF_RELEASE: Final = {name.partition("-")[0]: name for name in LEVELS}
_NAME: Final = re.compile(r"[0-9]+\.[0-9]+(-IV[0-9]+)?", re.ASCII)


class RequestVersions(NamedTuple):
    """The versions of the requests that a broker sends to other brokers at its level."""

    fetch: int
    list_offsets: int
    leader_and_isr: int
    update_metadata: int
    stop_replica: int


def level_of(text: str) -> str:
    """Return the full name of a level; raise ValueError if the text names no supported level.

    The name of a release (3.9.1) stands for the last level of the release, and its third number is
    ignored, as in Kafka (MetadataVersion.fromVersionString). Empty text means the newest level.
    """
    if not text:
        return NEWEST
    name = ".".join(text.split(".")[:2])
    if _NAME.fullmatch(name) is None:
        raise ValueError("not a version of Kafka")
    name = _LAST_OF_RELEASE.get(name, name)
    if name not in LEVELS:
        raise ValueError("brokers do not speak this protocol among themselves")
    return name


def is_level(text: str) -> bool:
    """Return whether `level_of` accepts the text."""
    try:
        level_of(text)
    except ValueError:
        return False
    return True


def is_direct(text: str) -> bool:
    """Return whether leaders of this level write state nodes themselves (A12)."""
    return not _is_at_least(text, _FIRST_WITH_ALTER_PARTITION)


@lru_cache(maxsize=32)
def request_versions(text: str) -> RequestVersions:
    """Return the request versions that a broker of this level sends.

    Source: MetadataVersion and ControllerChannelManager of Kafka 3.9. Whatever the level, Fetch is
    sent in version 15 or later, LeaderAndIsr in 6 or later, UpdateMetadata in 8 or later. Fetch 15
    carries the follower's broker epoch. LeaderAndIsr 6 carries topic ids, the type of a command and
    the leader recovery state. UpdateMetadata 8 carries topic ids and the type of a command.
    """
    if _is_at_least(text, "3.9-IV0"):
        fetch = 17
    elif _is_at_least(text, "3.7-IV4"):
        fetch = 16
    else:
        fetch = 15
    return RequestVersions(
        fetch=fetch,
        list_offsets=_list_offsets(text),
        leader_and_isr=7 if _is_at_least(text, "3.4-IV0") else 6,
        update_metadata=8,
        stop_replica=4 if _is_at_least(text, "3.4-IV0") else 3,
    )


def _list_offsets(text: str) -> int:
    for first, version in (("3.9-IV0", 9), ("3.5-IV0", 8), ("3.0-IV1", 7), ("2.8-IV0", 6)):
        if _is_at_least(text, first):
            return version
    return 5


def _is_at_least(text: str, level: str) -> bool:
    return LEVELS.index(level_of(text)) >= LEVELS.index(level)
