"""Rule D13: a slow log directory is reported, and others lead in its place (also tests/sim)."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.broker.directory import FakeDirectory
from tests.support.broker.fakes import TOPIC_ID, FakeBroker, a_cluster, errors, settle
from tests.support.broker.fakes import state as commanded
from tests.support.controller.values import TP, epoch, loaded, one_partition, state, step, topic_id
from tests.support.log import LogHarness, append, directory_of

from tidelog.broker.replicas.directories.slow_directories import SlowDirectories
from tidelog.broker.replicas.directories.unfit_directories import UNFIT_PAUSE_MS
from tidelog.broker.replicas.metrics import SLOW_LOG_DIRECTORIES
from tidelog.controller.cluster_events import ClusterEvent
from tidelog.controller.elections.preferred import RebalanceDue
from tidelog.controller.elections.relinquishing import RelinquishAsked
from tidelog.core.config import BrokerConfig
from tidelog.core.errors import ErrorCode, KafkaError
from tidelog.core.log_dir_keys import CORDON, DEMOTE, OFFLINE, REPORT, slow_action_includes
from tidelog.core.operation_times import OperationCounts, OperationTimes
from tidelog.core.types import TopicPartition
from tidelog.log.directory_speed import DirectorySpeed
from tidelog.log.slow_directories import (
    FAST_WINDOWS,
    LEAST_OPERATIONS,
    MOST_UNDECIDED,
    SLOW_WINDOWS,
    SlowDirectory,
    SlowVerdict,
    proves_fast,
)
from tidelog.wire.messages.relinquish_leadership import (
    RelinquishedPartition,
    RelinquishedTopic,
    RelinquishLeadershipRequest,
    RelinquishLeadershipResponse,
)
from tidelog.wire.registry import RELINQUISH_LEADERSHIP

THRESHOLD_MS = 50
WINDOW_MS = 1_000
FAST = OperationCounts(writes=1_000, slow_writes=10)
SLOW = OperationCounts(writes=1_000, slow_writes=11)
IDLE = OperationCounts()


# The decision.


def slow_directory() -> SlowDirectory:
    decision = SlowDirectory()
    for _ in range(SLOW_WINDOWS):
        decision.ended(SLOW)
    assert decision.is_slow
    return decision


@pytest.mark.rule("D13")
def test_a_directory_is_slow_after_windows_in_a_row_with_a_p99_over_the_threshold() -> None:
    decision = SlowDirectory()
    assert decision.ended(SLOW) is SlowVerdict.WATCH
    assert decision.ended(FAST) is SlowVerdict.REST, "1 in 100 is no p99 over the threshold"
    for _ in range(SLOW_WINDOWS - 1):
        assert decision.ended(SLOW) is SlowVerdict.WATCH and not decision.is_slow
    assert decision.ended(SLOW) is SlowVerdict.TURNED_SLOW and decision.is_slow


@pytest.mark.rule("D13")
def test_a_slow_directory_is_fast_again_after_more_windows_in_a_row() -> None:
    decision = slow_directory()
    for _ in range(FAST_WINDOWS - 1):
        assert decision.ended(FAST) is SlowVerdict.WATCH
    assert decision.ended(SLOW) is SlowVerdict.WATCH, "it begins again"
    for _ in range(FAST_WINDOWS - 1):
        assert decision.ended(FAST) is SlowVerdict.WATCH and decision.is_slow
    assert decision.ended(FAST) is SlowVerdict.TURNED_FAST and not decision.is_slow
    assert FAST_WINDOWS > SLOW_WINDOWS


@pytest.mark.rule("D13")
def test_writes_do_not_hide_that_all_reads_are_slow() -> None:
    decision = SlowDirectory()
    window = OperationCounts(writes=9_000, reads=LEAST_OPERATIONS, slow_reads=LEAST_OPERATIONS)
    verdicts = [decision.ended(window) for _ in range(SLOW_WINDOWS)]
    assert verdicts[-1] is SlowVerdict.TURNED_SLOW


@pytest.mark.rule("D13")
def test_a_window_goes_on_until_it_has_enough_operations() -> None:
    decision = SlowDirectory()
    half = OperationCounts(reads=LEAST_OPERATIONS // 2, slow_reads=LEAST_OPERATIONS // 2)
    assert decision.ended(half) is SlowVerdict.UNDECIDED
    assert decision.ended(half._replace(writes=5_000)) is SlowVerdict.WATCH, "ten reads, all slow"
    few = OperationCounts(writes=5_000, slow_reads=1, reads=1)
    assert decision.ended(few) is SlowVerdict.UNDECIDED, "reads may be slow"


@pytest.mark.rule("D13")
def test_a_directory_with_operations_of_a_whole_window_is_found_slow() -> None:
    decision = SlowDirectory()
    one = OperationCounts(writes=1, slow_writes=1)
    verdicts = [decision.ended(one) for _ in range(SLOW_WINDOWS * LEAST_OPERATIONS)]
    assert SlowVerdict.REST not in verdicts and verdicts[-1] is SlowVerdict.TURNED_SLOW


@pytest.mark.rule("D13")
def test_an_idle_directory_is_neither_found_slow_nor_fast() -> None:
    decision = SlowDirectory()
    decision.ended(SLOW)
    verdicts = [decision.ended(IDLE) for _ in range(MOST_UNDECIDED)]
    assert verdicts == [SlowVerdict.UNDECIDED] * (MOST_UNDECIDED - 1) + [SlowVerdict.REST]
    assert decision.ended(SLOW) is SlowVerdict.WATCH, "what was before the pause is forgotten"
    decision = slow_directory()
    assert [decision.ended(IDLE) for _ in range(3 * MOST_UNDECIDED)] == [
        SlowVerdict.UNDECIDED
    ] * 3 * MOST_UNDECIDED
    assert decision.is_slow
    assert not proves_fast(IDLE) and proves_fast(FAST) and not proves_fast(SLOW)


# The watch on one directory.


class Watched:
    """The watch on the directory of a log, with a lane whose times a test makes."""

    def __init__(self, path: Path) -> None:
        self.harness = LogHarness(path)
        self.log = self.harness.log()
        self.speed: DirectorySpeed = directory_of(self.log).speed
        self.times: OperationTimes = self.harness.lane.times
        self.seen: list[str] = []
        self.speed.on_change = lambda: self.seen.append("slow" if self.speed.is_slow else "fast")
        self.speed.on_still_slow = lambda: self.seen.append("still slow")
        self.speed.configure(THRESHOLD_MS, WINDOW_MS)

    def write(self, count: int, time_ms: int) -> None:
        for _ in range(count):
            self.times.wrote(time_ms * 1_000_000)
        self.times.report()

    def windows(self, count: int, *, time_ms: int, writes: int = 20) -> None:
        for _ in range(count):
            self.write(writes, time_ms)
            self.harness.clock.advance(WINDOW_MS)

    def probes(self) -> int:
        return self.harness.lane.names.count("probe speed")

    def events(self) -> list[tuple[str, dict[str, Any]]]:
        names = ("log_directory_slow", "log_directory_fast_again")
        return [each for each in self.harness.tracer.events if each[0] in names]


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


@pytest.mark.rule("D13")
def test_fast_operations_cost_no_timer(watched: Watched) -> None:
    armed = len(watched.harness.clock.armed)
    watched.windows(10, time_ms=THRESHOLD_MS - 1)
    append(watched.log, [b"a"])
    assert len(watched.harness.clock.armed) <= armed and watched.seen == []
    watched.write(1, THRESHOLD_MS)
    assert len(watched.harness.clock.armed) == armed + 1
    watched.write(500, 1)
    watched.harness.clock.advance(WINDOW_MS)
    assert len(watched.harness.clock.armed) == armed, "one slow operation in 500"


@pytest.mark.rule("D13")
def test_a_slow_directory_says_so_and_is_fast_again_by_its_work(watched: Watched) -> None:
    watched.write(5_000, 1)
    watched.windows(SLOW_WINDOWS - 1, time_ms=THRESHOLD_MS)
    assert watched.seen == [], "and what was before the first slow operation counts for nothing"
    watched.windows(1, time_ms=90)
    assert watched.seen == ["slow"] and watched.speed.is_slow
    watched.windows(2, time_ms=THRESHOLD_MS)
    watched.windows(FAST_WINDOWS, time_ms=1)
    assert watched.seen[1:-1] == ["still slow"] * (2 + FAST_WINDOWS - 1)
    assert watched.seen[-1] == "fast" and not watched.speed.is_slow
    (slow, found), (fast, healed) = watched.events()
    assert (slow, fast) == ("log_directory_slow", "log_directory_fast_again")
    assert found["slow"] == found["operations"] == 20 and found["longest_ms"] == 90
    assert healed["slow_ms"] == (2 + FAST_WINDOWS) * WINDOW_MS
    assert watched.probes() == 0
    lines = [text for text in watched.harness.tracer.lines if "is slow" in text]
    assert len(lines) == 1 and "20 of 20 writes" in lines[0] and "up to 90 ms" in lines[0]


@pytest.mark.rule("D13")
def test_probes_to_the_device_show_that_an_idle_directory_is_fast_again(watched: Watched) -> None:
    watched.windows(SLOW_WINDOWS, time_ms=THRESHOLD_MS)
    lane, clock = watched.harness.lane, watched.harness.clock
    submit = lane.submit

    def timed(operation: Any, work: Any, name: str) -> Any:
        done = submit(operation, work, name)
        if name == "probe speed":
            watched.times.read(1_000_000)
        return done

    lane.submit = timed  # type: ignore[method-assign]  # as a lane counts
    clock.advance(2 * WINDOW_MS)
    assert watched.probes() == LEAST_OPERATIONS, "in a window without work"
    calls = [call for call, path in watched.harness.files.calls if "speed-probe" in path]
    assert calls[:3] == ["replace_file", "read_file", "unlink"]
    clock.advance(3 * FAST_WINDOWS * WINDOW_MS)
    assert watched.seen[-1] == "fast"
    assert not list(watched.harness.path.glob("*probe*"))
    probes = watched.probes()
    clock.advance(10 * WINDOW_MS)
    assert watched.probes() == probes


@pytest.mark.rule("D13", "D14", "D17")
@pytest.mark.parametrize(
    ("call", "number", "fails"),
    [
        ("replace_file", errno.ENOSPC, False),
        ("replace_file", errno.EDQUOT, False),
        ("replace_file", errno.EIO, True),
        ("read_file", errno.EIO, True),
        ("unlink", errno.EROFS, True),
    ],
)
def test_a_probe_that_fails_is_judged_as_any_operation(
    watched: Watched, call: str, number: int, fails: bool
) -> None:
    watched.windows(SLOW_WINDOWS, time_ms=THRESHOLD_MS)
    watched.harness.files.refuse = lambda name, path: number if name in (call, "pwritev") else 0
    directory = directory_of(watched.log)
    watched.harness.clock.advance(WINDOW_MS)
    assert (directory.failure is not None) == fails and directory.space.is_full != fails
    watched.harness.clock.advance(10 * WINDOW_MS)
    assert watched.probes() == 1, "a full or failed directory is not probed"
    if not fails:
        watched.harness.space_returns()
        watched.harness.clock.advance(WINDOW_MS)
        assert watched.probes() == 1 + LEAST_OPERATIONS


@pytest.mark.rule("D13")
def test_the_threshold_changes_while_the_broker_runs(watched: Watched) -> None:
    watched.windows(SLOW_WINDOWS, time_ms=THRESHOLD_MS)
    assert watched.speed.is_slow
    watched.speed.configure(2 * THRESHOLD_MS, WINDOW_MS)
    assert watched.seen[-1] == "fast" and not watched.speed.is_slow
    watched.windows(5, time_ms=THRESHOLD_MS)
    assert not watched.speed.is_slow
    watched.windows(SLOW_WINDOWS, time_ms=2 * THRESHOLD_MS)
    assert watched.speed.is_slow and watched.speed.periods == 2
    watched.speed.configure(0, WINDOW_MS)
    assert not watched.speed.is_slow
    armed = len(watched.harness.clock.armed)
    watched.windows(5, time_ms=10_000)
    assert len(watched.harness.clock.armed) < armed and not watched.speed.is_slow


# The broker.


def config_of(action: str, log_dirs: str = "/a,/b") -> BrokerConfig:
    return BrokerConfig.from_properties(
        {
            "broker.id": "1",
            "metadata.store": "embedded:/nowhere",
            "log.dirs": log_dirs,
            "log.dir.slow.action": action,
            "leader.imbalance.check.interval.seconds": "60",
        }
    )


class TwoDirectories:
    """Broker 1 of three with two log directories; the controller, broker 3, that it asks."""

    def __init__(self, action: str) -> None:
        self.broker: FakeBroker = a_cluster()[1]
        self.asked: list[tuple[RelinquishLeadershipRequest, Callable[[Any, Any], None]]] = []
        self.broker.peers.intercepted[RELINQUISH_LEADERSHIP] = lambda message, answer: (
            self.asked.append((message, answer))
        )
        self.broker.peers.served.append((RELINQUISH_LEADERSHIP, 0, 0))
        self.first, self.second = self.broker.directory, FakeDirectory()
        self.first.path, self.second.path = "/a", "/b"
        self.second.lane.device = 2
        self.broker.replicas.log_dirs.good.append(self.second)  # type: ignore[arg-type]  # a fake
        self.broker.config = config_of(action)
        self.events: list[ClusterEvent] = []
        self.slow = SlowDirectories(
            self.broker.services,
            self.broker.replicas,
            self.broker.replicas.upkeep.relinquishing,
            SimpleNamespace(record=self.events.extend),  # type: ignore[arg-type]  # a fake
        )

    async def begin(self, leader: int = 1, isr: tuple[int, ...] = (1, 2, 3)) -> None:
        """Lead partition 0 in the first directory, and follow in partition 1 there."""
        self.broker.see(1, 2, 3, controller_id=3)
        self.second.speed.is_slow, self.second.space.is_full = False, True
        await self.broker.command(
            commanded(leader, isr=isr, is_new=True, leader_epoch=4),
            commanded(2, partition=1, is_new=True, leader_epoch=7),
        )
        self.second.space.is_full = False
        assert len(self.first.logs) == 2
        for directory in (self.first, self.second):
            self.slow.watch(directory)  # type: ignore[arg-type]  # a fake directory

    async def turn_slow(self, directory: FakeDirectory) -> None:
        directory.speed.turn(is_slow=True)
        await settle()

    async def stay_slow(self, directory: FakeDirectory) -> None:
        directory.speed.stay_slow()
        await settle()

    async def respond(self, number: int) -> None:
        self.asked[number][1](RelinquishLeadershipResponse(), None)
        await settle()

    def lines(self, text: str) -> int:
        return sum(text in line for line in self.broker.tracer.lines)


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def names(*partitions: tuple[int, int]) -> RelinquishLeadershipRequest:
    """A request that names partitions with their leader epochs."""
    found = [RelinquishedPartition(number, epoch, -1, True) for number, epoch in partitions]
    return RelinquishLeadershipRequest(1, 101, [RelinquishedTopic(TOPIC_ID, found)])


@pytest.mark.rule("D13")
def test_each_action_includes_those_before_it() -> None:
    actions = (REPORT, DEMOTE, CORDON, OFFLINE)
    included = [[slow_action_includes(each, wanted) for wanted in actions] for each in actions]
    assert included == [
        [True, False, False, False],
        [True, True, False, False],
        [True, True, True, False],
        [True, True, True, True],
    ]


@pytest.mark.rule("D13")
def test_a_report_changes_nothing_else() -> None:
    async def story() -> None:
        at = TwoDirectories(REPORT)
        await at.begin()
        await at.turn_slow(at.first)
        await at.stay_slow(at.first)
        assert at.broker.metrics.value(SLOW_LOG_DIRECTORIES, "/a") == 1
        assert at.asked == [] and not at.first.is_marked
        at.first.speed.turn(is_slow=False)
        assert not at.broker.metrics.samples(SLOW_LOG_DIRECTORIES)
        slow, fast = at.events
        assert slow.key == b"log_dir_slow/1/101//a/1"
        assert slow.fields["action"] == REPORT and slow.fields["longest_ms"] == 1_234
        assert (slow.fields["slow"], slow.fields["operations"]) == (15, 30)
        assert fast.key == b"log_dir_fast_again/1/101//a/1" and fast.fields["slow_ms"] == 7

    run(story())


@pytest.mark.rule("D13")
def test_a_leader_on_a_slow_disk_asks_for_another_one_and_followers_are_reported() -> None:
    async def story() -> None:
        at = TwoDirectories(DEMOTE)
        await at.begin()
        await at.turn_slow(at.first)
        assert [request for request, _ in at.asked] == [names((0, 4), (1, 7))]
        assert at.lines("t-0: the disk of the leader is slow") == 1
        await at.respond(0)
        await at.stay_slow(at.first)
        assert len(at.asked) == 1, "it asked a moment ago"
        await at.broker.clock.advance(UNFIT_PAUSE_MS)
        await at.stay_slow(at.first)
        assert at.asked[1][0] == names((0, 4)), "the report of the follower holds"
        await at.respond(1)
        await at.broker.clock.advance(30_000 - UNFIT_PAUSE_MS)
        await at.stay_slow(at.first)
        assert at.asked[2][0] == names((0, 4), (1, 7)), "a report is repeated in time"

    run(story())


@pytest.mark.rule("D13")
def test_another_controller_gets_a_report_of_its_own() -> None:
    async def story() -> None:
        at = TwoDirectories(DEMOTE)
        await at.begin(leader=2)
        await at.turn_slow(at.first)
        await at.respond(0)
        at.broker.services.view.controller_epoch += 1
        await at.stay_slow(at.first)
        assert [request for request, _ in at.asked] == [names((0, 4), (1, 7))] * 2

    run(story())


@pytest.mark.rule("D13")
def test_the_end_of_slowness_is_reported_and_other_slow_directories_again() -> None:
    async def story() -> None:
        at = TwoDirectories(DEMOTE)
        await at.begin(leader=2)
        await at.turn_slow(at.second)
        await at.turn_slow(at.first)
        assert at.lines("all 2 log directories are slow: the machine may be slow") == 1
        await at.respond(0)
        at.second.speed.turn(is_slow=False)
        await settle()
        assert at.asked[1][0] == RelinquishLeadershipRequest(1, 101)
        await at.respond(1)
        await at.stay_slow(at.first)
        assert at.asked[2][0] == names((0, 4), (1, 7)), "the controller has forgotten them"

    run(story())


@pytest.mark.rule("D13", "D2")
@pytest.mark.parametrize(("action", "is_closed"), [(DEMOTE, False), (CORDON, True)])
def test_new_replicas_stay_out_of_a_slow_directory(action: str, is_closed: bool) -> None:
    async def story() -> None:
        at = TwoDirectories(action)
        at.first.lane.usable_bytes, at.second.lane.usable_bytes = 60 << 30, 10 << 30
        at.first.speed.is_slow = True
        made = await at.broker.command(commanded(partition=1, is_new=True))
        assert errors(made) == [0]
        assert len(at.second.logs) == is_closed and len(at.first.logs) == (not is_closed)
        at.second.speed.is_slow = True
        made = await at.broker.command(commanded(partition=2, is_new=True))
        assert errors(made) == [0], "with all of them slow a replica is placed as ever"
        assert TopicPartition("t", 2) in at.first.logs

    run(story())


@pytest.mark.rule("D13", "D11")
@pytest.mark.parametrize(("action", "is_closed"), [(DEMOTE, False), (CORDON, True)])
def test_no_replica_moves_into_a_slow_directory(action: str, is_closed: bool) -> None:
    async def story() -> None:
        at = TwoDirectories(action)
        await at.begin()
        at.second.speed.is_slow = True
        refused = ""
        try:
            await at.broker.replicas.moves.move(TP, "/b")
        except KafkaError as error:
            assert error.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
            refused = str(error)
        except AttributeError:
            assert not is_closed, "the fake directory takes no future replicas"
        assert ("it is slow (log.dir.slow.action=cordon)" in refused) == is_closed

    run(story())


@pytest.mark.rule("D13")
def test_a_slow_directory_that_leads_nothing_is_given_up_if_another_one_is_fast() -> None:
    async def story() -> None:
        at = TwoDirectories(OFFLINE)
        await at.begin()
        await at.turn_slow(at.first)
        at.second.speed.counts = OperationCounts(writes=LEAST_OPERATIONS)
        await at.stay_slow(at.first)
        assert not at.first.is_marked
        assert at.lines("no other replica has taken over t-0") == 1
        await at.broker.command(commanded(2, leader_epoch=5, partition_epoch=5))
        await at.stay_slow(at.first)
        assert at.first.is_marked and not at.second.is_marked
        assert at.first.marked_why == "it has been slow for 7 ms (log.dir.slow.action=offline)"

    run(story())


@pytest.mark.rule("D13")
@pytest.mark.parametrize(
    ("writes", "slow_writes", "is_slow", "has_failed"),
    [(0, 0, False, False), (20, 1, False, False), (2_000, 0, True, False), (50, 0, False, True)],
)
def test_no_directory_is_given_up_unless_another_one_is_known_to_be_fast(
    writes: int, slow_writes: int, is_slow: bool, has_failed: bool
) -> None:
    async def story() -> None:
        at = TwoDirectories(OFFLINE)
        await at.begin(leader=2)
        await at.turn_slow(at.first)
        at.second.speed.counts = OperationCounts(writes, slow_writes)
        at.second.speed.is_slow = is_slow
        if has_failed:
            at.broker.replicas.log_dirs.failed["/b"] = None  # type: ignore[assignment]  # any error
        await at.stay_slow(at.first)
        await at.stay_slow(at.first)
        assert not at.first.is_marked
        assert at.lines("no other log directory of this broker is known to be fast") == 1

    run(story())


@pytest.mark.rule("D13")
def test_the_last_log_directory_is_never_given_up() -> None:
    async def story() -> None:
        at = TwoDirectories(OFFLINE)
        await at.begin()
        at.broker.replicas.log_dirs.good.pop()
        await at.turn_slow(at.first)
        await at.stay_slow(at.first)
        assert not at.first.is_marked and len(at.asked) == 1, "its leaders move away"
        assert at.lines("is slow and is not given up") == 1

    run(story())


@pytest.mark.rule("D13")
def test_a_broker_that_the_controller_does_not_know_gives_nothing_up() -> None:
    async def story() -> None:
        at = TwoDirectories(OFFLINE)
        await at.begin(leader=2)
        await at.turn_slow(at.first)
        at.second.speed.counts = OperationCounts(writes=LEAST_OPERATIONS)
        at.broker.services.fence.is_fenced = True
        await at.stay_slow(at.first)
        assert not at.first.is_marked
        at.broker.services.fence.is_fenced = False
        at.slow.close()
        await at.stay_slow(at.first)
        at.first.speed.turn(is_slow=False)
        assert not at.first.is_marked and len(at.events) == 1, "it has left the cluster"

    run(story())


# The controller.


def reports(
    *partitions: int, broker_id: int = 1, leader_epoch: int = 5, ticket: int = 1
) -> RelinquishAsked:
    """Name partitions on slow disks; none: they are fast again."""
    topics = [
        RelinquishedTopic(topic_id("t"), [RelinquishedPartition(number, leader_epoch, -1, True)])
        for number in partitions
    ]
    request = RelinquishLeadershipRequest(broker_id, epoch(broker_id), topics)
    return RelinquishAsked(ticket, request)


@pytest.mark.rule("D13")
def test_a_follower_that_was_reported_is_not_elected_in_place_of_a_slow_leader() -> None:
    controller = loaded(one_partition(state((1, 2, 3))))
    before = controller.image.states[TP]
    step(controller, reports(0, broker_id=2))
    assert controller.image.states[TP] == before, "a report changes nothing"
    step(controller, reports(0))
    after = controller.image.states[TP]
    assert (after.leader, after.isr) == (3, (1, 2, 3))


@pytest.mark.rule("D13")
def test_leadership_does_not_go_round_slow_brokers() -> None:
    controller = loaded(one_partition(state((1, 2))))
    step(controller, reports(0, broker_id=2))
    step(controller, reports(0))
    assert controller.image.states[TP].leader == 1
    step(controller, RebalanceDue(0))
    step(controller, reports(0, broker_id=2))
    step(controller, RebalanceDue(0))
    step(controller, reports(0))
    assert controller.image.states[TP].leader == 1, "a repeated report holds on"
    step(controller, reports(broker_id=2))
    step(controller, reports(0))
    assert controller.image.states[TP].leader == 2
