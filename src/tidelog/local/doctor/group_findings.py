"""Findings about consumer groups without progress, and about the placement of their coordinators.

The functions are pure. The survey reads a group's state twice, some seconds apart. Findings about a
group's progress are notices: a consumer may not commit between the two readings, and an application
may be stopped on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tidelog.client.groups import EMPTY
from tidelog.core.names import CONSUMER_OFFSETS
from tidelog.core.types import NO_LEADER
from tidelog.core.wording import counted
from tidelog.local.doctor.cluster_facts import ClusterFacts, GroupFacts
from tidelog.local.doctor.diagnosis import notice, shown, some, unavailable
from tidelog.local.health import ClusterPlace, Finding
from tidelog.local.remedy_commands import command_on

#: Number of replicas with which `__consumer_offsets` survives the loss of a broker while another
#: broker restarts.
_REPLICAS = 3
_REBALANCING = ("PreparingRebalance", "CompletingRebalance")


def of_groups(facts: ClusterFacts, place: ClusterPlace) -> Iterator[Finding]:
    """Yield the findings about groups and coordinators."""
    for each in facts.groups:
        yield from _of_group(each, facts.watched_s, place)
    yield from _coordinators(facts, place)


def _of_group(group: GroupFacts, watched_s: float, place: ClusterPlace) -> Iterator[Finding]:
    behind, name = group.behind, shown(group.group)
    lag = counted(sum(group.lag[tp] for tp in behind), "record")
    report = partial(notice, brokers=[group.coordinator], partitions=behind)
    look = command_on("tidelog groups describe", group.group, place.option)
    if all(state in _REBALANCING for state in group.states):
        message = (
            f"group {name} was rebalancing at both looks, {watched_s:g} s apart: no member"
            " reads meanwhile"
        )
        remedy = f"{look}; look for members that do not poll within max.poll.interval.ms"
        yield report("group_rebalancing", message, remedy)
    elif behind and not group.has_advanced and group.states[1] == EMPTY:
        message = f"group {name} has no members, and {lag} of {some(behind)} wait for it"
        delete = command_on("tidelog groups delete", group.group, place.option)
        remedy = f"start its consumers; or, if it is retired: {delete}"
        yield report("group_without_members", message, remedy)
    elif behind and not group.has_advanced and watched_s > 0:
        members = counted(group.members, "member")
        message = (
            f"group {name} with {members} committed no offset in {watched_s:g} s, and {lag}"
            f" of {some(behind)} wait for it"
        )
        remedy = f"{look}; then read the logs of these consumers"
        yield report("group_without_progress", message, remedy)


def _coordinators(facts: ClusterFacts, place: ClusterPlace) -> Iterator[Finding]:
    """Yield findings about __consumer_offsets, whose leaders are the coordinators."""
    partitions = facts.partitions_of(CONSUMER_OFFSETS)
    live = len(facts.metadata.brokers)
    gone = [tp for tp, each in partitions if each.leader == NO_LEADER]
    if gone:
        message = (
            f"{counted(len(gone), 'partition')} of {CONSUMER_OFFSETS} without a leader: their"
            " groups have no coordinator, so members cannot join, commit or go on"
        )
        remedy = f"tidelog topics describe {CONSUMER_OFFSETS} --replicas{place.option}"
        yield unavailable("coordinator_missing", message, remedy, partitions=gone)
    wanted = min(_REPLICAS, live)
    few = [tp for tp, each in partitions if len(each.replicas) < wanted]
    if few:
        message = (
            f"{counted(len(few), 'partition')} of {CONSUMER_OFFSETS} with fewer than {wanted}"
            " replicas: with their brokers, committed offsets are gone"
        )
        remedy = (
            f"tidelog topics alter {CONSUMER_OFFSETS} --replication-factor {wanted} --wait"
            f"{place.option}"
        )
        yield notice("coordinator_replicas", message, remedy, partitions=few)
    led = [each.leader for _, each in partitions if each.leader != NO_LEADER]
    if len(led) > 1 and len(dict.fromkeys(led)) == 1 and live > 1:
        only = led[0]
        message = (
            f"broker {only} coordinates all groups: it leads all {len(led)} partitions of"
            f" {CONSUMER_OFFSETS}, and {counted(live - 1, 'other broker')} none"
        )
        remedy = (
            f"tidelog leaders elect --topic {CONSUMER_OFFSETS}{place.option}; if nothing changes:"
            f" tidelog reassign rebalance --wait{place.option}"
        )
        yield notice("coordinators_on_one_broker", message, remedy, brokers=[only])
