"""Pooled buffers: used again when free, and never while anybody could still see their bytes."""

from __future__ import annotations

import threading

from tidelog.core.buffers import POOLED_BYTES, BufferPool

SIZE = POOLED_BYTES


def test_a_buffer_that_nobody_holds_is_used_again() -> None:
    pool = BufferPool(4 * SIZE)
    first = id(pool.take(SIZE))
    assert id(pool.take(SIZE)) == first
    assert pool.held_bytes == SIZE


def test_a_buffer_is_not_used_again_while_it_or_a_view_of_a_view_of_it_lives() -> None:
    pool = BufferPool(4 * SIZE)
    buffer = pool.take(SIZE)
    first = id(buffer)
    assert id(pool.take(SIZE)) != first
    part = memoryview(memoryview(buffer)[10:20])[2:4]
    del buffer
    assert first not in {id(pool.take(SIZE)), id(pool.take(SIZE))}
    del part
    held = [pool.take(SIZE) for _ in range(2)]
    assert first in {id(one) for one in held}


def test_only_a_buffer_of_the_very_size_is_used_again() -> None:
    pool = BufferPool(8 * SIZE)
    small = id(pool.take(SIZE))
    big = pool.take(2 * SIZE)
    assert len(big) == 2 * SIZE
    assert id(pool.take(SIZE)) == small


def test_small_and_huge_buffers_are_not_remembered() -> None:
    pool = BufferPool(2 * SIZE)
    assert len(pool.take(SIZE - 1)) == SIZE - 1
    assert len(pool.take(3 * SIZE)) == 3 * SIZE
    assert len(pool.take(0)) == 0
    assert pool.held_bytes == 0


def test_the_least_recently_used_are_forgotten_above_the_limit() -> None:
    pool = BufferPool(2 * SIZE)
    held = [pool.take(SIZE) for _ in range(5)]
    assert pool.held_bytes == 2 * SIZE
    newest = {id(held[3]), id(held[4])}
    del held
    assert {id(one) for one in [pool.take(SIZE), pool.take(SIZE)]} <= newest


def test_threads_never_get_the_same_buffer() -> None:
    pool = BufferPool(16 * SIZE)
    clashes: list[int] = []
    start = threading.Barrier(4)

    def use(mark: int) -> None:
        start.wait()
        for _ in range(2_000):
            buffer = pool.take(SIZE)
            buffer[0] = mark
            buffer[-1] = mark
            if buffer[0] != mark or buffer[-1] != mark:
                clashes.append(mark)

    threads = [threading.Thread(target=use, args=(mark,)) for mark in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not clashes
