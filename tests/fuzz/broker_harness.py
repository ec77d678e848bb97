"""A whole broker in the simulator for clients that send what no client should: one connection each.

The broker, its log and its store are those of the simulator; time is virtual, so that waiting costs
nothing. After each exchange the broker must serve a healthy client, no defect may have been traced,
and every answer must be one that the version which was asked has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.support.requests.answers import check_answer
from tests.support.requests.by_version import SERVED
from tests.support.sim import (
    MS,
    Recorder,
    Running,
    S,
    run,
)

from tidelog.core.errors import ProtocolError
from tidelog.core.ports import FrameHandler, Transport
from tidelog.sim.broker_settings import PORT, BrokerSettings, host_of
from tidelog.sim.sim_cluster import SimCluster
from tidelog.sim.simulator import Simulator
from tidelog.wire import codec
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.heartbeat import HeartbeatRequest
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog.wire.registry import (
    CREATE_TOPICS,
    FIND_COORDINATOR,
    HEARTBEAT,
    LIST_OFFSETS,
)

#: Has two partitions.
TOPIC = "abused"
#: Nothing is written to it by hostile requests that do not name it.
WITNESS = "witness"
#: How long answers are waited for, in virtual time; longer than the broker's own timeouts.
PATIENCE_NS = 4 * S
_MAX_FRAME_BYTES = 16 << 20
_PROPERTIES = {
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "log.cleaner.backoff.ms": "500",
}


class BrokerHarness:
    """One broker, two topics, and clients."""

    def __init__(self, seed: int = 1) -> None:
        self.world = Simulator(seed)
        cluster = self.cluster = SimCluster(self.world, 1, BrokerSettings(properties=_PROPERTIES))
        # The checkers of replicas look at several of them; here is one, and its defects count.
        self.world.scheduler.after_event = None
        cluster.start()
        self._run_while(lambda: bool(cluster.health()), "the broker's start")
        self._client = Running(self.world.add_node(100, "client"))
        self.answers = 0
        self.topic_id = self._topics()

    def close(self) -> None:
        """End everything."""
        self.world.close()

    def _run_while(self, unfinished: Any, what: str) -> None:
        assert self.world.run_while(unfinished, self.world.now_ns + 60 * S), what

    def _topics(self) -> bytes:
        """Make both topics and that of offsets; returns the id of the first one."""
        wanted = [CreatableTopic(name, 2, 1) for name in (TOPIC, WITNESS)]
        topic_id = b""
        for _ in range(20):  # the controller and the coordinator need some moments
            if not topic_id:
                made = self.ask(CREATE_TOPICS, 7, CreateTopicsRequest(wanted, timeout_ms=5_000))
                if [topic.error_code for topic in made.topics] == [0, 0]:
                    topic_id = bytes(made.topics[0].topic_id)
            found = self.ask(FIND_COORDINATOR, 3, FindCoordinatorRequest("g"))
            if topic_id and found.error_code == 0 and not self.cluster.health():
                self.world.run_until(self.world.now_ns + 500 * MS)
                return topic_id
            self.world.run_until(self.world.now_ns + 500 * MS)
        raise AssertionError(f"{made}, {found}, {self.cluster.health()}")

    # Clients.

    def ask(self, api_key: int, version: int, message: Any) -> Any:
        """A request over a connection of its own; it must be answered."""
        frame = b"".join(map(bytes, codec.encode_request(api_key, version, 1, "tidy", message)))
        recorder = self._connect()
        self._send(recorder, [frame])
        self._run_while(lambda: not recorder.frames and not recorder.lost, "an answer")
        assert recorder.frames, f"no answer: {recorder.lost}"
        answer = recorder.frames[0]
        self.end(recorder)
        return codec.decode_response(api_key, version, memoryview(answer))[1]

    def begin(self, frames: Sequence[bytes]) -> Exchange:
        """Send frames (without sizes) over a connection of their own."""
        recorder = self._connect()
        self._send(recorder, [len(frame).to_bytes(4, "big") + frame for frame in frames])
        return Exchange(self, recorder, frames)

    def exchange(self, frames: Sequence[bytes]) -> list[Any]:
        """Send frames over one connection and wait; the answers that came, all looked at. Raises
        AssertionError for whatever should not have happened."""
        exchange = self.begin(frames)
        exchange.wait(PATIENCE_NS)
        exchange.end()
        self.check()
        answers = exchange.new_answers()
        self.healthy()
        return answers

    def healthy(self) -> None:
        """Another client is served as if nothing had been."""
        asked = [ListOffsetsPartition(0, timestamp=-1)]
        request = ListOffsetsRequest(-1, topics=[ListOffsetsTopic(WITNESS, asked)])
        answer = self.ask(LIST_OFFSETS, 7, request).topics[0].partitions[0]
        assert answer.error_code == 0, f"the witness is not served: {answer}"
        beat = self.ask(HEARTBEAT, 4, HeartbeatRequest("nobody", 1, "m"))
        assert beat.error_code == 25, f"the coordinator does not serve: {beat}"
        self.check()

    def check(self) -> None:
        """No defect, no halt, no broken invariant so far."""
        assert not self.world.violations, self.world.violations[0]
        assert self.cluster.brokers[1].life is not None, "the broker has ended"

    # Connections.

    def _connect(self) -> Recorder:
        opened: list[Recorder] = []

        def handler(transport: Transport) -> FrameHandler:
            opened.append(Recorder(transport))
            return opened[0]

        async def dial() -> None:
            network = self._client.ports.network
            await network.connect(host_of(1), PORT, handler, 1000, _MAX_FRAME_BYTES)

        run(self.world, self._client, dial())
        return opened[0]

    def _send(self, recorder: Recorder, frames: Sequence[bytes]) -> None:
        def send() -> None:
            for frame in frames:
                recorder.transport.send([frame])

        self.world.scheduler.after(0, self._client.incarnation, send)

    def end(self, recorder: Recorder) -> None:
        if not recorder.lost:
            close = recorder.transport.close
            self.world.scheduler.after(0, self._client.incarnation, lambda: close("done"))
            self.world.run_until(self.world.now_ns + 20 * MS)


class Exchange:
    """What one client sent, and the answers to it."""

    def __init__(self, harness: BrokerHarness, recorder: Recorder, frames: Sequence[bytes]) -> None:
        self._harness = harness
        self._recorder = recorder
        self._asked = list(_answerable(frames))
        self._wanted = len(frames)
        self._taken = 0

    def wait(self, patience_ns: int) -> None:
        """Until all is answered, the connection is closed, or so much virtual time has gone by."""
        recorder, world = self._recorder, self._harness.world
        world.run_while(
            lambda: len(recorder.frames) < self._wanted and not recorder.lost,
            world.now_ns + patience_ns,
        )

    def new_answers(self) -> list[Any]:
        """The answers that came since, decoded, if they are as they may be."""
        frames = self._recorder.frames
        assert len(frames) <= len(self._asked), "more answers than requests"
        found = [
            check_answer(*self._asked[number], frames[number])
            for number in range(self._taken, len(frames))
        ]
        self._taken = len(frames)
        self._harness.answers += len(found)
        return found

    def end(self) -> None:
        """Close the connection."""
        self._harness.end(self._recorder)


def _answerable(frames: Sequence[bytes]) -> Iterator[tuple[codec.RequestHeader, Any]]:
    """The requests that a broker answers, up to the first one for which it closes."""
    for frame in frames:
        try:
            header, offset = codec.decode_header(memoryview(frame))
        except codec.UnsupportedVersion as error:
            header = error.header
            if header.api_key != 18:
                return
            yield header._replace(api_version=0), None
            continue
        except ProtocolError:
            return
        card = SERVED.get(header.api_key)
        if card is None or not card.min_version <= header.api_version <= card.max_version:
            return
        try:
            message = codec.decode_body(header, memoryview(frame), offset)
        except ProtocolError:
            return
        if header.api_key == 0 and message.acks == 0:
            continue
        yield header, message
