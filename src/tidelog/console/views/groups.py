"""The pages of groups: members, assignments, lag, and the partition with most of the lag.

If a group's committed offset lies below the log start offset, the lag counts only the records that
are left. A partition without a committed offset has no lag; pages show this differently from a lag
of 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.client.groups import GroupDescription
from tidelog.console.readings import ClusterReading, GroupReading, Samples
from tidelog.console.views.tables import Document, TableQuery, text, window
from tidelog.core.types import TopicPartition


def lag_of(reading: ClusterReading, tp: TopicPartition, committed: int | None) -> int | None:
    """Return how many records a group has not read yet; None if an offset is unknown."""
    end = reading.ends.get(tp)
    if committed is None or end is None:
        return None
    return max(0, end - max(committed, reading.starts.get(tp, 0)))


def group_lags(reading: ClusterReading, group: GroupReading) -> dict[TopicPartition, int | None]:
    """Return the lag of each partition that has a committed offset or an assigned member."""
    lags: dict[TopicPartition, int | None] = {
        tp: lag_of(reading, tp, each.offset) for tp, each in group.committed.items()
    }
    for tp in assigned_to(group.description):
        lags.setdefault(tp, None)
    return lags


def assigned_to(description: GroupDescription | None) -> dict[TopicPartition, str]:
    """Return the member of each assigned partition."""
    members = () if description is None else description.members
    return {tp: each.member_id for each in members for tp in each.assignment or ()}


def lag_by_group(reading: ClusterReading) -> dict[str, int]:
    """Return each group's lag, summed over partitions; groups without a known lag are absent."""
    found = {}
    for name, group in reading.groups.items():
        known = [lag for lag in group_lags(reading, group).values() if lag is not None]
        if known:
            found[name] = sum(known)
    return found


def groups_of_topics(reading: ClusterReading) -> dict[str, list[Document]]:
    """Return the groups that read each topic, with their lag in the topic, largest lag first."""
    found: dict[str, dict[str, int | None]] = {}
    for name, group in reading.groups.items():
        for tp, lag in group_lags(reading, group).items():
            lags = found.setdefault(tp.topic, {})
            before = lags.get(name)
            lags[name] = lag if before is None else before + (lag or 0)
    return {
        topic: [
            {"group": name, "lag": lag}
            for name, lag in sorted(lags.items(), key=lambda pair: (-(pair[1] or 0), pair[0]))
        ]
        for topic, lags in found.items()
    }


def groups_view(reading: ClusterReading, samples: Samples, params: Mapping[str, str]) -> Document:
    """Return the page of all groups."""
    lags = lag_by_group(reading)
    rows = [
        {
            "group": name,
            "state": _state(group),
            "protocol_type": group.listing.protocol_type,
            "assignor": "" if group.description is None else group.description.assignor,
            "coordinator": group.listing.coordinator,
            "members": None if group.description is None else len(group.description.members),
            "topics": sorted({tp.topic for tp in group_lags(reading, group)}),
            "lag": lags.get(name),
        }
        for name, group in reading.groups.items()
    ]
    return {
        "silent": [
            {"broker": broker, "text": text} for broker, text in reading.silent_coordinators.items()
        ],
        "table": window(rows, TableQuery.from_params(params, "-lag")),
    }


def _state(group: GroupReading) -> str:
    return group.listing.state if group.description is None else group.description.state


def group_view(reading: ClusterReading, samples: Samples, params: Mapping[str, str]) -> Document:
    """Return the page of one group: members, partitions with their lag, and lag over time."""
    name = text(params, "name")
    group = reading.groups.get(name)
    if group is None:
        return {"group": name, "missing": f"There is no group {name!r} in this cluster now."}
    readers = assigned_to(group.description)
    lags = group_lags(reading, group)
    rows = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "committed": None if tp not in group.committed else group.committed[tp].offset,
            "log_start": reading.starts.get(tp),
            "end": reading.ends.get(tp),
            "lag": lag,
            "member": readers.get(tp),
        }
        for tp, lag in lags.items()
    ]
    description = group.description
    return {
        "group": name,
        "state": _state(group),
        "assignor": "" if description is None else description.assignor,
        "coordinator": group.listing.coordinator,
        "is_readable": description is not None,
        "lag": lag_by_group(reading).get(name),
        "held_back": _held_back(lags, readers),
        "members": _members(description, lags),
        "history": samples.groups.points(name),
        "table": window(rows, TableQuery.from_params(params, "-lag")),
    }


def _members(
    description: GroupDescription | None, lags: Mapping[TopicPartition, int | None]
) -> list[Document]:
    return [
        {
            "member": each.member_id,
            "instance": each.instance_id,
            "client": each.client_id,
            "host": each.host,
            "partitions": None if each.assignment is None else len(each.assignment),
            "lag": _sum(lags.get(tp) for tp in each.assignment or ()),
        }
        for each in (() if description is None else description.members)
    ]


def _held_back(
    lags: Mapping[TopicPartition, int | None], readers: Mapping[TopicPartition, str]
) -> str | None:
    """Return a sentence about the partition with most of a group's lag, and its member; else None.

    A partition has most of the lag if its lag is at least half of the group's lag, and the group
    has several partitions.
    """
    known = {tp: lag for tp, lag in lags.items() if lag}
    whole = sum(known.values())
    if len(lags) < 2 or not whole:
        return None
    tp, lag = max(known.items(), key=lambda pair: pair[1])
    if 2 * lag < whole:
        return None
    member = readers.get(tp)
    reader = f"member {member} reads it" if member else "no member reads it"
    return f"{tp} has {lag:,} of {whole:,} unread records: {reader}"


def _sum(lags: Iterable[int | None]) -> int | None:
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None
