"""The end of a replica's log as it counts for the high watermark (V69).

With `flush.before.ack` a replica counts for the high watermark with its synced offset, below which
every record is on the disk. With this setting, an acknowledged record is on the disk of every
member of the ISR. Without `flush.before.ack`, a replica counts for the high watermark with its log
end, whose records may be only in the page cache. A fetch states whether the follower has synced its
log up to the fetch offset (`is_synced`, tidelog's own field). A fetch without `is_synced` raises no
synced offset. This module is pure arithmetic, called for every append and follower fetch.
"""

from __future__ import annotations


def committable(high_watermark: int, synced_offset: int) -> int:
    """Return the high watermark, limited to the synced part of the leader's own log."""
    return high_watermark if high_watermark < synced_offset else synced_offset


def follower_end(fetch_offset: int, synced_offset: int, flush_before_ack: bool) -> int:
    """Return the follower's log end that counts for the high watermark (V69)."""
    return synced_offset if flush_before_ack else fetch_offset


def after_fetch(synced_offset: int, fetch_offset: int, is_synced: bool) -> int:
    """Return a follower's synced offset after a fetch from `fetch_offset`.

    A follower that truncated its log lowers its synced offset.
    """
    return fetch_offset if is_synced or fetch_offset < synced_offset else synced_offset
