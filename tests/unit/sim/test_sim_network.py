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
from tidelog.sim.world import World


def test_frames_arrive_whole_and_in_order_and_some_share_a_read(world: World) -> None:
    one, two = pair(world)
    near, far = connect(world, one, two)
    payloads = [str(number).encode() * (number + 1) for number in range(100)]

    def send() -> None:
        for payload in payloads:
            near.transport.send([len(payload).to_bytes(4, "big"), payload])

    in_node(world, one, send)
    world.run_until(world.now_ns + S)
    assert far.frames == payloads
    assert 1 < len(far.reads) < 100


def test_answers_given_while_frames_are_received_leave_afterwards(world: World) -> None:
    one, two = pair(world)
    near, far = connect(world, one, two, echo=True)
    in_node(world, one, lambda: near.transport.send([frame(b"a"), frame(b"b")]))
    world.run_until(world.now_ns + S)
    assert far.frames == near.frames == [b"a", b"b"]


def test_a_cut_direction_holds_frames_until_it_is_healed(world: World) -> None:
    one, two = pair(world)
    near, far = connect(world, one, two, echo=True)
    world.network.cut("node1", "node2")
    in_node(world, one, lambda: near.transport.send([frame(b"held")]))
    in_node(world, one, lambda: near.transport.send([frame(b"too")]))
    world.run_until(world.now_ns + S)
    assert far.frames == []
    world.network.heal("node1", "node2")
    world.run_until(world.now_ns + S)
    assert near.frames == [b"held", b"too"]


def test_a_one_way_cut_lets_the_other_direction_pass(world: World) -> None:
    one, two = pair(world)
    near, far = connect(world, one, two)
    world.network.cut("node1", "node2")
    in_node(world, two, lambda: far.transport.send([frame(b"hello")]))
    world.run_until(world.now_ns + S)
    assert near.frames == [b"hello"]


def test_a_connection_cut_for_long_is_given_up_and_the_peer_hears_when_healed(
    world: World,
) -> None:
    one, two = pair(world)
    near, far = connect(world, one, two)
    world.network.cut("node1", "node2")
    in_node(world, one, lambda: near.transport.send([frame(b"lost")]))
    world.run_until(world.now_ns + 60 * S)
    assert near.lost == ["connection timed out"]
    assert far.lost == []
    world.network.heal_everything()
    world.run_until(world.now_ns + S)
    assert far.lost == ["connection reset by the peer"]
    assert far.frames == []


def test_a_killed_process_resets_its_connections(world: World) -> None:
    one, two = pair(world)
    near, far = connect(world, one, two)
    two.incarnation.die(Loss.NONE, "test")
    world.run_until(world.now_ns + 100 * MS)
    assert near.lost == ["connection reset by the peer"]
    assert far.lost == []
    with pytest.raises(NodeDead):
        far.transport.send([frame(b"x")])


def test_after_a_power_loss_the_peer_may_hear_late(world: World) -> None:
    one, two = pair(world)
    near, _ = connect(world, one, two)
    two.incarnation.die(Loss.UNSYNCED, "test")
    world.run_until(world.now_ns + 6 * S)
    assert near.lost == ["connection reset by the peer"]


def test_close_sends_what_is_queued_and_tells_both_sides_once(world: World) -> None:
    one, two = pair(world)
    near, far = connect(world, one, two)

    def send_and_close() -> None:
        near.transport.send([frame(b"last words")])
        near.transport.close("done")
        near.transport.close("again")

    in_node(world, one, send_and_close)
    world.run_until(world.now_ns + S)
    assert far.frames == [b"last words"]
    assert near.lost == ["done"]
    assert far.lost == ["closed by the peer"]


def test_pausing_reading_holds_frames_and_makes_the_sender_queue(world: World) -> None:
    one, two = pair(world)
    near, far = connect(world, one, two)
    in_node(world, two, far.transport.pause_reading)
    big = frame(bytes(MAX_FRAME_BYTES - 4))

    def send() -> None:
        for _ in range(20):
            near.transport.send([big])

    in_node(world, one, send)
    world.run_until(world.now_ns + S)
    assert far.frames == []
    assert near.transport.queued_bytes > 16 * MAX_FRAME_BYTES
    assert near.drained == 0
    in_node(world, two, far.transport.resume_reading)
    world.run_until(world.now_ns + S)
    assert len(far.frames) == 20
    assert near.transport.queued_bytes == 0
    assert near.drained == 1


def test_a_frame_over_the_limit_ends_the_connection(world: World) -> None:
    one, two = pair(world)
    near, far = connect(world, one, two)
    in_node(world, one, lambda: near.transport.send([frame(bytes(MAX_FRAME_BYTES + 1))]))
    world.run_until(world.now_ns + S)
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


def test_connecting_where_nobody_listens_is_refused(world: World) -> None:
    one, _ = pair(world)
    answer = run(world, one, dial(one, "node2"))
    assert answer == "node2:9092: connection refused"
    assert world.now_ns < 100 * MS


def test_connecting_through_a_cut_or_to_a_dead_host_times_out(world: World) -> None:
    one, two = pair(world)
    world.network.cut("node2", "node1")
    answer = run(world, one, dial(one, "node2"))
    assert answer == "node2:9092: no connection within 500 ms"
    world.network.heal_everything()
    two.incarnation.die(Loss.UNSYNCED, "test")
    assert "no connection within" in run(world, one, dial(one, "node2"))


def test_connecting_to_a_paused_node_succeeds_and_its_frames_wait(world: World) -> None:
    one, two = pair(world)
    connect(world, one, two)
    two.incarnation.pause()
    transport = run(world, one, dial(one, "node2"))
    in_node(world, one, lambda: transport.send([frame(b"wait")]))
    world.run_until(world.now_ns + S)
    two.incarnation.resume()
    world.run_until(world.now_ns + S)
    assert world.violations == []


def test_a_port_is_taken_once_and_free_after_death(world: World) -> None:
    node = world.add_node(1, "node1")
    first = Running(node)

    async def listen(running: Running) -> int:
        listener = await running.ports.network.listen("node1", 9092, Recorder, 1000)
        return listener.port

    assert run(world, first, listen(first)) == 9092
    with pytest.raises(OSError, match="in use"):
        run(world, first, listen(first))
    first.incarnation.die(Loss.NONE, "test")
    again = Running(node)
    assert run(world, again, listen(again)) == 9092


def test_a_delay_spike_slows_one_direction(world: World) -> None:
    one, two = pair(world)
    near, far = connect(world, one, two)
    world.network.slow_down("node1", "node2", 300 * MS, 0)
    in_node(world, one, lambda: near.transport.send([frame(b"slow")]))
    world.run_until(world.now_ns + 299 * MS)
    assert far.frames == []
    world.run_until(world.now_ns + 50 * MS)
    assert far.frames == [b"slow"]


def test_reset_connections_tells_both_sides(world: World) -> None:
    one, two = pair(world)
    near, far = connect(world, one, two)
    assert world.network.reset_connections(one.incarnation) == 1
    world.run_until(world.now_ns + S)
    assert near.lost == ["connection reset"]
    assert far.lost == ["connection reset by the peer"]


def test_a_large_frame_waits_for_room_in_the_budget_and_keeps_its_place(world: World) -> None:
    one, two = pair(world)
    budget = ReceiveBudget(300_000, 300_000, two.ports.clock, lambda line: None)
    near, far = connect(world, one, two, budget=budget)
    other, held = connect(world, one, two, port=9093, budget=budget)
    large = bytes(200_000)  # of API key 0
    in_node(world, one, lambda: other.transport.send([frame(large)]))
    world.run_until(world.now_ns + S)
    in_node(world, one, lambda: near.transport.send([frame(b"a"), frame(large)]))
    in_node(world, one, lambda: near.transport.send([frame(b"b")]))
    world.run_until(world.now_ns + S)
    assert (held.frames, far.frames, budget.waiting) == ([large], [], 1)
    in_node(world, two, lambda: held.transport.handled(len(large), 0))
    world.run_until(world.now_ns + S)
    assert (far.frames, budget.waiting, budget.used_bytes) == ([b"a", large, b"b"], 0, 200_000)
    in_node(world, two, lambda: far.transport.close("done"))
    assert budget.used_bytes == 0
