"""Unread responses share one budget: fetches get less, and readers of nothing go."""

from __future__ import annotations

from tests.support.ports import ManualClock

from tidelog.core.limits import MAX_SEND_QUEUE_BYTES, MIB
from tidelog.core.response_budget import (
    LEAST_GRANT_BYTES,
    MAX_TURN_BYTES,
    SHORT_GRANT_BYTES,
    SHORT_QUEUE_BYTES,
    STALLED_MS,
    ResponseBudget,
    ResponseShare,
    WaitingRead,
)

MAX_BYTES = 128 * MIB


class Fetch:
    """A fetch that reads all that it is granted."""

    def __init__(self, harness: Harness) -> None:
        self.unread_bytes = 0
        self.granted: int | None = None
        self._harness = harness

    def resume(self, granted_bytes: int) -> None:
        self.granted = granted_bytes
        if granted_bytes:
            self._harness.room.read(granted_bytes)


class Harness:
    """A budget of 128 MiB, its connections and fetches."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.lines: list[str] = []
        self.closed: dict[str, str] = {}
        self.budget = ResponseBudget(MAX_BYTES, self.clock, self.lines.append)
        self.room = self.budget.clients

    def holds(self, name: str, size_bytes: int) -> ResponseShare:
        share = self.budget.share(name, lambda reason: self._closed(name, reason))
        share.hold(size_bytes, has_progress=False)
        return share

    def _closed(self, name: str, reason: str) -> None:
        self.closed[name] = reason

    def fetch(self, *, is_due: bool = False) -> Fetch:
        """Read at once where there is a grant, else wait."""
        fetch = Fetch(self)
        granted = self.room.grant_bytes
        if granted:
            fetch.resume(granted)
        else:
            self.room.wait(WaitingRead(fetch.resume, lambda: fetch.unread_bytes, is_due=is_due))
        return fetch

    def turn(self) -> None:
        """Let one turn of the loop pass."""
        self.clock.fire_next(self.clock.now_ms)


def test_readers_of_nothing_get_less_and_a_live_one_still_gets_its_records() -> None:
    harness = Harness()
    granted = []
    for number in range(200):
        granted.append(harness.room.grant_bytes)
        harness.holds(str(number), granted[-1])
    assert granted[0] == MAX_TURN_BYTES
    assert granted == sorted(granted, reverse=True)
    assert LEAST_GRANT_BYTES in granted
    assert granted[-1] == SHORT_GRANT_BYTES
    assert harness.room.used_bytes < MAX_BYTES + 200 * SHORT_GRANT_BYTES
    assert not harness.room.is_exhausted
    assert harness.budget.brokers.grant_bytes == MAX_TURN_BYTES, "brokers have their own room"


def test_the_fetches_of_a_turn_read_bounded_bytes_and_the_others_follow_in_order() -> None:
    harness = Harness()
    fetches = [harness.fetch() for _ in range(5)]
    assert [fetch.granted for fetch in fetches] == [MAX_TURN_BYTES, None, None, None, None]
    for number in range(1, 5):
        harness.turn()
        late = harness.fetch() if number == 1 else None
        assert late is None or late.granted is None, "it waits behind those that came first"
        assert [fetch.granted is not None for fetch in fetches].count(True) == number + 1


def test_small_reads_of_many_turns_need_no_turn() -> None:
    harness = Harness()
    for _ in range(100):
        harness.room.read(16 * 1024)
    assert not harness.clock.armed
    assert harness.room.grant_bytes == MAX_TURN_BYTES


def test_while_room_is_short_a_connection_with_unread_bytes_begins_no_request() -> None:
    harness = Harness()
    assert harness.room.queue_limit_bytes == MAX_SEND_QUEUE_BYTES
    share = harness.holds("slow", MAX_BYTES // 2)
    assert harness.room.queue_limit_bytes == SHORT_QUEUE_BYTES
    share.close()
    assert harness.room.queue_limit_bytes == MAX_SEND_QUEUE_BYTES


def test_at_the_limit_connections_that_take_nothing_are_closed_the_largest_first() -> None:
    harness = Harness()
    large = harness.holds("large", 100 * MIB)
    harness.holds("small", 20 * MIB)
    harness.clock.advance(STALLED_MS)
    assert harness.closed == {}, "there is room"
    slow = harness.holds("slow", 10 * MIB)
    large.hold(90 * MIB, has_progress=True)
    harness.holds("more", 10 * MIB)
    harness.clock.advance(2_000)
    assert list(harness.closed) == ["small"], "the largest one reads"
    assert slow.size_bytes == 10 * MIB
    assert harness.room.used_bytes == 110 * MIB
    assert "small 20,971,520" in harness.lines[0]


def test_far_beyond_the_limit_the_connection_with_the_most_bytes_goes_at_once() -> None:
    harness = Harness()
    shares = [harness.holds(str(number), (40 + number) * MIB) for number in range(7)]
    for share in shares:
        share.hold(share.size_bytes, has_progress=True)
    harness.clock.advance(0)
    assert list(harness.closed) == ["6", "5"][: len(harness.closed)]
    assert harness.closed
    assert harness.room.used_bytes < 2 * MAX_BYTES


def test_fetches_wait_beyond_the_limit_until_there_is_room_or_their_time_is_over() -> None:
    harness = Harness()
    holder = harness.holds("holder", MAX_BYTES + MAX_BYTES // 4)
    patient, due = harness.fetch(), harness.fetch(is_due=True)
    harness.clock.advance(1_000)
    assert (patient.granted, due.granted) == (None, 0), "it responds without records"
    assert harness.closed == {}
    holder.hold(MAX_BYTES, has_progress=True)
    harness.turn()
    assert patient.granted == SHORT_GRANT_BYTES


def test_a_connection_that_proves_to_be_a_brokers_takes_its_bytes_along() -> None:
    harness = Harness()
    share = harness.holds("broker", 10 * MIB)
    share.move(harness.budget.brokers)
    assert (harness.room.used_bytes, harness.budget.brokers.used_bytes) == (0, 10 * MIB)
    share.close()
    share.hold(MIB, has_progress=True)
    assert harness.budget.brokers.used_bytes == 0, "a closed connection holds nothing"


def test_a_read_from_the_disk_counts_from_its_beginning() -> None:
    harness = Harness()
    harness.room.take(MAX_BYTES)
    assert harness.room.grant_bytes == SHORT_GRANT_BYTES
    harness.room.take(-MAX_BYTES)
    assert harness.room.grant_bytes == MAX_TURN_BYTES
