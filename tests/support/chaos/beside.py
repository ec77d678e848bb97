"""Clients beside the faults of the chaos that ask for more than they should, and what must hold.

One thread does one act after the other, in an order that the seed draws: clients that read no
responses, crowds that take all connections, records without timestamps, fetches that want more
than an old segment has, topics that are created again under their name, text that is no UTF-8.
What was acknowledged must hold at once. An act that a fault cuts short proves nothing. So each act
is done once more when the faults are over, and must then come to its end.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress

from tests.support.cluster.raw_connections import request
from tests.support.cluster.values import write_values

from tidelog.client.bootstrap import parse_bootstrap
from tidelog.client.groups import FetchedOffset
from tidelog.client.steps import NotSent
from tidelog.core.errors import ErrorCode, KafkaError, TidelogError
from tidelog.core.types import TopicPartition
from tidelog.records.batch import iter_batches
from tidelog.runtime.blocking import BlockingClient
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.wire.registry import FETCH, METADATA

MAX_CONNECTIONS = 120
#: What the brokers of the chaos need for these acts.
CONFIG = {
    "max.connections": str(MAX_CONNECTIONS),
    "queued.max.response.bytes": str(8 * 1024 * 1024),
    "log.retention.check.interval.ms": "500",
}
UNTIMED = TopicPartition("beside-untimed", 0)
ROLLED = TopicPartition("beside-rolled", 0)
AGAIN = TopicPartition("beside-again", 0)
TOPICS = {
    UNTIMED.topic: {"retention.ms": "60000", "segment.bytes": "20000"},
    ROLLED.topic: {"segment.bytes": "2000"},
}
#: A record without a timestamp is younger than this for certain: half of its retention.
YOUNG_S = 30.0
#: No call takes longer on a machine that is busy; longer than any fault of the schedule.
CALL_MS = 90_000
#: How long a broker may take to show a topic, which may be down meanwhile.
SHOWN_MS = 20_000
#: A broker that accepts no connection for so long is down.
DOWN_MS = 3_000
#: A fetch that waits so long has waited for bytes that cannot come.
FETCH_WAIT_MS = 45_000
ABOVE = 30
READERS, FETCHES = 8, 60
BAD_TEXT = (b"\xff\xfe\xfd\xfc", b"\xed\xa0\x80a", b"a\xc3(\x80")
_NAME = b"NAME"
_SOCKET_S = 10.0


class Wrong(Exception):
    """Something that was acknowledged does not hold."""


class Beside:
    """The acts of one run, in a thread of their own until `stop`."""

    def __init__(self, bootstrap: str, topic: str, seed: int, troubles: list[str]) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._chance = random.Random(f"beside the chaos {seed}")
        self._troubles = troubles
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="beside", daemon=True)
        self._client = BlockingClient(bootstrap, "beside", CALL_MS)
        self._number = 0
        #: Offsets of records without timestamps, with the time when each was sent.
        self._untimed: list[tuple[int, float]] = []
        self.acts: dict[str, Callable[[], None]] = {
            "unread responses": self.read_nothing,
            "crowd": self.take_all_connections,
            "untimed records": self.write_untimed,
            "segment ends": self.fetch_old_segments,
            "recreated topic": self.create_again,
            "no UTF-8": self.send_no_utf_8,
        }
        #: How often each act came to its end, and was cut short.
        self.done: Counter[str] = Counter()
        self.cut_short: Counter[str] = Counter()
        #: What cut each act short the last time.
        self.why: dict[str, str] = {}

    def begin(self) -> None:
        """Create the topics of the acts, and begin."""
        for topic, configs in TOPICS.items():
            self._client.create_topic(topic, 1, 3, {"min.insync.replicas": "2", **configs})
            self._client.await_topic(topic)
        self._ensure_topic()
        self._thread.start()

    def stop(self) -> None:
        """Return when the act under way has ended."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def do_each(self) -> None:
        """Do each act once, without faults: none may be cut short."""
        for name, act in self.acts.items():
            try:
                act()
            except (TidelogError, OSError, Wrong) as error:
                self._troubles.append(f"beside: {name}, when the faults were over: {error!r}")
            else:
                self.done[name] += 1
        self._client.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            for name in self._chance.sample(list(self.acts), len(self.acts)):
                if self._stopping.wait(self._chance.uniform(0.0, 0.5)):
                    return
                try:
                    self.acts[name]()
                    self.done[name] += 1
                except (TidelogError, OSError) as error:
                    self.cut_short[name] += 1
                    self.why[name] = f", at last by {error}"
                except Wrong as wrong:
                    self._troubles.append(f"beside: {name}: {wrong}")

    # connections

    def _connected(self, port: int) -> socket.socket:
        return socket.create_connection(("127.0.0.1", port), timeout=_SOCKET_S)

    def _some_port(self) -> int:
        return self._chance.choice(parse_bootstrap(self._bootstrap)).port

    def read_nothing(self) -> None:
        """Ask for much again and again and read nothing; the broker serves others meanwhile."""
        wanted = FetchPartition(partition=0, fetch_offset=0)
        wanted.partition_max_bytes = 1024 * 1024
        message = FetchRequest(
            replica_id=-1, max_wait_ms=100, min_bytes=1, max_bytes=1024 * 1024,
            topics=[FetchTopic(topic=self._topic, partitions=[wanted])],
        )  # fmt: skip
        frames = request(FETCH, 11, message) * FETCHES
        port = self._some_port()
        with ExitStack() as held:
            for _ in range(READERS):
                reader = held.enter_context(self._connected(port))
                _reset_at_end(reader)
                reader.sendall(frames)
            self._stopping.wait(self._chance.uniform(0.2, 1.0))
            self._client.list_offsets({TopicPartition(self._topic, 0): -1})

    def take_all_connections(self) -> None:
        """Take more connections than there are, for a moment."""
        port = self._some_port()
        with ExitStack() as held:
            for _ in range(MAX_CONNECTIONS + ABOVE):
                _reset_at_end(held.enter_context(self._connected(port)))
            self._stopping.wait(self._chance.uniform(0.2, 1.5))

    def send_no_utf_8(self) -> None:
        """Ask for a topic whose name is no UTF-8: an answer comes, the connection stays (L3)."""
        frame = request(METADATA, 1, MetadataRequest([MetadataRequestTopic(name=_NAME.decode())]))
        bad = frame.replace(_NAME, self._chance.choice(BAD_TEXT))
        with self._connected(self._some_port()) as connection:
            for _ in range(2):
                connection.sendall(bad)
                (size,) = struct.unpack(">i", _exactly(connection, 4))
                _exactly(connection, size)

    # records

    def write_untimed(self) -> None:
        """Write records without timestamps; those written lately are not gone (D21)."""
        sent_s = time.monotonic()
        self._number += 1
        value = b"%d " % self._number + bytes(3_000)
        offset = write_values(self._bootstrap, UNTIMED, [value], CALL_MS)
        self._untimed.append((offset, sent_s))
        start = self._client.list_offsets({UNTIMED: -2})[UNTIMED].offset
        young = [each for each, at_s in self._untimed if time.monotonic() - at_s < YOUNG_S]
        if young and start > young[0]:
            raise Wrong(f"{UNTIMED} begins at {start}; offset {young[0]} was written lately")

    def fetch_old_segments(self) -> None:
        """Ask an older segment for more than it has: it can have no more (V61)."""
        for _ in range(3):
            write_values(self._bootstrap, ROLLED, [bytes(1_500)], CALL_MS)
        end = self._client.list_offsets({ROLLED: -1})[ROLLED].offset
        began_s = time.monotonic()
        fetched = self._client.fetch(
            ROLLED, end - 3, min_bytes=1024 * 1024, max_wait_ms=FETCH_WAIT_MS
        )
        waited_ms = (time.monotonic() - began_s) * 1000
        if not any(True for _ in iter_batches(fetched.records)):
            raise Wrong(f"{ROLLED}: no record at {end - 3}, it ends at {end}")
        if self._stopping.is_set() and waited_ms >= FETCH_WAIT_MS:
            raise Wrong(f"a fetch of an old segment waited {waited_ms:.0f} ms for more of it")

    # topics

    def create_again(self) -> None:
        """Commit offsets, create the topic again: the group has none for the new one (G6)."""
        self._number += 1
        group = f"beside-{self._number}"
        self._ensure_topic()
        self._client.commit(group, {AGAIN: FetchedOffset(self._number)})
        before = self._client.committed(group, [AGAIN])[AGAIN].offset
        if before != self._number:
            raise Wrong(f"group {group} committed {self._number} and got {before}")
        former = self._topic_id(self._client)
        self._client.delete_topic(AGAIN.topic)
        self._ensure_topic()
        topic_id = self._await_topic(self._client, lambda found: found not in (former, b""))
        for address in parse_bootstrap(self._bootstrap):
            # A broker that runs has heard of the deletion once it shows the new topic.
            with suppress(NotSent), BlockingClient(str(address), "beside", DOWN_MS) as client:
                self._await_topic(client, lambda found: found == topic_id)
        after = self._client.committed(group, [AGAIN]).get(AGAIN, FetchedOffset(-1)).offset
        if after != -1:
            raise Wrong(f"group {group} got {after} for {AGAIN}, which was created again")

    def _ensure_topic(self) -> None:
        """Create the topic, unless it is there: an earlier act may have been cut short."""
        try:
            self._client.create_topic(AGAIN.topic, 1, 2)  # one broker may be down
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    def _topic_id(self, client: BlockingClient) -> bytes:
        topic = client.metadata([AGAIN.topic]).topics.get(AGAIN.topic)
        return b"" if topic is None or topic.error is not ErrorCode.NONE else topic.topic_id

    def _await_topic(self, client: BlockingClient, is_shown: Callable[[bytes], bool]) -> bytes:
        """Return the topic's id, as soon as it is what is wanted."""
        for _ in range(SHOWN_MS // 100):
            found = self._topic_id(client)
            if is_shown(found):
                return found
            time.sleep(0.1)  # until the broker is asked again
        raise TimeoutError(f"{AGAIN.topic} is not shown as it is now")


def _reset_at_end(connection: socket.socket) -> None:
    """Let the end of a connection be a reset: what is unread is dropped."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _exactly(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        data = connection.recv(size - len(received))
        if not data:
            raise ConnectionResetError(f"closed after {len(received)} of {size} bytes")
        received += data
    return received
