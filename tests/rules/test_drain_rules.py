"""Rules D12 and D15: drains and balancing of log directories (also tests/cluster)."""

from __future__ import annotations

import errno
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rules.test_directory_move_rules import TwoDisks, run
from tests.support.broker.fakes import state
from tests.support.log import batch_of

from tidelog.broker.apis import describe_log_dirs, plan_log_dir_moves
from tidelog.core.config import BrokerConfig
from tidelog.core.dynamic_config import DynamicConfigs, broker_config, check_broker
from tidelog.core.errors import ConfigError, ErrorCode, KafkaError
from tidelog.core.ports import VolumePlace, VolumeSize
from tidelog.core.types import TopicPartition
from tidelog.log import log_dir_balance, log_dir_drain
from tidelog.log.log_dir_choice import LogDirRoom
from tidelog.log.log_dir_plan import LogDirState, MovableReplica, PlannedReplicaMove, room_left
from tidelog.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from tidelog.wire.messages.plan_log_dir_moves import PlanLogDirMovesRequest

GIB = 1 << 30
BALANCE = {"log.dir.balance.enable": "true", "log.dir.balance.check.interval.seconds": "5"}
LIMIT = {"replica.alter.log.dirs.io.max.bytes.per.second": "1000000000"}
HELD = {"replica.alter.log.dirs.io.max.bytes.per.second": "0"}
INTERVAL_MS = 5_000


class ThreeDisks(TwoDisks):
    """A broker with three log directories on real files, each on a volume of 100 GiB."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.paths = [str(path / name) for name in "abc"]
        self.settings: dict[str, str] = {}
        self.apply()

    def apply(self) -> None:
        static = {"broker.id": "1", "metadata.store": "embedded:/nowhere"}
        static |= {"log.dirs": ",".join(self.paths), "log.dir.reserve.bytes": "0"}
        self.broker.config = BrokerConfig.from_properties({**static, **self.settings})

    async def start(self, **kept: Any) -> ThreeDisks:
        await super().start(**kept)
        for number in range(3):
            self.files(number).__dict__["volume_place"] = lambda path, number=number: VolumePlace(
                number, path
            )
            self.room(number, 90 * GIB)
        return self

    def room(self, number: int, usable_bytes: int, total_bytes: int = 100 * GIB) -> None:
        """Set the usable bytes of a volume."""
        self.files(number).volume = VolumeSize(total_bytes, usable_bytes)

    def volume_of_replicas(self, number: int, total_bytes: int) -> Callable[[str], VolumeSize]:
        """A volume that has nothing but the records of its directory, deleted ones for a while."""

        def size(_: str) -> VolumeSize:
            found = Path(self.paths[number]).rglob("*.log")
            used = sum(each.stat().st_size for each in found)
            return VolumeSize(total_bytes, total_bytes - used)

        return size

    async def set(self, **settings: str) -> None:
        """Settings of the broker in the store change."""
        self.settings |= {key.replace("_", "."): text for key, text in settings.items()}
        self.apply()
        self.broker.replicas.defaults_changed()
        await self.clock.advance(100)

    async def drain(self, *numbers: int) -> None:
        await self.set(draining_log_dirs=",".join(self.paths[number] for number in numbers))

    async def host(self, number: int, *sizes: int) -> None:
        """Create replicas with about so many bytes in a directory."""
        replicas = self.broker.replicas
        first = len(replicas)
        for partition, size in enumerate(sizes, first):
            key = TopicPartition("t", partition)
            replicas.moves._preferred[key] = self.paths[number]
            await self.broker.command(
                state(1, partition=partition, isr=(1,), replicas=(1,), is_new=True)
            )
            hosted = replicas.get(key)
            assert hosted is not None
            hosted.role.append(batch_of([b"x" * size]), -1, 0)
            hosted.flush_appends()

    def places(self) -> list[str]:
        """The directory of each replica, by the number of its partition."""
        found = sorted(self.broker.replicas.all(), key=lambda each: each.topic_partition)
        return [Path(each.directory.path).name for each in found]

    def said(self, text: str) -> bool:
        return any(text in line for line in self.broker.tracer.lines)

    async def plan(self, *numbers: int, threshold: int = -1) -> Any:
        message = PlanLogDirMovesRequest([self.paths[number] for number in numbers], threshold)
        return await self._answered(plan_log_dir_moves, 20_007, 0, message)


def story(path: Path, play: Callable[[ThreeDisks], Coroutine[Any, Any, None]]) -> None:
    async def begin() -> None:
        three = await ThreeDisks(path).start()
        await play(three)
        assert three.broker.failures == []

    run(begin())


# Drains: the plan.


def room(usable: int | None, volume: int, held: int = 0) -> LogDirRoom:
    return LogDirRoom(usable, volume, held, 0, 0, 0)


def replica(number: int, size: int, source: str = "/a") -> MovableReplica:
    return MovableReplica(TopicPartition("t", number), source, size)


def targets(planned: Sequence[PlannedReplicaMove]) -> dict[int, str | None]:
    return {each.replica.partition: each.target for each in planned}


@pytest.mark.rule("D12")
def test_replicas_of_a_drain_go_where_the_room_is_and_the_largest_first() -> None:
    states = [
        LogDirState("/a", room(0, 1), closed="is drained"),
        LogDirState("/b", room(1_000, 2)),
        LogDirState("/c", room(700, 3)),
    ]
    planned = log_dir_drain.plan([replica(0, 100), replica(1, 600), replica(2, 90)], states, {})
    assert [each.replica.partition for each in planned] == [1, 0, 2]
    assert targets(planned) == {1: "/b", 0: "/c", 2: "/c"}
    assert planned[0].reason == "1,000 bytes are left there"


@pytest.mark.rule("D12")
def test_a_replica_that_fits_nowhere_has_the_reason_of_each_directory() -> None:
    states = [
        LogDirState("/a", room(0, 1), closed="is drained"),
        LogDirState("/b", room(1_000, 2), spare_bytes=300, coming_bytes=300),
        LogDirState("/c", room(9_999, 3), closed="is cordoned"),
        LogDirState("/d", room(9_999, 4)),
        LogDirState("/e", room(None, 5)),
    ]
    refused = {(TopicPartition("t", 0), "/d"): "has refused it: no"}
    (planned,) = log_dir_drain.plan([replica(0, 401)], states, refused)
    assert planned.target is None
    assert planned.reason == (
        "/b is too small: 400 of 401 bytes are left; /c is cordoned; /d has refused it: no;"
        " /e has free space that is not known"
    )
    (planned,) = log_dir_drain.plan([replica(0, 400)], states, refused)
    assert planned.target == "/b"
    (alone,) = log_dir_drain.plan([replica(0, 1)], states[:1], {})
    assert alone.reason == "the broker has no other good log directory"


@pytest.mark.rule("D12")
def test_replicas_that_stay_on_their_volume_take_room_one_after_the_other() -> None:
    states = [LogDirState("/a", room(500, 1), closed="x"), LogDirState("/b", room(500, 1))]
    planned = log_dir_drain.plan([replica(number, 400) for number in range(3)], states, {})
    assert list(targets(planned).values()) == ["/b"] * 3


@pytest.mark.rule("D12")
def test_replicas_that_stay_on_their_volume_are_spread_over_its_directories() -> None:
    states = [LogDirState("/a", room(5_000, 1), closed="x")]
    states += [LogDirState(path, room(5_000, 1)) for path in ("/b", "/c")]
    planned = log_dir_drain.plan([replica(number, 400) for number in range(4)], states, {})
    assert targets(planned) == {0: "/b", 1: "/c", 2: "/b", 3: "/c"}


@pytest.mark.rule("D12")
def test_what_is_on_its_way_to_a_directory_leaves_its_volume_less_room() -> None:
    states = [
        LogDirState("/a", room(0, 1), closed="x"),
        LogDirState("/b", room(1_000, 2), coming_bytes=800),
        LogDirState("/c", room(600, 3)),
    ]
    (planned,) = log_dir_drain.plan([replica(0, 100)], states, {})
    assert planned.target == "/c"


# Drains: the broker.


@pytest.mark.rule("D12")
def test_a_drain_empties_its_directory_and_keeps_new_replicas_out(tmp_path: Path) -> None:
    async def play(three: ThreeDisks) -> None:
        await three.host(0, *[300] * 40)
        await three.host(1, 10)
        await three.drain(0)
        await three.clock.advance(10_000)
        assert "a" not in three.places() and len(three.places()) == 41
        assert "directory_drained" in three.broker.tracer.marks
        assert three.said(f"{three.paths[0]} has no replica any more")
        await three.host(0, 5)
        assert "a" not in three.places(), "the drain closes the directory"
        assert three.names() == sorted(
            f"{place}/t-{number}" for number, place in enumerate(three.places())
        )

    story(tmp_path, play)


@pytest.mark.rule("D12")
def test_a_drain_goes_on_after_a_restart_with_replicas_that_had_not_begun(tmp_path: Path) -> None:
    async def play(three: ThreeDisks) -> None:
        await three.host(0, *[300] * 20)
        await three.set(**_keys(HELD))
        three.broker.replicas.moves.copied(1)
        await three.drain(0)
        begun = three.broker.replicas.moves.under_way()
        assert 0 < len(begun) < 20 and three.places() == ["a"] * 20
        three.settings |= LIMIT
        three.apply()
        await three.restart()
        assert three.places() == ["a"] * 20
        for partition in range(20):
            command = state(1, partition=partition, leader_epoch=1, partition_epoch=1, isr=(1,))
            await three.broker.command(command)
        await three.clock.advance(20_000)
        assert "a" not in three.places()

    story(tmp_path, play)


def _keys(settings: dict[str, str]) -> dict[str, str]:
    return {key.replace(".", "_"): text for key, text in settings.items()}


@pytest.mark.rule("D12")
def test_an_uncordon_ends_the_moves_of_a_drain(tmp_path: Path) -> None:
    async def play(three: ThreeDisks) -> None:
        await three.host(0, 300, 300)
        await three.set(**_keys(HELD))
        three.broker.replicas.moves.copied(1)
        await three.drain(0)
        assert len(three.broker.replicas.moves.under_way()) == 2
        await three.set(draining_log_dirs="")
        assert three.broker.replicas.moves.under_way() == []
        assert three.names() == ["a/t-0", "a/t-1"], "no future replica is left"
        await three.set(**_keys(LIMIT))
        await three.clock.advance(60_000)
        assert three.places() == ["a", "a"]

    story(tmp_path, play)


@pytest.mark.rule("D12")
def test_a_move_into_a_directory_ends_when_that_is_drained(tmp_path: Path) -> None:
    async def play(three: ThreeDisks) -> None:
        await three.host(0, 300)
        await three.set(**_keys(HELD))
        three.broker.replicas.moves.copied(1)
        assert await three.ask(three.paths[1]) is ErrorCode.NONE
        await three.drain(1)
        assert three.broker.replicas.moves.under_way() == []
        assert await three.ask(three.paths[1]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert three.names() == ["a/t-0"]

    story(tmp_path, play)


@pytest.mark.rule("D12", "D14")
def test_a_replica_goes_elsewhere_when_its_target_is_full(tmp_path: Path) -> None:
    async def play(three: ThreeDisks) -> None:
        await three.host(0, 300)
        three.room(2, 50 * GIB)
        await three.set(**_keys(HELD))
        three.broker.replicas.moves.copied(1)
        await three.drain(0)
        (move,) = three.broker.replicas.moves.under_way()
        assert move.target.path == three.paths[1]
        three.b.space.free.full_since_ms = 0
        await three.clock.advance(6_000)
        (move,) = three.broker.replicas.moves.under_way()
        assert move.target.path == three.paths[2]
        assert "drained_replica_goes_elsewhere" in three.broker.tracer.marks
        await three.set(**_keys(LIMIT))
        await three.clock.advance(6_000)
        assert three.places() == ["c"]

    story(tmp_path, play)


@pytest.mark.rule("D12", "D1")
def test_a_replica_goes_elsewhere_when_its_target_fails_or_refuses_it(tmp_path: Path) -> None:
    async def play(three: ThreeDisks) -> None:
        await three.host(0, 300, 300)
        three.room(2, 50 * GIB)
        three.files(1).refuse = lambda call, path: errno.ENOSPC if call == "mkdir" else 0
        await three.drain(0)
        await three.clock.advance(1_000)
        assert three.places() == ["c", "c"]
        assert three.said(f"does not move from {three.paths[0]} to {three.paths[1]} now")
        three.files(1).refuse = lambda call, path: errno.EIO
        await three.drain(2)
        await three.clock.advance(40_000)
        assert three.places() == ["a", "a"] and three.paths[1] in three.broker.replicas.failed

    story(tmp_path, play)


@pytest.mark.rule("D12")
def test_replicas_that_fit_nowhere_are_named_and_move_when_there_is_room(tmp_path: Path) -> None:
    async def play(three: ThreeDisks) -> None:
        await three.host(0, 3_000)
        for number in (1, 2):
            three.room(number, 1_000)
        await three.drain(0)
        await three.clock.advance(30_000)
        assert three.places() == ["a"]
        warnings = [line for line in three.broker.tracer.lines if "cannot leave" in line]
        assert len(warnings) == 1 and "t-0 among them" in warnings[0]
        assert f"{three.paths[1]} is too small: 1,000 of " in warnings[0]
        response = await three.plan(0)
        (planned,) = response.moves
        assert (planned.target, planned.partition) == (None, 0) and "too small" in planned.reason
        await three.clock.advance(60_000)
        assert sum("cannot leave" in line for line in three.broker.tracer.lines) == 2
        three.room(2, GIB)
        await three.clock.advance(20_000)
        assert three.places() == ["c"]

    story(tmp_path, play)


@pytest.mark.rule("D12")
def test_a_plan_of_a_drain_is_shown_and_moves_nothing(tmp_path: Path) -> None:
    async def play(three: ThreeDisks) -> None:
        await three.host(0, 300, 500)
        response = await three.plan(0)
        assert [(each.partition, each.source) for each in response.moves] == [
            (1, three.paths[0]),
            (0, three.paths[0]),
        ]
        assert response.error_code == 0 and three.broker.replicas.moves.under_way() == []
        await three.set(**_keys(HELD))
        three.broker.replicas.moves.copied(1)
        await three.drain(0)
        response = await three.plan(0)
        assert all("is on its way" in each.reason for each in response.moves)
        answer = await three._answered(describe_log_dirs, 35, 4, DescribeLogDirsRequest(None))
        assert [each.is_draining for each in answer.results] == [True, False, False]

    story(tmp_path, play)


@pytest.mark.rule("D12")
def test_drains_of_unknown_failed_and_last_directories_are_refused(tmp_path: Path) -> None:
    async def play(three: ThreeDisks) -> None:
        path = three.paths[0]
        three.paths[0] = "/nowhere"
        response = await three.plan(0)
        assert response.error_code == ErrorCode.LOG_DIR_NOT_FOUND
        assert "broker 1 has no log directory /nowhere" in response.error_message
        three.paths[0] = path
        await three.set(cordoned_log_dirs=three.paths[2])
        response = await three.plan(0, 1)
        assert response.error_code == ErrorCode.INVALID_REQUEST
        assert f"cordoned or drained: {three.paths[2]}" in response.error_message
        response = await three.plan(0, 1, 2)
        assert response.error_code == ErrorCode.INVALID_REQUEST
        assert "has no other good log directory" in response.error_message
        three.files(1).refuse = lambda call, path: errno.EIO
        await three.plan(0)
        response = await three.plan(1)
        assert response.error_code == ErrorCode.INVALID_REQUEST
        assert f"{three.paths[1]} of broker 1 has failed" in response.error_message

    story(tmp_path, play)


STATIC = {"broker.id": "1", "metadata.store": "embedded:/nowhere", "log.dirs": "/a,/b,/c"}


@pytest.mark.rule("D12")
@pytest.mark.parametrize(
    ("text", "why"), [("/d", "none of log.dirs"), ("/a,/b,/c/", "all of log.dirs"), ("*", "none")]
)
def test_only_some_directories_of_the_broker_can_be_drained(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        BrokerConfig.from_properties({**STATIC, "draining.log.dirs": text})
    static = BrokerConfig.from_properties(STATIC)
    with pytest.raises(KafkaError, match=why):
        check_broker(static, {}, {"draining.log.dirs": text})


@pytest.mark.rule("D12")
def test_a_drained_directory_that_has_left_the_broker_is_not_in_the_way() -> None:
    """Its name stays in the store, and other keys can be altered all the same."""
    static = BrokerConfig.from_properties({**STATIC, "log.dirs": "/a,/b"})
    stored = {"draining.log.dirs": "/c,/b", "cordoned.log.dirs": "/c/,/b"}
    config, problems = broker_config(static, DynamicConfigs(own=stored))
    assert problems == ()
    assert config.draining_log_dirs == config.cordoned_log_dirs == ("/b",)
    check_broker(static, stored, {**stored, "max.connections": "7"})
    config, problems = broker_config(static, DynamicConfigs(own={"draining.log.dirs": "/a,/b"}))
    assert (config.draining_log_dirs, problems) == ((), ()), "no directory would be left"
    for text in ("/b,/b", "/b,/b/"):
        config, problems = broker_config(static, DynamicConfigs(own={"draining.log.dirs": text}))
        assert (config.draining_log_dirs, problems) == (("/b",), ()), "twice is once"


# Balancing: the plan.


class Volumes:
    """Directories on volumes of their own, whose replicas move by plans."""

    def __init__(
        self,
        volumes: Sequence[tuple[int, int, bool]],
        replicas: Sequence[tuple[int, int]],
    ) -> None:
        """Take (size, bytes of others, whether it is closed), and (volume, bytes) of replicas."""
        self.volumes = volumes
        self.places = [volume % len(volumes) for volume, _ in replicas]
        self.sizes = [size for _, size in replicas]
        for number, (volume, size) in enumerate(zip(self.places, self.sizes, strict=True)):
            if self.usable(volume) < 0:
                self.sizes[number] -= min(size, -self.usable(volume))

    def usable(self, volume: int) -> int:
        total, others, _ = self.volumes[volume]
        return total - others - self.held(volume)

    def held(self, volume: int) -> int:
        pairs = zip(self.places, self.sizes, strict=True)
        return sum(size for place, size in pairs if place == volume)

    def states(self) -> list[LogDirState]:
        return [
            LogDirState(
                f"/{number}",
                room(self.usable(number), number, self.held(number)),
                total,
                closed="is cordoned" if is_closed else "",
            )
            for number, (total, _, is_closed) in enumerate(self.volumes)
        ]

    def plan(self, threshold: int, *, is_under_way: bool = False) -> list[PlannedReplicaMove]:
        replicas = [
            MovableReplica(TopicPartition("t", number), f"/{place}", size)
            for number, (place, size) in enumerate(zip(self.places, self.sizes, strict=True))
        ]
        return log_dir_balance.plan(self.states(), replicas, threshold, is_under_way=is_under_way)

    def imbalance(self) -> float:
        """The sum of the squared fills, weighted by size: each move lowers it."""
        return sum(
            (total - self.usable(number)) ** 2 / total
            for number, (total, _, _) in enumerate(self.volumes)
        )


VOLUMES = st.lists(
    st.tuples(st.sampled_from([1_000, 2_000, 7_000]), st.integers(0, 400), st.booleans()),
    min_size=1,
    max_size=5,
)
REPLICAS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 400)), max_size=25)


@pytest.mark.rule("D15")
@given(VOLUMES, REPLICAS, st.sampled_from([1, 5, 10, 40]), st.integers(1, 30))
def test_plans_that_are_carried_out_in_part_or_whole_come_to_rest(
    volumes: list[tuple[int, int, bool]],
    replicas: list[tuple[int, int]],
    threshold: int,
    at_once: int,
) -> None:
    """No replica moves into too little room or a cordon, and no state comes back."""
    at = Volumes(volumes, replicas)
    is_under_way = False
    for _ in range(200):
        planned = at.plan(threshold, is_under_way=is_under_way)
        is_under_way = bool(planned)
        if not planned:
            break
        assert len({each.replica for each in planned}) == len(planned)
        for each in planned[:at_once]:
            before = at.imbalance()
            target = int((each.target or "")[1:])
            at.places[each.replica.partition] = target
            assert at.imbalance() < before and at.usable(target) >= 0
            assert not at.volumes[target][2]
    assert at.plan(threshold) == [], "and it stays so"


def fewest_bytes(at: Volumes, most_difference: float) -> int | None:
    """The fewest bytes whose move brings two volumes within a difference, of all subsets."""
    best = None
    total = at.volumes[0][0]
    for chosen in range(1 << len(at.sizes)):
        moved = sum(size for bit, size in enumerate(at.sizes) if chosen >> bit & 1)
        fills = (at.held(0) - moved) / total, moved / total
        if abs(fills[0] - fills[1]) <= most_difference and (best is None or moved < best):
            best = moved
    return best


@pytest.mark.rule("D15")
@given(st.lists(st.integers(1, 300), min_size=1, max_size=9), st.sampled_from([10, 20, 40]))
def test_two_volumes_are_balanced_with_few_bytes(sizes: list[int], threshold: int) -> None:
    at = Volumes([(3_000, 0, False), (3_000, 0, False)], [(0, size) for size in sizes])
    planned = at.plan(threshold)
    assert bool(planned) <= (at.held(0) / 3_000 > threshold / 100)
    moved = sum(each.size_bytes for each in planned)
    best = fewest_bytes(at, threshold / 200)
    after = abs(at.held(0) - 2 * moved) / 3_000
    if planned and best is not None and after <= threshold / 200:
        assert moved <= best + max(sizes)
    # What is moved has a use: without any of the moves the volumes would differ by more.
    for each in planned:
        assert abs(at.held(0) - 2 * (moved - each.size_bytes)) / 3_000 > threshold / 200


@pytest.mark.rule("D15")
def test_balancing_begins_above_the_threshold_and_ends_within_half_of_it() -> None:
    at = Volumes([(1_000, 0, False), (1_000, 0, False)], [(0, 10)] * 10)
    assert at.plan(10) == []
    at = Volumes([(1_000, 0, False), (1_000, 0, False)], [(0, 10)] * 11)
    assert len(at.plan(10)) == 3
    for number in (0, 1):
        at.places[number] = 1
    assert at.plan(10) == [] and len(at.plan(10, is_under_way=True)) == 1


@pytest.mark.rule("D15")
def test_growth_and_moves_on_the_way_count_as_used() -> None:
    replicas = [replica(number, 50, "/0") for number in range(4)]
    even = LogDirState("/1", room(800, 1, 200), 1_000)
    grows = LogDirState("/0", room(800, 0, 200), 1_000, steady_growth_bytes=300)
    (planned,) = log_dir_balance.plan([grows, even], replicas, 10)
    assert planned.reason.endswith("afterwards 30.0% and 30.0%"), "a replica doubles at most"
    leaves = LogDirState("/0", room(500, 0, 500), 1_000, leaving_bytes=300)
    assert log_dir_balance.plan([leaves, even], replicas, 10) == []
    comes = LogDirState("/1", room(800, 1, 200), 1_000, coming_bytes=300)
    full = LogDirState("/0", room(500, 0, 500), 1_000)
    assert log_dir_balance.plan([full, comes], replicas, 10) == []
    assert len(log_dir_balance.plan([full, even], replicas, 10)) > 1


@pytest.mark.rule("D15")
def test_a_target_keeps_what_it_spares_and_one_volume_is_not_balanced_with_itself() -> None:
    full = LogDirState("/0", room(100, 0, 900), 1_000)
    tight = LogDirState("/1", room(1_000, 1), 1_000, spare_bytes=960)
    planned = log_dir_balance.plan([full, tight], [replica(0, 41, "/0"), replica(1, 40, "/0")], 10)
    assert targets(planned) == {1: "/1"} and room_left([tight], 1) == 40
    assert planned[0].reason == "/0 is 90.0% full and /1 0.0%; afterwards 86.0% and 4.0%"
    shared = [full, LogDirState("/1", room(100, 0), 1_000)]
    assert log_dir_balance.plan(shared, [replica(0, 100, "/0")], 10) == []


@pytest.mark.rule("D15")
def test_drained_directories_and_volumes_of_unknown_size_take_no_part() -> None:
    full = LogDirState("/0", room(100, 0, 900), 1_000, is_draining=True, closed="is drained")
    empty = LogDirState("/1", room(1_000, 1), 1_000)
    replicas = [replica(0, 100, "/0"), replica(1, 0, "/0")]
    assert log_dir_balance.plan([full, empty], replicas, 10) == []
    assert log_dir_balance.plan([LogDirState("/0", room(None, 0)), empty], replicas, 10) == []
    other = LogDirState("/2", room(100, 0, 0), None)
    known = LogDirState("/0", room(100, 0, 900), 1_000)
    assert log_dir_balance.plan([known, other, empty], replicas, 10) == []


@pytest.mark.rule("D15")
def test_a_volume_that_cannot_be_helped_keeps_none_of_the_others_from_balance() -> None:
    """The fullest holds what others wrote, and the emptiest is cordoned."""
    at = Volumes(
        [(1_000, 950, False), (1_000, 0, True), (1_000, 0, False), (1_000, 100, False)],
        [(2, 100)] * 6,
    )
    assert [each.target for each in at.plan(10)] == ["/3"] * 2


# Balancing: the broker.


@pytest.mark.rule("D15")
def test_balancing_moves_a_few_replicas_at_a_time_until_the_volumes_are_even(
    tmp_path: Path,
) -> None:
    async def play(three: ThreeDisks) -> None:
        await three.host(0, *[1_000] * 12)
        held = sum(each.log.size_bytes for each in three.broker.replicas.all())
        for number in range(3):
            three.files(number).__dict__["volume_size"] = three.volume_of_replicas(number, 2 * held)
        await three.set(**_keys(BALANCE), **_keys(HELD))
        await three.clock.advance(INTERVAL_MS - 1_000)
        three.broker.replicas.moves.copied(1)
        await three.clock.advance(1_000)
        assert len(three.broker.replicas.moves.under_way()) == 2, "a few at a time"
        await three.set(log_dir_balance_enable="false")
        assert three.broker.replicas.moves.under_way() == []
        planned = [(each.partition, each.target) for each in (await three.plan()).moves]
        assert len(planned) > 2
        await three.set(**_keys(BALANCE), **_keys(LIMIT))
        await three.clock.advance(3 * INTERVAL_MS)
        assert [three.places().count(place) for place in "abc"] == [4, 4, 4]

    story(tmp_path, play)


@pytest.mark.rule("D15")
def test_automatic_balancing_rests_without_a_limit_and_during_a_drain(tmp_path: Path) -> None:
    async def play(three: ThreeDisks) -> None:
        await three.host(0, *[1_000] * 4)
        await three.host(1, 900_000)
        three.room(0, 10 * GIB)
        await three.set(**_keys(BALANCE), log_dir_balance_threshold_percent="1")
        await three.clock.advance(2 * INTERVAL_MS)
        assert three.places() == [*"aaaa", "b"]
        assert (
            sum("has no effect without a limit" in line for line in three.broker.tracer.lines) == 1
        )
        for number in (0, 2):
            three.room(number, 500_000)
        await three.set(cordoned_log_dirs=three.paths[2])
        await three.drain(1)
        three.room(0, 10_000, 100_000)
        await three.set(**_keys(LIMIT))
        await three.clock.advance(2 * INTERVAL_MS)
        assert three.places() == [*"aaaa", "b"], "a drain waits for room"
        await three.drain()
        await three.clock.advance(INTERVAL_MS)
        assert three.places() == [*"bbbb", "b"]

    story(tmp_path, play)


@pytest.mark.rule("D15")
@pytest.mark.parametrize("percent", [0, 101, -2])
def test_a_threshold_that_is_no_percentage_is_refused(tmp_path: Path, percent: int) -> None:
    async def play(three: ThreeDisks) -> None:
        response = await three.plan(threshold=percent)
        assert response.error_code == ErrorCode.INVALID_REQUEST
        assert "1 to 100 expected" in response.error_message

    story(tmp_path, play)
