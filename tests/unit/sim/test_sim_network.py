"""Connections under virtual time: order, cuts, resets, back-pressure, refusals."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest
from tests.support.sim import (
    MAX_FRAME_BYTES,
    MS,
    Recorder,
    Running,
    S,
    connect,
    frame,
    in_node,
    pair,
    run,
)

from tidelog.core.errors import ConnectionLost, NodeDead
from tidelog.core.receive_budget import ReceiveBudget
from tidelog.sim.disk import Loss
from tidelog.sim.simulator import Simulator


def test_frames_arrive_whole_and_in_order_and_some_share_a_read(simulator: Simulator) -> None:
    one, two = pair(simulator)
    near, far = connect(simulator, one, two)
    payloads = [str(number).encode() * (number + 1) for number in range(100)]

    def send() -> None:
        for payload in payloads:
            near.transport.send([len(payload).to_bytes(4, "big"), payload])

    in_node(simulator, one, send)
    simulator.run_until(simulator.now_ns + S)
    assert far.frames == payloads
    assert 1 < len(far.reads) < 100


def test_answers_given_while_frames_are_received_leave_afterwards(simulator: Simulator) -> None:
    one, two = pair(simulator)
    near, far = connect(simulator, one, two, echo=True)
    in_node(simulator, one, lambda: near.transport.send([frame(b"a"), frame(b"b")]))
    simulator.run_until(simulator.now_ns + S)
    assert far.frames == near.frames == [b"a", b"b"]


def test_a_cut_direction_holds_frames_until_it_is_healed(simulator: Simulator) -> None:
    one, two = pair(simulator)
    near, far = connect(simulator, one, two, echo=True)
    simulator.network.cut("node1", "node2")
    in_node(simulator, one, lambda: near.transport.send([frame(b"held")]))
    in_node(simulator, one, lambda: near.transport.send([frame(b"too")]))
    simulator.run_until(simulator.now_ns + S)
    assert far.frames == []
    simulator.network.heal("node1", "node2")
    simulator.run_until(simulator.now_ns + S)
    assert near.frames == [b"held", b"too"]


def test_a_one_way_cut_lets_the_other_direction_pass(simulator: Simulator) -> None:
    one, two = pair(simulator)
    near, far = connect(simulator, one, two)
    simulator.network.cut("node1", "node2")
    in_node(simulator, two, lambda: far.transport.send([frame(b"hello")]))
    simulator.run_until(simulator.now_ns + S)
    assert near.frames == [b"hello"]


def test_a_connection_cut_for_long_is_given_up_and_the_peer_hears_when_healed(
    simulator: Simulator,
) -> None:
    one, two = pair(simulator)
    near, far = connect(simulator, one, two)
    simulator.network.cut("node1", "node2")
    in_node(simulator, one, lambda: near.transport.send([frame(b"lost")]))
    simulator.run_until(simulator.now_ns + 60 * S)
    assert near.lost == ["connection timed out"]
    assert far.lost == []
    simulator.network.heal_everything()
    simulator.run_until(simulator.now_ns + S)
    assert far.lost == ["connection reset by the peer"]
    assert far.frames == []


def test_a_killed_process_resets_its_connections(simulator: Simulator) -> None:
    one, two = pair(simulator)
    near, far = connect(simulator, one, two)
    two.incarnation.die(Loss.NONE, "test")
    simulator.run_until(simulator.now_ns + 100 * MS)
    assert near.lost == ["connection reset by the peer"]
    assert far.lost == []
    with pytest.raises(NodeDead):
        far.transport.send([frame(b"x")])


def test_after_a_power_loss_the_peer_may_hear_late(simulator: Simulator) -> None:
    one, two = pair(simulator)
    near, _ = connect(simulator, one, two)
    two.incarnation.die(Loss.UNSYNCED, "test")
    simulator.run_until(simulator.now_ns + 6 * S)
    assert near.lost == ["connection reset by the peer"]


def test_close_sends_what_is_queued_and_tells_both_sides_once(simulator: Simulator) -> None:
    one, two = pair(simulator)
    near, far = connect(simulator, one, two)

    def send_and_close() -> None:
        near.transport.send([frame(b"last words")])
        near.transport.close("done")
        near.transport.close("again")

    in_node(simulator, one, send_and_close)
    simulator.run_until(simulator.now_ns + S)
    assert far.frames == [b"last words"]
    assert near.lost == ["done"]
    assert far.lost == ["closed by the peer"]


def test_pausing_reading_holds_frames_and_makes_the_sender_queue(simulator: Simulator) -> None:
    one, two = pair(simulator)
    near, far = connect(simulator, one, two)
    in_node(simulator, two, far.transport.pause_reading)
    big = frame(bytes(MAX_FRAME_BYTES - 4))

    def send() -> None:
        for _ in range(20):
            near.transport.send([big])

    in_node(simulator, one, send)
    simulator.run_until(simulator.now_ns + S)
    assert far.frames == []
    assert near.transport.queued_bytes > 16 * MAX_FRAME_BYTES
    assert near.taken_bytes == 0
    queued_bytes = near.transport.queued_bytes
    in_node(simulator, two, far.transport.resume_reading)
    simulator.run_until(simulator.now_ns + S)
    assert len(far.frames) == 20
    assert near.transport.queued_bytes == 0
    assert near.taken_bytes == queued_bytes


def test_a_frame_over_the_limit_ends_the_connection(simulator: Simulator) -> None:
    one, two = pair(simulator)
    near, far = connect(simulator, one, two)
    in_node(simulator, one, lambda: near.transport.send([frame(bytes(MAX_FRAME_BYTES + 1))]))
    simulator.run_until(simulator.now_ns + S)
    assert far.frames == []
    assert "at most" in far.lost[0]
    assert near.lost == ["connection reset by the peer"]


def dial(client: Running, host: str, timeout_ms: int = 500) -> Coroutine[Any, Any, object]:
    async def attempt() -> object:
        try:
            return await client.ports.network.connect(host, 9092, Recorder, timeout_ms, 1000)
        except ConnectionLost as error:
            return str(error)

    return attempt()


def test_connecting_where_nobody_listens_is_refused(simulator: Simulator) -> None:
    one, _ = pair(simulator)
    answer = run(simulator, one, dial(one, "node2"))
    assert answer == "node2:9092: connection refused"
    assert simulator.now_ns < 100 * MS


def test_connecting_through_a_cut_or_to_a_dead_host_times_out(simulator: Simulator) -> None:
    one, two = pair(simulator)
    simulator.network.cut("node2", "node1")
    answer = run(simulator, one, dial(one, "node2"))
    assert answer == "node2:9092: no connection within 500 ms"
    simulator.network.heal_everything()
    two.incarnation.die(Loss.UNSYNCED, "test")
    assert "no connection within" in run(simulator, one, dial(one, "node2"))


def test_connecting_to_a_paused_node_succeeds_and_its_frames_wait(simulator: Simulator) -> None:
    one, two = pair(simulator)
    connect(simulator, one, two)
    two.incarnation.pause()
    transport = run(simulator, one, dial(one, "node2"))
    in_node(simulator, one, lambda: transport.send([frame(b"wait")]))
    simulator.run_until(simulator.now_ns + S)
    two.incarnation.resume()
    simulator.run_until(simulator.now_ns + S)
    assert simulator.violations == []


def test_a_port_is_taken_once_and_free_after_death(simulator: Simulator) -> None:
    node = simulator.add_node(1, "node1")
    first = Running(node)

    async def listen(running: Running) -> int:
        listener = await running.ports.network.listen("node1", 9092, Recorder, 1000)
        return listener.port

    assert run(simulator, first, listen(first)) == 9092
    with pytest.raises(OSError, match="in use"):
        run(simulator, first, listen(first))
    first.incarnation.die(Loss.NONE, "test")
    again = Running(node)
    assert run(simulator, again, listen(again)) == 9092


def test_a_delay_spike_slows_one_direction(simulator: Simulator) -> None:
    one, two = pair(simulator)
    near, far = connect(simulator, one, two)
    simulator.network.slow_down("node1", "node2", 300 * MS, 0)
    in_node(simulator, one, lambda: near.transport.send([frame(b"slow")]))
    simulator.run_until(simulator.now_ns + 299 * MS)
    assert far.frames == []
    simulator.run_until(simulator.now_ns + 50 * MS)
    assert far.frames == [b"slow"]


def test_reset_connections_tells_both_sides(simulator: Simulator) -> None:
    one, two = pair(simulator)
    near, far = connect(simulator, one, two)
    assert simulator.network.reset_connections(one.incarnation) == 1
    simulator.run_until(simulator.now_ns + S)
    assert near.lost == ["connection reset"]
    assert far.lost == ["connection reset by the peer"]


def test_a_large_frame_waits_for_room_in_the_budget_and_keeps_its_place(
    simulator: Simulator,
) -> None:
    one, two = pair(simulator)
    budget = ReceiveBudget(300_000, 300_000, two.ports.clock, lambda line: None)
    near, far = connect(simulator, one, two, budget=budget)
    other, held = connect(simulator, one, two, port=9093, budget=budget)
    large = bytes(200_000)  # of API key 0
    in_node(simulator, one, lambda: other.transport.send([frame(large)]))
    simulator.run_until(simulator.now_ns + S)
    in_node(simulator, one, lambda: near.transport.send([frame(b"a"), frame(large)]))
    in_node(simulator, one, lambda: near.transport.send([frame(b"b")]))
    simulator.run_until(simulator.now_ns + S)
    assert (held.frames, far.frames, budget.waiting) == ([large], [], 1)
    in_node(simulator, two, lambda: held.transport.handled(len(large), 0))
    simulator.run_until(simulator.now_ns + S)
    assert (far.frames, budget.waiting, budget.used_bytes) == ([b"a", large, b"b"], 0, 200_000)
    in_node(simulator, two, lambda: far.transport.close("done"))
    assert budget.used_bytes == 0
