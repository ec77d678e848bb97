"""Each kind of fault and each scenario, injected once: its effect is seen."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.sim.fault_harness import CLIENT, NS_PER_MS, TOPIC, FaultHarness, fault_harness
from tests.sim.test_disk_faults import EXPECTED as DISK_FAULTS

from tidelog.core.errors import TidelogError
from tidelog.metadata.store import Create, OutcomeUnknown
from tidelog.sim.broker_settings import host_of
from tidelog.sim.disk import Loss
from tidelog.sim.faults import KINDS, SCENARIOS
from tidelog.sim.faults.store import strike_next_write
from tidelog.sim.sim_cluster import STORE_HOST
from tidelog.sim.sim_store import SimStoreClient
from tidelog.wire.frames import FrameReader

#: Faster than this an answer comes over links that are as they should be.
QUICK_MS = 5.0
#: Draws a strike at a port call of any name.
STRIKE_SEED = 3
TESTS = Path(__file__).parent


@pytest.fixture
def at() -> Iterator[FaultHarness]:
    with fault_harness() as made:
        yield made


def ends_up(at: FaultHarness, incarnation: dict[int, int]) -> None:
    """Whoever ended is started again, and the cluster is healthy."""
    at.until(lambda: not at.cluster.health())
    for broker in at.brokers:
        assert broker.life is not None
        assert broker.incarnation >= incarnation[broker.node_id]


def lives(at: FaultHarness) -> dict[int, int]:
    return {broker.node_id: broker.incarnation for broker in at.brokers}


def died(at: FaultHarness, before: dict[int, int]) -> list[int]:
    return [
        broker.node_id
        for broker in at.brokers
        if broker.life is None or broker.incarnation > before[broker.node_id]
    ]


# Network


def _links(at: FaultHarness, what: str) -> list[tuple[str, str]]:
    network = at.simulator.network
    hosts = [host_of(broker.node_id) for broker in at.brokers] + [CLIENT]
    return [
        (source, target)
        for source in hosts
        for target in hosts
        if getattr(network.link(source, target), what)
    ]


@pytest.mark.parametrize("seed", range(4))
def test_cut_one_way_lets_nothing_pass_in_one_direction_until_it_is_healed(
    at: FaultHarness, seed: int
) -> None:
    at.inject("cut_one_way", seed, [CLIENT])
    ((source, target),) = _links(at, "cut")
    broker_id = int((source + target).replace(CLIENT, "").removeprefix("broker"))
    told = at.ask(broker_id)
    at.run(25)
    assert told() is None
    arrived = at.noted(f"frames {CLIENT}")[-1]
    # The request came where only the way back is cut.
    assert (f">{host_of(broker_id)}:" in arrived) == (target == CLIENT)
    at.until(lambda: told() is not None)
    assert not _links(at, "cut")


def test_cut_two_ways_lets_nothing_pass_until_it_is_healed(at: FaultHarness) -> None:
    at.inject("cut_two_ways", 1, [CLIENT])
    cut = _links(at, "cut")
    assert len(cut) == 2 and cut[0] == cut[1][::-1]
    (broker_id,) = [each.node_id for each in at.brokers if each.node.host in cut[0]]
    told = at.ask(broker_id)
    at.run(20)
    assert told() is None
    at.until(lambda: told() is not None)


def test_isolate_cuts_a_broker_off_from_all(at: FaultHarness) -> None:
    at.inject("isolate", 2)
    hosts = [source for source, _ in _links(at, "cut")]
    (host,) = [host for host in dict.fromkeys(hosts) if hosts.count(host) == 3]
    broker_id = int(host.removeprefix("broker"))
    told = at.ask(broker_id)
    at.run(20)
    assert told() is None
    at.until(lambda: told() is not None)


def test_slow_link_makes_answers_late(at: FaultHarness) -> None:
    at.inject("slow_link", 3, [CLIENT])
    ((source, _),) = _links(at, "extra_ns")
    broker_id = int(source.removeprefix("broker"))
    extra_ms = at.simulator.network.link(source, CLIENT).extra_ns / NS_PER_MS
    told = at.answer_ms(broker_id)
    assert told is not None and told > extra_ms
    at.run(4_100)
    after = at.answer_ms(broker_id)
    assert after is not None and after < QUICK_MS


def test_late_roles_delays_what_the_controller_tells_one_broker(at: FaultHarness) -> None:
    controller = at.controller.node.host
    at.inject("late_roles")
    ((source, target),) = _links(at, "extra_ns")
    assert source == controller and target.startswith("broker")
    assert at.simulator.network.link(source, target).extra_ns >= 150 * NS_PER_MS
    at.run(3_100)
    assert not _links(at, "extra_ns")


def test_jitter_lets_one_connection_overtake_another(at: FaultHarness) -> None:
    at.inject("jitter", 3)
    (text,) = at.noted(" fault jitter of ")
    broker_id = int(text.rpartition("broker")[2])
    overtaken = 0
    for _ in range(20):
        first = at.ask(broker_id)
        at.forget_connections()
        before, at.connections[broker_id] = at.connections[broker_id], at.connect(broker_id)
        second = at.ask(broker_id)
        at.until(partial(lambda *both: None not in [each() for each in both], first, second))
        overtaken += (first() or 0) > (second() or 0) + QUICK_MS
        at.connections[broker_id] = before
        if overtaken:
            break
    assert overtaken
    # Within one connection order is kept, whatever each message's delay.
    tolds = [at.ask(broker_id) for _ in range(10)]
    at.until(lambda: tolds[-1]() is not None)
    assert all(told() is not None for told in tolds)


def test_clog_delivers_all_at_once_when_it_flows_again(at: FaultHarness) -> None:
    at.inject("clog", 2, [CLIENT])
    ((source, target),) = _links(at, "clogged")
    broker_id = int((source + target).replace(CLIENT, "").removeprefix("broker"))
    tolds = []
    for _ in range(3):
        tolds.append(at.ask(broker_id))
        at.run(5)
    assert [told() for told in tolds] == [None] * 3
    assert _links(at, "clogged")
    at.until(lambda: not _links(at, "clogged"))
    at.until(lambda: tolds[-1]() is not None, 100)
    (whole,) = [line for line in at.noted("frames ") if f">{target}" in line and " 3 " in line][-1:]
    assert source in whole


def test_split_reads_end_within_frames_until_they_are_whole_again(
    at: FaultHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    partial_reads: list[int] = []
    received = FrameReader.received

    def counted(reader: FrameReader, nbytes: int) -> list[memoryview]:
        frames = received(reader, nbytes)
        if reader.pending_bytes:
            partial_reads.append(nbytes)
        return frames

    monkeypatch.setattr(FrameReader, "received", counted)
    at.run(500)
    assert not partial_reads
    at.inject("split_reads", 1)
    assert _links(at, "splits")
    for broker_id in at.connections:
        assert at.answer_ms(broker_id) is not None
    at.until(lambda: not _links(at, "splits"))
    assert partial_reads
    for broker_id in at.connections:
        assert at.answer_ms(broker_id) is not None
    assert at.simulator.violations == []


def test_half_open_connections_are_believed_open_by_one_side_or_both(at: FaultHarness) -> None:
    seen: list[str] = []
    for seed in range(6):
        first = len(at.lines)
        at.inject("half_open", seed)
        text = at.noted(" fault half open ")[-1]
        ends, _, closes = text.rpartition(" fault half open ")[2].partition(" one side closed ")
        lost = [line.split(" lost ")[1] for line in at.lines[first:] if " lost " in line]
        # The other side gets no notice.
        assert (f"{ends} the connection is forgotten" in lost) == (closes == "True")
        noted = len(at.noted(" fault half open ")) - sum(map(seen.count, ("True", "False")))
        assert len(lost) == (noted if closes == "True" else 0)
        seen += [closes] * noted
    assert {*seen} == {"True", "False"}
    broker = at.brokers[0]
    assert broker.life is not None
    mine = [
        endpoint
        for endpoint in at.simulator.network.connections_of(broker.life)
        if endpoint.peer_name.startswith(CLIENT)
    ]
    for endpoint in mine:
        at.simulator.network.vanish(endpoint, closes=True)
    at.run(10)
    assert at.connections[1].is_open
    told = at.ask(1)
    at.run(5_000)
    assert told() is None  # no reset either: its kernel gives up later
    at.until(lambda: not at.connections[1].is_open, 40_000)


def test_unserved_connections_are_accepted_and_not_answered(at: FaultHarness) -> None:
    at.inject("unserved_connections", 1)
    (host,) = [host for host in at.simulator.network.hosts.values() if not host.is_serving]
    broker_id = int(host.name.removeprefix("broker"))
    at.forget_connections()
    refusal = at.try_to_connect(broker_id)
    assert "no answer in time" in str(refusal)
    assert at.noted(f"lost {CLIENT}")  # it was open, until the client gave it up
    at.until(lambda: host.is_serving)
    at.connections[broker_id] = at.connect(broker_id)
    assert at.answer_ms(broker_id) is not None


def test_reset_connections_breaks_them_on_both_sides(at: FaultHarness) -> None:
    at.inject("reset_connections")
    at.run(50)
    broken = [number for number, each in at.connections.items() if not each.is_open]
    assert len(broken) == 1
    assert at.noted(f"lost {host_of(broken[0])}:9092-{CLIENT}")


# Store


def _transact(at: FaultHarness, store: SimStoreClient, path: str) -> object:
    """Make a node; the outcome."""
    outcome: list[object] = []

    async def write() -> None:
        try:
            outcome.append(await store.transact([Create(path, b"x")]))
        except TidelogError as error:
            outcome.append(error)

    owner = next(each for each in at.brokers if each.store is store)
    assert owner.broker is not None
    owner.broker.services.tasks.spawn("write", write())
    at.until(lambda: bool(outcome), 20_000)
    return outcome[0]


def _store_of(at: FaultHarness, note: str) -> SimStoreClient:
    text = at.noted(note)[-1]
    numbers = [int(word) for word in text.rpartition(" fault ")[2].split() if word.isdigit()]
    store = at.cluster.brokers[numbers[0]].store
    assert store is not None
    return store


def test_expire_session_ends_a_session(at: FaultHarness) -> None:
    before = at.cluster.store.live_sessions()
    at.inject("expire_session")
    assert len(at.cluster.store.live_sessions()) == len(before) - 1
    at.until(lambda: not at.cluster.health() and len(at.cluster.store.live_sessions()) == 3)


def test_remove_registration_lets_a_broker_register_again_in_its_session(
    at: FaultHarness,
) -> None:
    sessions, epochs = at.cluster.store.live_sessions(), dict(at.cluster.published.brokers)
    at.inject("remove_registration")
    assert len(at.cluster.published.brokers) == len(epochs) - 1
    at.until(lambda: not at.cluster.health() and len(at.cluster.published.brokers) == len(epochs))
    assert at.cluster.store.live_sessions() == sessions
    changed = [one for one in epochs if at.cluster.published.brokers[one] != epochs[one]]
    assert len(changed) == 1


@pytest.mark.rule("A9")
def test_rogue_isr_change_reaches_the_leader(at: FaultHarness) -> None:
    shrinks = at.cluster.published.shrinks
    at.inject("rogue_isr_change")
    at.until(lambda: at.cluster.published.shrinks > shrinks)
    # The leader adds the replica again: it has learned that it left.
    at.until(lambda: not at.cluster.health())
    states = at.cluster.published.partitions.values()
    assert all(len(state.isr) == 3 for state in states)


def test_expire_controller_brings_another_controller_epoch(at: FaultHarness) -> None:
    epoch = at.cluster.published.controller_epoch
    at.inject("expire_controller")
    at.until(lambda: at.cluster.published.controller_epoch > epoch)


def test_lose_answer_applies_the_transaction_and_tells_nobody(at: FaultHarness) -> None:
    at.inject("lose_answer")
    store = _store_of(at, "lose the next answer")
    assert isinstance(_transact(at, store, "/applied"), OutcomeUnknown)
    assert at.cluster.store.tree.get("/applied") is not None


def test_lose_request_applies_nothing(at: FaultHarness) -> None:
    at.inject("lose_request")
    store = _store_of(at, "lose the next request")
    assert isinstance(_transact(at, store, "/lost"), OutcomeUnknown)
    assert at.cluster.store.tree.get("/lost") is None


def test_cut_store_keeps_one_broker_from_it(at: FaultHarness) -> None:
    at.inject("cut_store", 5)
    cut = [each for each in at.brokers if not at.cluster.reaches_store(each.node.host)]
    assert len(cut) == 1
    assert at.simulator.network.link(cut[0].node.host, STORE_HOST).cut
    at.until(lambda: at.cluster.reaches_store(cut[0].node.host))


def test_store_outage_ends_no_session_and_serves_nobody(at: FaultHarness) -> None:
    sessions = at.cluster.store.live_sessions()
    at.inject("store_outage", 4)
    assert not any(at.cluster.reaches_store(each.node.host) for each in at.brokers)
    zxid = at.cluster.store.tree.zxid
    at.until(lambda: at.cluster.store.is_available)
    assert at.cluster.store.tree.zxid == zxid
    at.run(1_400)
    assert at.cluster.store.live_sessions() == sessions
    assert at.cluster.store.expiries == 0


def test_late_watches_come_after_a_while(at: FaultHarness) -> None:
    store = at.brokers[0].store
    assert store is not None
    at.inject("late_watches", 2)
    fired: list[int] = []

    async def watch() -> None:
        await store.get("/watched", lambda _: fired.append(at.simulator.now_ns))

    broker = at.brokers[0].broker
    assert broker is not None
    task = broker.services.tasks.spawn("watch", watch())
    at.until(task.done)
    begin_ns = at.simulator.now_ns
    at.cluster.store.write_from_outside("/watched", b"x")
    at.until(lambda: bool(fired))
    assert (fired[0] - begin_ns) / NS_PER_MS > QUICK_MS
    at.run(4_100)
    assert at.cluster.store.watch_delay_ms() == 0.0


def test_elect_preferred_asks_and_is_answered(at: FaultHarness) -> None:
    at.inject("elect_preferred")
    path = "/admin/preferred_replica_election"
    assert at.cluster.store.tree.get(path) is not None
    at.until(lambda: at.cluster.store.tree.get(path) is None)


@pytest.mark.parametrize("is_applied", [False, True])
def test_strike_controller_write_ends_the_controller_before_or_after_it(
    at: FaultHarness, is_applied: bool
) -> None:
    controller = at.controller
    assert strike_next_write(at.context(), controller, 1, is_applied=is_applied)
    before = lives(at)
    node = at.cluster.store.tree.get(f"/brokers/topics/{TOPIC}/partitions/0/state")
    assert node is not None
    version = node.stat.version
    other = next(each for each in at.brokers if each is not controller)
    zxid = at.cluster.store.tree.zxid
    other.crash(Loss.NONE, "a reason to write")
    at.until(lambda: controller.node_id in died(at, before))
    writes = [
        line
        for line in at.noted(" store ")
        if "Check /controller_epoch" in line and int(line.split(" store ")[1].split()[0]) > zxid
    ]
    assert len(writes) == is_applied
    node = at.cluster.store.tree.get(f"/brokers/topics/{TOPIC}/partitions/0/state")
    assert node is not None and (node.stat.version > version) == is_applied
    ends_up(at, before)


def test_strike_controller_write_plans_a_strike(at: FaultHarness) -> None:
    at.inject("strike_controller_write")
    assert at.noted(f" fault strike controller {at.controller.node_id} ")


# Clocks


def test_clock_drift_lets_durations_pass_faster_or_slower(at: FaultHarness) -> None:
    at.inject("clock_drift", 4)
    (node,) = [each.node for each in at.brokers if each.node.drift_ppm]
    life = node.incarnation
    assert life is not None
    shown, begin_ns = life.clock.monotonic_ns(), at.simulator.now_ns
    fired: list[int] = []
    life.clock.call_later(100, lambda: fired.append(at.simulator.now_ns))
    at.run(200)
    wanted = 1 + node.drift_ppm / 1e6
    assert (life.clock.monotonic_ns() - shown) / 200e6 == pytest.approx(wanted, abs=1e-6)
    assert (fired[0] - begin_ns) / 100e6 == pytest.approx(1 / wanted, abs=1e-6)
    before = life.clock.monotonic_ns()
    at.run(6_000)
    assert node.drift_ppm == 0 and life.clock.monotonic_ns() > before


def test_wall_clock_jump_moves_one_wall_clock_and_no_other_clock(at: FaultHarness) -> None:
    clocks = {each.node_id: each.life.clock for each in at.brokers if each.life is not None}
    before = {number: (clock.wall_ms(), clock.monotonic_ms()) for number, clock in clocks.items()}
    at.inject("wall_clock_jump", 1)
    moved = [number for number, clock in clocks.items() if clock.wall_ms() != before[number][0]]
    assert len(moved) == 1
    assert all(clock.monotonic_ms() == before[number][1] for number, clock in clocks.items())


# Processes


def test_crash_any_ends_a_broker_that_comes_back(at: FaultHarness) -> None:
    before = lives(at)
    at.inject("crash_any")
    assert len(died(at, before)) == 1
    ends_up(at, before)


def test_crash_leader_ends_the_leader(at: FaultHarness) -> None:
    leaders = [state.leader for state in at.cluster.published.partitions.values()]
    before = lives(at)
    at.inject("crash_leader", 3)
    assert died(at, before)[0] in leaders
    ends_up(at, before)


def test_crash_controller_ends_the_controller(at: FaultHarness) -> None:
    controller, before = at.controller.node_id, lives(at)
    at.inject("crash_controller")
    assert died(at, before) == [controller]


def test_strike_ends_a_broker_at_a_port_call(at: FaultHarness) -> None:
    before = lives(at)
    at.inject("strike", STRIKE_SEED)
    assert died(at, before) == []
    at.until(lambda: bool(died(at, before)))
    assert at.noted("crash at port call ")


def test_stop_ends_a_broker_as_told(at: FaultHarness) -> None:
    before = lives(at)
    at.inject("stop")
    at.until(lambda: bool(died(at, before)))
    assert at.noted("stopped as requested")


def test_pause_lets_a_broker_stand_still(at: FaultHarness) -> None:
    at.inject("pause", 1)
    (still,) = [each for each in at.brokers if each.life is not None and each.life.paused]
    told = at.ask(still.node_id)
    at.run(10)
    assert told() is None
    at.until(lambda: still.life is None or not still.life.paused)


def test_rolling_restart_goes_through_all_brokers_one_by_one(at: FaultHarness) -> None:
    before = lives(at)
    at.inject("rolling_restart", 1)
    most = 0
    while any(each.incarnation == before[each.node_id] for each in at.brokers):
        at.run(20)
        most = max(most, sum(each.life is None for each in at.brokers))
    assert most == 1
    ends_up(at, before)


# Disks


def test_slow_disk_makes_appends_wait(at: FaultHarness) -> None:
    at.inject("slow_disk", 1)
    (slow,) = [each for each in at.brokers if each.logs.disks[0].slow]
    assert slow.broker is not None
    assert not slow.broker.replicas.directories[0].lane.is_fast
    at.until(lambda: not slow.logs.disks[0].slow)


# Scenarios


def test_last_replica_standing_leaves_one_member_and_ends_it(at: FaultHarness) -> None:
    at.cluster.budget.is_kept = False
    at.cluster.history.keeps_promises = False
    before = lives(at)
    at.play("last_replica_standing")
    at.until(lambda: bool(at.noted("push ")))
    at.until(lambda: bool(died(at, before)))
    assert at.noted("the last member dies")


def test_every_member_ends_loses_the_data_of_one_and_ends_the_others(at: FaultHarness) -> None:
    before = lives(at)
    at.play("every_member_ends")
    at.until(lambda: bool(at.noted("the power fails while all others end")))
    at.until(lambda: bool(died(at, before)))
    assert at.noted("is killed with all others") or at.noted("expire the session")


def test_unheard_restarts_restarts_a_member_while_its_leader_sees_no_controller(
    at: FaultHarness,
) -> None:
    for seed in range(10):
        if at.controller is not at.context().leader():
            break
        at.inject("crash_controller", seed)
        at.run(300)
        at.until(lambda: at.context().controller() is not None and not at.cluster.health())
    before = lives(at)
    at.play("unheard_restarts")
    at.until(lambda: at.cluster.store.watch_delay_ms() > 0)
    at.until(lambda: bool(died(at, before)))
    assert at.noted("restarts unheard of")
    at.until(lambda: at.cluster.store.watch_delay_ms() == 0)


def test_power_fails_everywhere_ends_all_brokers_at_one_instant(at: FaultHarness) -> None:
    at.cluster.budget.commits_synced = True
    at.cluster.budget.is_kept = False  # the topic of this cluster does not sync
    at.cluster.history.keeps_promises = False
    before = lives(at)
    at.play("power_fails_everywhere")
    at.until(lambda: len(died(at, before)) == len(at.brokers))
    deaths = at.noted("the power fails everywhere")
    assert len({line.split()[0] for line in deaths}) == 1
    assert len(deaths) == len(at.brokers)


def test_stop_together_stops_one_two_or_all_within_a_moment(at: FaultHarness) -> None:
    before = lives(at)
    at.play("stop_together")
    at.until(lambda: len(at.noted(" fault stop ")) >= 6, 60_000)
    counts = {line.rpartition(" of ")[2] for line in at.noted(" fault stop ")}
    assert len(counts) >= 2 and counts <= {"1", "2", "3"}
    assert died(at, before)


def test_unreadable_topic_holds_nonsense_for_a_while(at: FaultHarness) -> None:
    path = f"/brokers/topics/{TOPIC}"
    at.play("unreadable_topic")

    def data() -> bytes:
        node = at.cluster.store.tree.get(path)
        assert node is not None
        return node.data

    whole = data()
    at.until(lambda: data() == b"{")
    at.until(lambda: data() == whole)


def test_unreadable_partition_holds_nonsense_for_a_while(at: FaultHarness) -> None:
    at.play("unreadable_partition")
    at.until(lambda: bool(at.noted("/state holds nonsense")))
    path = at.noted("/state holds nonsense")[0].split(" holds ")[0].split()[-1]

    def data() -> bytes:
        node = at.cluster.store.tree.get(path)
        assert node is not None
        return node.data

    assert data() == b"{"
    at.until(lambda: data() != b"{")


def test_controller_lost_at_each_write_counts_on(at: FaultHarness) -> None:
    at.play("controller_lost_at_each_write")
    at.until(lambda: len(at.noted(" fault strike controller ")) >= 3, 60_000)
    mark = " fault strike controller "
    told = [line.rpartition(mark)[2].split() for line in at.noted(mark)]
    turns = [(int(words[3]), words[1] == "after") for words in told]
    for one, other in itertools.pairwise(turns):
        assert other == ((one[0], True) if not one[1] else (one[0] % 12 + 1, False))


# All of them


def test_every_kind_and_scenario_has_a_test_that_it_fires() -> None:
    names = [
        node.name.removeprefix("test_")
        for path in sorted(TESTS.glob("test_*fire*.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    every = sorted([*KINDS, *SCENARIOS], key=len, reverse=True)
    tested = {next((kind for kind in every if name.startswith(f"{kind}_")), "") for name in names}
    tested |= set(DISK_FAULTS)  # by one test with a parameter
    assert [kind for kind in every if kind not in tested] == []
