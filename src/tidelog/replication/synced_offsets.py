"""The offset of a replica that the high watermark uses: synced offset or log end (V69).

With `flush.before.ack`, the high watermark uses each replica's synced offset, below which all its
records are on disk. An acknowledged record is then on the disk of every member of the ISR. Without
`flush.before.ack`, the high watermark uses each replica's log end; the last records may then be
only in the page cache. A fetch states in `is_synced`, a field that only tidelog has, whether the
follower has synced its log up to the fetch offset. A fetch without `is_synced` does not raise the
follower's synced offset. This module is pure arithmetic, called for every append and follower
fetch.
"""

from __future__ import annotations


def committable(high_watermark: int, synced_offset: int) -> int:
    """Return the high watermark, limited to the synced part of the leader's own log."""
    return high_watermark if high_watermark < synced_offset else synced_offset


def follower_end(fetch_offset: int, synced_offset: int, flush_before_ack: bool) -> int:
    """Return the follower's offset that the high watermark uses (V69)."""
    return synced_offset if flush_before_ack else fetch_offset


def after_fetch(synced_offset: int, fetch_offset: int, is_synced: bool) -> int:
    """Return a follower's synced offset after a fetch from `fetch_offset`.

    A fetch offset below the synced offset means that the follower truncated its log, so the synced
    offset becomes the fetch offset.
    """
    return fetch_offset if is_synced or fetch_offset < synced_offset else synced_offset
