"""Reads from one disk have a part of the room, and one that hangs gets no further ones."""

from __future__ import annotations

from tests.support.ports import ManualClock

from tidelog.core.disk_reads import HUNG_MS, DiskReads

PART = 100
BAD, GOOD = "/bad", "/good"


class Held:
    """A fetch that reads when it may."""

    def __init__(self, reads: DiskReads, size_bytes: int = PART) -> None:
        self.looks = 0
        self._reads = reads
        self._size_bytes = size_bytes
        reads.wait(BAD, self.look_again)

    def look_again(self) -> None:
        self.looks += 1
        if self._reads.may_begin(BAD):
            self._reads.begin(BAD, self._size_bytes)
        else:
            self._reads.wait(BAD, self.look_again)


def test_a_directory_gets_no_read_beyond_its_part_and_the_others_do() -> None:
    reads = DiskReads(ManualClock(), PART)
    reads.begin(BAD, PART - 1)
    assert reads.may_begin(BAD)
    reads.begin(BAD, PART)
    assert (reads.may_begin(BAD), reads.may_begin(GOOD)) == (False, True)
    reads.ended(BAD, PART)
    assert reads.may_begin(BAD)


def test_a_directory_that_finishes_no_read_gets_none_until_it_does() -> None:
    clock = ManualClock()
    reads = DiskReads(clock, PART)
    reads.begin(BAD, 1)
    reads.begin(BAD, 1)
    clock.advance(HUNG_MS - 1)
    assert reads.may_begin(BAD)
    clock.advance(1)
    assert not reads.may_begin(BAD)
    reads.ended(BAD, 1)
    assert reads.may_begin(BAD)
    clock.advance(HUNG_MS)
    reads.ended(BAD, 1)
    clock.advance(HUNG_MS)
    assert reads.may_begin(BAD), "no read is under way"


def test_fetches_look_again_in_their_order_and_once_each() -> None:
    reads = DiskReads(ManualClock(), PART)
    reads.begin(BAD, PART)
    held = [Held(reads), Held(reads), Held(reads)]
    reads.ended(BAD, PART)
    assert [each.looks for each in held] == [1, 0, 0]
    reads.leave(BAD, held[1].look_again)
    reads.ended(BAD, PART)
    assert [each.looks for each in held] == [1, 0, 1]


def test_a_fetch_that_must_wait_on_looks_once_for_each_end() -> None:
    reads = DiskReads(ManualClock(), PART)
    reads.begin(BAD, PART)
    small = [Held(reads, PART // 2), Held(reads, PART // 2), Held(reads)]
    reads.ended(BAD, PART)
    assert [each.looks for each in small] == [1, 1, 0]
