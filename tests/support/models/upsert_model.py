"""Model 11, commits of upserts: two upserts and a compaction of one table of latest rows.

Real: what a run does after each look at the table (`tidelog.spark.lake.protocol`), and the attempt
that it makes of a change (`tidelog.spark.lake.runs`). The log has two partitions and two keys, each
record with a value or as a tombstone. An upsert sees the new records of some partitions alone, as
with a leader whose high watermark lags. It writes the files whose rows it replaces again, in one
file with its own rows. It does not begin if a key is then in two partitions. Answers are lost as in
`lake_model`, which also has the vacuum and the deaths; here runs stand still for ever instead.

Bounds: records of the log, attempts of each upsert, compactions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import combinations
from typing import NamedTuple

from tests.support.models.explorer import State, Step, Table

from tidelog.spark.lake import protocol, runs
from tidelog.spark.lake.protocol import CommitAgain, CommitAttempt, LandedBefore, TableView
from tidelog.spark.lake.state import (
    LakeFile,
    LakeState,
    Origin,
    PartitionRun,
    TableChange,
)

PARTITIONS = (0, 1)
UPSERTS = ("A", "B")
COMPACTION = "C"
_ORIGIN = Origin("t", "id", "cluster", "key")


class Row(NamedTuple):
    """A record of the log, or a row of the table."""

    partition: int
    offset: int
    key: str
    is_tombstone: bool = False


class File(NamedTuple):
    """A data file: the run that wrote it, and its rows."""

    run: str
    rows: tuple[Row, ...]


class Change(NamedTuple):
    """A commit's content."""

    attempt: CommitAttempt
    file: File
    #: The next offset of each partition that the run has read.
    ends: tuple[tuple[int, int], ...] = ()


class Process(NamedTuple):
    """An upsert or a compaction: idle, ready (to commit), waiting, looking."""

    phase: str = "idle"
    attempts: int = 0
    change: Change | None = None
    #: The version to commit to.
    base: int = 0


class Request(NamedTuple):
    """A commit in flight."""

    number: int
    change: Change
    base: int


class UpsertWorld(NamedTuple):
    """One state."""

    log: tuple[Row, ...] = ()
    version: int = 0
    following: tuple[tuple[int, int], ...] = ()
    active: tuple[File, ...] = ()
    #: The run of each version.
    landed: tuple[str, ...] = ("",)
    processes: tuple[Process, ...] = ()
    requests: tuple[Request, ...] = ()


class UpsertBounds(NamedTuple):
    """How much happens."""

    records: int = 3
    #: Attempts of each upsert; a compaction has one.
    attempts: int = 1
    compactions: int = 0

    def __str__(self) -> str:
        return f"{self.records} records, {self.attempts} attempts, {self.compactions} compactions"


class UpsertModel:
    """States are numbers of worlds."""

    def __init__(self, bounds: UpsertBounds | None = None) -> None:
        self.bounds = bounds or UpsertBounds()
        self._names = (*UPSERTS, *([COMPACTION] if self.bounds.compactions else []))
        self.name = f"upserts {self.bounds}"
        self._worlds: Table[UpsertWorld] = Table()

    def first(self) -> State:
        """An empty table and an empty log."""
        return self._state(UpsertWorld(processes=(Process(),) * len(self._names)))

    def canonical(self, state: State) -> State:
        """Each state stands for itself."""
        return state

    def successors(self, state: State) -> Iterator[tuple[Step, State]]:
        """What producer, processes and network may do."""
        world = self._worlds.values[state[0]]
        for step, after in self._steps(world):
            yield step, self._state(after)

    def _state(self, world: UpsertWorld) -> State:
        return (self._worlds.number(world, world),)

    def _steps(self, world: UpsertWorld) -> Iterator[tuple[Step, UpsertWorld]]:
        if len(world.log) < self.bounds.records:
            # The first record stands for those of the other partition and of the other key.
            for partition in PARTITIONS if world.log else PARTITIONS[:1]:
                offset = sum(row.partition == partition for row in world.log)
                for key in ("x", "y") if world.log else ("x",):
                    for is_tombstone in (False, True):
                        row = Row(partition, offset, key, is_tombstone)
                        yield ("append", row), world._replace(log=(*world.log, row))
        for number, name in enumerate(self._names):
            process = world.processes[number]
            if process.phase == "idle":
                for begun in self._begun(world, name, process):
                    yield ("begins", name, begun.change), _with(world, number, begun)
            elif process.phase == "ready":
                assert process.change is not None
                after = _with(world, number, process._replace(phase="waiting"))
                yield ("commits", name), _sent(after, Request(number, process.change, process.base))
            elif process.phase == "waiting":
                looking = process._replace(phase="looking")
                yield ("hears no yes", name), _with(world, number, looking)
            else:
                yield ("looks", name), self._looked(world, number)
        for request in world.requests:
            without = world._replace(requests=tuple(e for e in world.requests if e != request))
            yield ("vanishes", self._names[request.number]), without
            after = _applied(without, request)
            yield ("comes in unheard", self._names[request.number]), after
            process = world.processes[request.number]
            if process == Process("waiting", process.attempts, request.change, request.base):
                done = Process(attempts=process.attempts)
                yield (
                    ("comes in", self._names[request.number]),
                    _with(after, request.number, done),
                )

    def _begun(self, world: UpsertWorld, name: str, process: Process) -> Iterator[Process]:
        """Yield each way in which a process may read and plan."""
        if process.attempts >= (1 if name == COMPACTION else self.bounds.attempts):
            return
        run, attempts = f"{name}{process.attempts}", process.attempts + 1
        changes = [] if name == COMPACTION else _upserts(world, run)
        if name == COMPACTION and world.active:
            rows = tuple(sorted(row for file in world.active for row in file.rows))
            attempt = runs.attempt_of(run, _state_of(world), _change_of(run, (), world.active))
            changes = [Change(attempt, File(run, rows))]
        for change in changes:
            yield Process("ready", attempts, change, world.version)

    def _looked(self, world: UpsertWorld, number: int) -> UpsertWorld:
        process = world.processes[number]
        assert process.change is not None
        attempt = process.change.attempt
        view = TableView(
            version=world.version,
            following=dict(world.following),
            fence=0,
            landed=world.landed[attempt.began + 1 :],
            files=[_path(file) for file in world.active],
        )
        step = protocol.next_step(attempt, view)
        if isinstance(step, CommitAgain):
            again = process._replace(phase="ready", base=step.version)
            return _with(world, number, again)
        if isinstance(step, LandedBefore):
            return _with(world, number, Process(attempts=process.attempts))
        return _with(world, number, Process(attempts=process.attempts))

    def broken(self, state: State) -> Collection[str]:
        """Names of the invariants that do not hold."""
        world = self._worlds.values[state[0]]
        rows = [row for file in world.active for row in file.rows]
        found = []
        if len({row.key for row in rows}) < len(rows):
            found.append("KeyOnce")
        following = dict(world.following)
        landed = [row for row in world.log if row.offset < following.get(row.partition, 0)]
        if sorted(rows) != sorted(_latest(landed)):
            found.append("LatestRows")
        return found

    def tell(self, step: Step) -> str:
        """Return a step in words."""
        return " ".join(map(str, reversed(step)))

    def describe(self, state: State) -> str:
        """The log, the table, the processes."""
        world = self._worlds.values[state[0]]
        phases = " ".join(f"{each.phase}@{each.base}" for each in world.processes)
        return (
            f"log {world.log} version {world.version} next {world.following} [{world.active}]"
            f" {phases} flying {len(world.requests)}"
        )


def _upserts(world: UpsertWorld, run: str) -> list[Change]:
    """Return the changes of the new records of each choice of partitions."""
    following = dict(world.following)
    new = [row for row in world.log if row.offset >= following.get(row.partition, 0)]
    partitions = sorted({row.partition for row in new})
    changes = []
    for size in range(1, len(partitions) + 1):
        for chosen in combinations(partitions, size):
            taken = [row for row in new if row.partition in chosen]
            change = _upsert(world, run, taken)
            if change is not None:
                changes.append(change)
    return changes


def _upsert(world: UpsertWorld, run: str, taken: list[Row]) -> Change | None:
    """Return the change of new records; None for a key that is then in two partitions."""
    following = dict(world.following)
    keys = {row.key for row in taken}
    inputs = tuple(file for file in world.active if keys & {row.key for row in file.rows})
    rows = [*taken, *(row for file in inputs for row in file.rows)]
    if len({(row.key, row.partition) for row in rows}) > len({row.key for row in rows}):
        return None
    ends = {row.partition: row.offset + 1 for row in sorted(taken)}
    offsets = tuple(
        PartitionRun(number, following.get(number, 0), end, 0) for number, end in ends.items()
    )
    attempt = runs.attempt_of(run, _state_of(world), _change_of(run, offsets, inputs))
    file = File(run, tuple(sorted(_latest(rows))))
    return Change(attempt, file, tuple(sorted(ends.items())))


def _latest(rows: Collection[Row]) -> list[Row]:
    """Return the latest row of each key in each partition, without tombstones."""
    latest = {(row.partition, row.key): row for row in sorted(rows)}
    return [row for row in latest.values() if not row.is_tombstone]


def _state_of(world: UpsertWorld) -> LakeState:
    partitions = {number: PartitionRun(number, 0, end, 0) for number, end in world.following}
    return LakeState(world.version, _ORIGIN, partitions)


def _change_of(
    run: str, offsets: tuple[PartitionRun, ...], inputs: Collection[File]
) -> TableChange:
    removed = tuple(LakeFile(_path(file), 0, 0, 0, 0, 0) for file in inputs)
    return TableChange(run, offsets, (), removed)


def _path(file: File) -> str:
    return f"{file.run}-{file.rows}"


def _applied(world: UpsertWorld, request: Request) -> UpsertWorld:
    """Return the world after a commit, which refuses all that are in flight."""
    attempt, file, ends = request.change
    kept = [each for each in world.active if _path(each) not in attempt.inputs]
    return world._replace(
        version=world.version + 1,
        following=tuple(sorted({**dict(world.following), **dict(ends)}.items())),
        active=tuple(sorted([*kept, *([file] if file.rows else [])])),
        landed=(*world.landed, attempt.run),
        requests=(),
    )


def _sent(world: UpsertWorld, request: Request) -> UpsertWorld:
    """Return the world with a commit in flight, if its version is still free."""
    if request.base != world.version or request in world.requests:
        return world
    return world._replace(requests=tuple(sorted([*world.requests, request], key=repr)))


def _with(world: UpsertWorld, number: int, process: Process) -> UpsertWorld:
    processes = list(world.processes)
    processes[number] = process
    return world._replace(processes=tuple(processes))
