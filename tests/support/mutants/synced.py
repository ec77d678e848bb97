"""Mutants of `flush.before.ack` (V69): each counts records that a power loss may take.

The docstring of a mutant describes the defect, and appears in docs/internals/mutants.md.
"""

from __future__ import annotations

from typing import Any, Final

from tests.support.mutants.mutant import Catalogue

CATALOGUE: Final = Catalogue()
_breaks = CATALOGUE.breaks

_FOLLOWED = "tidelog.broker.replicas.fetching.followed_partition:FollowedPartition"


@_breaks("V69", "tidelog.replication.synced_offsets:committable", profile="power_failures")
def acknowledged_before_the_flush(_: Any) -> Any:
    """The leader commits what its followers have synced, whatever it has synced itself."""
    return lambda high_watermark, synced_offset: high_watermark


@_breaks("V69", f"{_FOLLOWED}.is_synced", f"{_FOLLOWED}._sync", profile="power_failures")
def follower_reports_what_it_wrote(*_: Any) -> Any:
    """A follower fetches on without a sync, and says that its log is synced."""

    def go_on(followed: Any) -> None:
        followed.is_ready = True
        followed._fetcher.ready(followed)

    return property(lambda followed: followed.partition.log.config.flush_before_ack), go_on


@_breaks("V69", "tidelog.replication.synced_offsets:follower_end", profile="flush_policies")
def any_fetch_offset_counts(_: Any) -> Any:
    """The leader counts the offset of a fetch that does not say that the log is synced."""
    return lambda fetch_offset, synced_offset, flush_before_ack: fetch_offset


@_breaks("V69", "tidelog.replication.leader:LeaderReplica.__init__", profile="power_failures")
def new_leader_has_synced_its_log(original: Any) -> Any:
    """A new leader takes the end of its log as synced."""

    def init(leader: Any, *, log_end_offset: int, synced_offset: int = 0, **more: Any) -> None:
        original(leader, log_end_offset=log_end_offset, synced_offset=log_end_offset, **more)

    return init
