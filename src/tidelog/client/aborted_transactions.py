"""Batches of aborted transactions in one fetch, for read_committed (KIP-98).

A broker responds with the aborted transactions that overlap the fetched offsets: the producer id
and the first offset of each. A transactional batch of the producer is aborted if it lies between
the first offset and the abort marker of a transaction. Each response needs a new
`AbortedTransactions`, because each response lists all aborted transactions that are open at its
first offset. This module uses neither Arrow nor sockets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from tidelog.client.fetching import AbortedRange
from tidelog.records.batch import BatchView
from tidelog.records.control import ABORT, read_marker


class AbortedTransactions:
    """A predicate of batches, which must be called with all batches of a response in order."""

    def __init__(self, aborted: Iterable[AbortedRange]) -> None:
        self._waiting = deque(sorted(aborted, key=lambda each: each.first_offset))
        self._aborting: set[int] = set()

    def __call__(self, batch: BatchView) -> bool:
        """Return whether the batch holds records of an aborted transaction."""
        while self._waiting and self._waiting[0].first_offset <= batch.last_offset:
            self._aborting.add(self._waiting.popleft().producer_id)
        if not self._aborting or batch.producer_id not in self._aborting:
            return False
        if batch.is_control:
            marker = read_marker(batch)
            if marker is not None and marker.control_type == ABORT:
                self._aborting.discard(batch.producer_id)
            return False
        return batch.is_transactional
