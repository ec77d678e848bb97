"""Connections under virtual time: order, cuts, resets, back-pressure, refusals."""

from __future__ import annotations

from collections.abc import Coroutine
from functools import partial
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
from tidelog.wire.frames import FrameReader


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


def split_reads(simulator: Simulator) -> None:
    """Both directions between the two nodes split bytes."""
    for names in (("node1", "node2"), ("node2", "node1")):
        simulator.network.link(*names).splits = True


def counted_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of an incomplete frame after each read."""
    reads: list[int] = []
    received = FrameReader.received

    def counted(reader: FrameReader, nbytes: int) -> list[memoryview]:
        frames = received(reader, nbytes)
        reads.append(reader.pending_bytes)
        return frames

    monkeypatch.setattr(FrameReader, "received", counted)
    return reads


def test_split_bytes_are_the_same_frames_in_order(
    simulator: Simulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = pair(simulator)
    near, far = connect(simulator, one, two, echo=True)
    split_reads(simulator)
    reads = counted_reads(monkeypatch)
    payloads = [bytes([number]) * (1 + number * number) for number in range(100)]
    for payload in payloads:
        in_node(simulator, one, partial(near.transport.send, [frame(payload)]))
    simulator.run_until(simulator.now_ns + S)
    assert far.frames == near.frames == payloads
    assert simulator.violations == []
    assert max(map(len, far.reads)) > 1
    assert any(0 < part_bytes < 4 for part_bytes in reads), "no read ends within a size"
    assert any(part_bytes > 4 for part_bytes in reads), "no read ends behind a size"


def test_a_connection_that_has_split_bytes_goes_on_when_its_link_is_whole_again(
    simulator: Simulator,
) -> None:
    one, two = pair(simulator)
    near, far = connect(simulator, one, two, echo=True)
    payloads = [bytes([number]) * 5_000 for number in range(60)]
    for number, payload in enumerate(payloads):
        for names in (("node1", "node2"), ("node2", "node1")):
            simulator.network.link(*names).splits = number % 3 == 1
        in_node(simulator, one, partial(near.transport.send, [frame(payload)]))
        simulator.run_until(simulator.now_ns + MS)
    simulator.run_until(simulator.now_ns + S)
    assert far.frames == near.frames == payloads
    assert simulator.violations == []


def test_a_connection_closed_with_half_a_send_sends_the_rest(simulator: Simulator) -> None:
    one, two = pair(simulator)
    split_reads(simulator)
    payloads = [bytes([number]) * 3_000 for number in range(20)]
    for number, payload in enumerate(payloads):
        near, far = connect(simulator, one, two, port=1_000 + number)

        def send_and_close(near: Recorder = near, payload: bytes = payload) -> None:
            near.transport.send([frame(payload)])
            near.transport.close("done")

        in_node(simulator, one, send_and_close)
        simulator.run_until(simulator.now_ns + S)
        assert (far.frames, near.lost, far.lost) == ([payload], ["done"], ["closed by the peer"])
    assert simulator.violations == []


def test_a_reset_within_a_frame_delivers_no_part_of_it(simulator: Simulator) -> None:
    one, two = pair(simulator)
    near, far = connect(simulator, one, two)
    split_reads(simulator)

    def send_and_abort() -> None:
        for number in range(10):
            near.transport.send([frame(bytes([number]) * 3_000)])
        near.transport.abort("broken")

    in_node(simulator, one, send_and_abort)
    simulator.run_until(simulator.now_ns + S)
    assert far.frames == [bytes([number]) * 3_000 for number in range(len(far.frames))]
    assert len(far.frames) < 10
    assert far.lost == ["connection reset by the peer"]
    assert simulator.violations == []


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
    assert f"more than the {MAX_FRAME_BYTES} allowed" in far.lost[0]
    assert near.lost == ["closed by the peer"]
    assert simulator.violations == []


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
    assert (held.frames, far.frames, budget.waiting) == ([large], [b"a"], 1)
    in_node(simulator, two, lambda: held.transport.handled(len(large), 0))
    simulator.run_until(simulator.now_ns + S)
    assert (far.frames, budget.waiting, budget.used_bytes) == ([b"a", large, b"b"], 0, 200_000)
    in_node(simulator, two, lambda: far.transport.close("done"))
    assert budget.used_bytes == 0
