"""A byte stream becomes the same frames however it arrives, in memory that its bytes justify."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.draws import examples

from tidelog.core.buffers import BufferPool
from tidelog.wire import frames
from tidelog.wire.frames import FrameError, FrameReader, FrameTooLarge

MIB = 1 << 20


def framed(payloads: Iterable[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(each)) + each for each in payloads)


def feed(reader: FrameReader, stream: bytes, most: int = 1 << 30) -> Iterator[list[memoryview]]:
    """Delivers a stream as a socket would: as much as the reader offers, at most `most`."""
    at = 0
    while at < len(stream):
        room = reader.get_buffer()
        assert len(room) > 0
        count = min(len(room), most, len(stream) - at)
        room[:count] = stream[at : at + count]
        at += count
        yield reader.received(count)


class TestSplitting:
    @examples(200)
    @given(
        payloads=st.lists(
            st.one_of(
                st.binary(max_size=50),
                st.integers(0, 300_000).map(lambda size: bytes([size & 0xFF]) * size),
            ),
            max_size=12,
        ),
        reads=st.lists(st.integers(1, 200_000), min_size=1, max_size=40),
        first_buffer=st.sampled_from([4, 5, 64, 16 * 1024, 256 * 1024]),
        believed=st.sampled_from([0, 1000, MIB]),
        keeps=st.booleans(),
    )
    def test_any_chunking_gives_the_same_frames(
        self,
        payloads: list[bytes],
        reads: list[int],
        first_buffer: int,
        believed: int,
        keeps: bool,
    ) -> None:
        reader = FrameReader(first_buffer_bytes=first_buffer, believed_bytes=believed)
        stream = framed(payloads)
        got: list[bytes] = []
        kept: list[memoryview] = []
        least = len(stream) // 1000
        at = turn = 0
        while at < len(stream):
            room = reader.get_buffer()
            count = min(len(room), max(least, reads[turn % len(reads)]), len(stream) - at)
            room[:count] = stream[at : at + count]
            at += count
            turn += 1
            complete = reader.received(count)
            got += [bytes(each) for each in complete]
            if keeps and complete:
                reader.keep()
                kept += complete
        assert got == payloads
        assert reader.pending_bytes == 0
        if keeps:
            assert kept == payloads

    def test_frames_are_views_of_one_buffer(self) -> None:
        reader = FrameReader()
        (found,) = feed(reader, framed([b"a", b"", b"bc"]))
        assert [bytes(each) for each in found] == [b"a", b"", b"bc"]
        assert len({id(each.obj) for each in found}) == 1

    def test_an_unfinished_frame_is_pending(self) -> None:
        reader = FrameReader()
        list(feed(reader, framed([b"whole"]) + b"\0\0\0\x05ab"))
        assert reader.pending_bytes == 6

    def test_frames_not_kept_are_overwritten_and_kept_ones_are_not(self) -> None:
        reader = FrameReader()
        (first,) = next(feed(reader, framed([b"first"])))
        (second,) = next(feed(reader, framed([b"other"])))
        assert bytes(first) == b"other"
        reader.keep()
        next(feed(reader, framed([b"third"])))
        assert bytes(second) == b"other"

    def test_keep_moves_the_beginning_of_the_next_frame_along(self) -> None:
        reader = FrameReader()
        (kept,) = next(feed(reader, framed([b"kept"]) + b"\0\0\0\x04ne"))
        reader.keep()
        (after,) = next(feed(reader, b"xt"))
        assert (bytes(kept), bytes(after)) == (b"kept", b"next")


class TestBadSizes:
    def test_a_negative_size_ends_the_stream(self) -> None:
        with pytest.raises(FrameError, match="the size -1") as caught:
            list(feed(FrameReader(), b"\xff\xff\xff\xff"))
        assert not isinstance(caught.value, FrameTooLarge)

    def test_a_size_above_the_limit_ends_the_stream(self) -> None:
        reader = FrameReader(100)
        assert [bytes(each) for each in next(feed(reader, framed([b"x" * 100])))] == [b"x" * 100]
        with pytest.raises(FrameTooLarge, match="101 bytes, more than the 100 allowed"):
            next(feed(reader, framed([b"x" * 101])))

    def test_frames_before_a_bad_size_are_not_lost(self) -> None:
        with pytest.raises(FrameTooLarge) as caught:
            list(feed(FrameReader(), framed([b"good"]) + b"GET / HTTP/1.1\r\n"))
        assert [bytes(each) for each in caught.value.frames] == [b"good"]

    def test_the_limit_may_rise(self) -> None:
        reader = FrameReader(10)
        reader.max_frame_bytes = 20
        assert len(next(feed(reader, framed([b"x" * 20])))) == 1


class TestMemory:
    def test_a_claimed_size_allocates_nothing(self) -> None:
        reader = FrameReader(100 * MIB)
        tracemalloc.start()
        try:
            list(feed(reader, struct.pack(">i", 100 * MIB) + b"abc"))
            reader.get_buffer()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 64 * 1024
        assert reader.buffer_bytes == frames.FIRST_BUFFER_BYTES

    def test_the_buffer_at_most_doubles_what_has_come(self) -> None:
        reader = FrameReader(100 * MIB)
        came = 0
        for _ in feed(reader, framed([bytes(9 * MIB)])[:-1], 50_000):
            came += 50_000
            assert reader.buffer_bytes <= max(2 * came, frames.FIRST_BUFFER_BYTES)

    @pytest.mark.parametrize(
        ("size", "room"), [(3 * MIB, 4 * MIB), (4 * MIB, 2 * frames.FIRST_BUFFER_BYTES)]
    )
    def test_a_client_makes_room_for_a_believed_frame_at_once(self, size: int, room: int) -> None:
        reader = FrameReader(100 * MIB, believed_bytes=4 * MIB)
        assert next(feed(reader, framed([bytes(size)]))) == []
        reader.get_buffer()
        assert reader.buffer_bytes == room

    def test_a_frame_claims_no_more_than_its_size_rounded_up(self) -> None:
        reader = FrameReader(100 * MIB)
        list(feed(reader, framed([bytes(MIB)])[:-1]))
        assert reader.buffer_bytes == MIB + 64 * 1024

    def test_a_huge_buffer_is_let_go_with_its_frame(self) -> None:
        reader = FrameReader(100 * MIB)
        list(feed(reader, framed([bytes(5 * MIB)])))
        assert reader.buffer_bytes == frames.FIRST_BUFFER_BYTES

    def test_frames_of_a_buffer_that_was_let_go_stay_valid_until_the_next_read(self) -> None:
        reader = FrameReader(100 * MIB)
        payload = b"p" * (5 * MIB)
        last = list(feed(reader, framed([payload])))[-1]
        assert last == [payload]

    def test_a_big_buffer_is_kept_for_the_next_big_frame(self) -> None:
        reader = FrameReader()
        list(feed(reader, framed([bytes(MIB)])))
        grown = reader.buffer_bytes
        for _ in range(200):
            list(feed(reader, framed([bytes(MIB)])))
            assert reader.buffer_bytes == grown

    def test_a_big_buffer_shrinks_when_only_small_frames_come(self) -> None:
        reader = FrameReader()
        list(feed(reader, framed([bytes(MIB)])))
        for _ in range(2000):
            list(feed(reader, framed([b"small"])))
        assert reader.buffer_bytes == frames.FIRST_BUFFER_BYTES

    def test_reads_that_fill_the_buffer_make_it_grow_to_the_usual_size_only(self) -> None:
        reader = FrameReader()
        list(feed(reader, framed([b"x" * 100] * 200_000)))
        assert reader.buffer_bytes == 256 * 1024


class TestCopying:
    def test_big_frames_after_the_first_are_read_in_place(self) -> None:
        reader = FrameReader()
        stream = framed([bytes(MIB - 10)] * 6)
        buffers = []
        for found in feed(reader, stream):
            buffers += [id(each.obj) for each in found]
        assert len(set(buffers[1:])) == 1

    def test_buffers_of_kept_frames_are_used_again_once_the_frames_are_gone(self) -> None:
        pool = BufferPool(16 * MIB)
        readers = [FrameReader(pool=pool), FrameReader(pool=pool)]
        stream = framed([bytes(MIB - 10)])
        kept: list[memoryview] = []
        seen: set[int] = set()
        for number in range(40):
            reader = readers[number % 2]
            for found in feed(reader, stream):
                if found:
                    reader.keep()
                    kept.extend(found)
                    seen.add(id(found[0].obj))
            while len(kept) > 3:
                assert bytes(kept[0][-10:]) == bytes(10)
                kept.pop(0)
        assert len(seen) <= 8, "three kept, one or two in each reader, one between"

    def test_a_big_frame_is_read_to_its_end_exactly(self) -> None:
        reader = FrameReader()
        next(feed(reader, struct.pack(">i", 200_000)))
        assert len(reader.get_buffer()) <= 200_000
        list(feed(reader, bytes(200_000)))
        assert reader.pending_bytes == 0


def test_a_frame_that_is_not_complete_is_known_by_its_size_and_first_bytes() -> None:
    reader = FrameReader()
    stream = framed([b"whole", b"\x01\x02" + bytes(70_000)])
    reads = feed(reader, stream[:20], most=7)
    known = [(reader.needed_bytes, reader.pending_frame()) for _ in reads]
    # After 7 bytes, 14 and 20: of the first frame, of the second its size alone, and all.
    assert known == [(9, (5, 0x7768)), (70_006, None), (70_006, (70_002, 0x0102))]
