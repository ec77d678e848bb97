"""Model 10, commits of lake tables: two ingests, compactions and a vacuum over one table.

Real: what a run does after each look at the table, the fence of a vacuum and the files that it
deletes (`tidelog.spark.lake.protocol`). A run reads the table, stages a file, commits, and looks
again unless the store said yes. A commit is in flight until it comes in or vanishes; the run may
hear of its fate, or give it up as lost while it is still in flight. Runs stand still for as long as
they like, which is what a zombie does, and die at any step. The vacuum takes any of the runs for
dead, and stands still and dies like them; it keeps no former version.

Bounds: records of the one partition, attempts of each process, vacuums.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

from tests.support.models.explorer import State, Step, Table

from tidelog.spark.lake import protocol
from tidelog.spark.lake.protocol import (
    CommitAgain,
    CommitAttempt,
    LandedBefore,
    PlannedOffsets,
    StartOver,
    TableView,
)

PARTITION = 0
#: Processes: two ingests of the same topic, and compactions.
INGESTS = ("A", "B")
COMPACTIONS = ("C", "D")
_FENCING = "V"


class File(NamedTuple):
    """A data file: the run that staged it, where the run began, its offsets."""

    run: str
    began: int
    start: int
    end: int

    @property
    def path(self) -> str:
        """The path in the table."""
        return f"{self.run}-{self.start}-{self.end}"


class Process(NamedTuple):
    """An ingest or a compaction."""

    #: idle, planned, staged, ready (to commit), waiting, looking, dead.
    phase: str = "idle"
    attempts: int = 0
    attempt: CommitAttempt | None = None
    file: File | None = None
    #: The version to commit to.
    base: int = 0
    #: The end of the offsets that it reports as landed.
    reported: int = 0


class Request(NamedTuple):
    """A commit in flight."""

    process: str
    attempt: CommitAttempt
    file: File
    base: int


class Vacuum(NamedTuple):
    """A vacuum: idle, fencing, deleting."""

    phase: str = "idle"
    runs: int = 0
    staged: tuple[File, ...] = ()
    base: int = 0
    fence: int = 0
    doomed: tuple[str, ...] = ()


class World(NamedTuple):
    """One state."""

    #: Records of the log.
    end: int = 0
    version: int = 0
    #: The table's next offset; None before the first commit.
    following: int | None = None
    fence: int = 0
    active: tuple[File, ...] = ()
    #: The run of each version.
    landed: tuple[str, ...] = ("",)
    stored: tuple[File, ...] = ()
    processes: tuple[Process, ...] = ()
    requests: tuple[Request, ...] = ()
    vacuum: Vacuum = Vacuum()


class Bounds(NamedTuple):
    """How much happens."""

    records: int = 2
    #: Attempts of each ingest; a compaction has one.
    attempts: int = 2
    compactions: int = 0
    vacuums: int = 1

    def __str__(self) -> str:
        return (
            f"{self.records} records, {self.attempts} attempts, {self.compactions} compactions,"
            f" {self.vacuums} vacuums"
        )


class LakeModel:
    """States are numbers of worlds."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        self.bounds = bounds or Bounds()
        self._names = (*INGESTS, *COMPACTIONS[: self.bounds.compactions])
        self.name = f"lake commits {self.bounds}"
        self._worlds: Table[World] = Table()
        #: By world, the world with both ingests' names exchanged.
        self._others: dict[int, int] = {}

    # the exploration

    def first(self) -> State:
        """An empty table and an empty log."""
        return self._state(World(processes=(Process(),) * len(self._names)))

    def canonical(self, state: State) -> State:
        """The two ingests are alike: the smaller of both orders."""
        other = self._others.get(state[0])
        if other is None:
            other = self._state(_swapped(self._worlds.values[state[0]]))[0]
            self._others[state[0]], self._others[other] = other, state[0]
        return (min(state[0], other),)

    def successors(self, state: State) -> Iterator[tuple[Step, State]]:
        """What the producer, processes, vacuum and network may do."""
        world = self._worlds.values[state[0]]
        for step, after in self._steps(world):
            yield step, self._state(after)

    def _state(self, world: World) -> State:
        return (self._worlds.number(world, world),)

    def _steps(self, world: World) -> Iterator[tuple[Step, World]]:
        if world.end < self.bounds.records:
            yield ("append",), world._replace(end=world.end + 1)
        for number, name in enumerate(self._names):
            process = world.processes[number]
            if process.phase not in ("dead", "idle"):
                yield ("dies", name), _with(world, number, process._replace(phase="dead"))
            yield from self._process_steps(world, number, name)
        for request in world.requests:
            yield from self._request_steps(world, request)
        yield from self._vacuum_steps(world)

    def _process_steps(self, world: World, number: int, name: str) -> Iterator[tuple[Step, World]]:
        process = world.processes[number]
        if process.phase == "idle":
            begun = self._begun(world, name, process)
            if begun is not None:
                yield ("begins", name), _with(world, number, begun)
        elif process.phase == "planned":
            assert process.file is not None
            after = _with(world, number, process._replace(phase="ready"))
            stored = tuple(sorted({*world.stored, process.file}))
            yield ("stages", name), after._replace(stored=stored)
        elif process.phase == "ready":
            assert process.attempt is not None and process.file is not None
            request = Request(name, process.attempt, process.file, process.base)
            after = _with(world, number, process._replace(phase="waiting"))
            yield ("commits", name), _sent(after, request)
        elif process.phase == "waiting":
            # The store has refused the commit, or nobody knows.
            yield ("hears no yes", name), _with(world, number, process._replace(phase="looking"))
        elif process.phase == "looking":
            yield ("looks", name), self._looked(world, number)

    def _begun(self, world: World, name: str, process: Process) -> Process | None:
        """Return an ingest or compaction that has read the table and planned; None for no work."""
        is_ingest = name in INGESTS
        if process.attempts >= (self.bounds.attempts if is_ingest else 1):
            return None
        run = f"{name}{process.attempts}"
        if is_ingest:
            start = world.following or 0
            if start >= world.end:
                return None
            planned = PlannedOffsets(PARTITION, world.following, start, world.end)
            attempt = CommitAttempt(run, world.version, offsets=(planned,))
            file = File(run, world.version, start, world.end)
        else:
            if len(world.active) < 2:
                return None
            inputs = tuple(each.path for each in world.active)
            attempt = CommitAttempt(run, world.version, inputs=inputs)
            file = File(
                run, world.version, min(each.start for each in world.active), world.following or 0
            )
        return Process("planned", process.attempts + 1, attempt, file, world.version)

    def _looked(self, world: World, number: int) -> World:
        process = world.processes[number]
        assert process.attempt is not None and process.file is not None
        view = TableView(
            version=world.version,
            following={} if world.following is None else {PARTITION: world.following},
            fence=world.fence,
            landed=world.landed[process.attempt.began + 1 :],
            files=[each.path for each in world.active],
        )
        step = protocol.next_step(process.attempt, view)
        if isinstance(step, CommitAgain):
            return _with(world, number, process._replace(phase="ready", base=step.version))
        if isinstance(step, LandedBefore):
            return _with(world, number, _reporting(process))
        assert isinstance(step, StartOver)
        idle = process._replace(phase="idle", attempt=None, file=None, base=0)
        stored = tuple(each for each in world.stored if each != process.file)
        return _with(world, number, idle)._replace(stored=stored)

    def _request_steps(self, world: World, request: Request) -> Iterator[tuple[Step, World]]:
        """A commit comes in or vanishes; its process hears of it if it still waits for it."""
        without = world._replace(requests=tuple(e for e in world.requests if e != request))
        yield ("vanishes", request.process), without
        if request.process == _FENCING:
            yield from self._fence_steps(without, request)
            return
        number = self._names.index(request.process)
        process = world.processes[number]
        after = self._applied(without, request)
        yield ("comes in unheard", request.process), after
        if (
            process.phase == "waiting"
            and process.attempt == request.attempt
            and process.base == request.base
        ):
            yield ("comes in", request.process), _with(after, number, _reporting(process))

    def _applied(self, world: World, request: Request) -> World:
        attempt, file = request.attempt, request.file
        kept = [each for each in world.active if each.path not in attempt.inputs]
        following = attempt.offsets[0].end if attempt.offsets else world.following
        return _next_version(
            world._replace(
                following=following,
                active=tuple(sorted([*kept, file])),
                landed=(*world.landed, attempt.run),
            )
        )

    def _vacuum_steps(self, world: World) -> Iterator[tuple[Step, World]]:
        vacuum = world.vacuum
        if vacuum.phase != "idle":
            yield ("dies", "vacuum"), world._replace(vacuum=Vacuum(runs=vacuum.runs))
        if vacuum.phase == "idle" and vacuum.runs < self.bounds.vacuums and world.stored:
            staged = [protocol.StagedFile(each.path, each.run, each.began) for each in world.stored]
            runs = sorted({each.run for each in world.stored})
            fences = {
                protocol.fence_for(staged, running, world.version)
                for size in range(len(runs) + 1)
                for running in combinations(runs, size)
            }
            for fence in sorted(fences):
                begun = Vacuum("fencing", vacuum.runs + 1, world.stored, world.version, fence)
                request = Request(
                    _FENCING, CommitAttempt("", fence), File("", 0, 0, 0), world.version
                )
                yield ("fences", fence), _sent(world._replace(vacuum=begun), request)
        if vacuum.phase == "deleting":
            stored = tuple(each for each in world.stored if each.path not in vacuum.doomed)
            yield (
                ("deletes", vacuum.doomed),
                world._replace(stored=stored, vacuum=Vacuum(runs=vacuum.runs)),
            )

    def _fence_steps(self, world: World, request: Request) -> Iterator[tuple[Step, World]]:
        """The vacuum's commit comes in."""
        vacuum = world.vacuum
        waits = vacuum.phase == "fencing" and vacuum.base == request.base
        after = _fenced(world, request.attempt.began)
        yield ("comes in unheard", "vacuum"), after
        if waits:
            staged = [
                protocol.StagedFile(each.path, each.run, each.began) for each in vacuum.staged
            ]
            referenced = [each.path for each in after.active]
            doomed = protocol.abandoned(staged, vacuum.fence, referenced)
            deleting = Vacuum("deleting", vacuum.runs, doomed=tuple(e.path for e in doomed))
            yield ("comes in", "vacuum"), after._replace(vacuum=deleting)

    # what must hold

    def broken(self, state: State) -> list[str]:
        """Names of the invariants that do not hold."""
        world = self._worlds.values[state[0]]
        found = []
        offsets = [offset for each in world.active for offset in range(each.start, each.end)]
        if sorted(offsets) != list(range(world.following or 0)):
            found.append("EachOffsetOnce")
        if any(each not in world.stored for each in world.active):
            found.append("FilesExist")
        if any(each.reported > (world.following or 0) for each in world.processes):
            found.append("ReportedIsThere")
        return found

    def tell(self, step: Step) -> str:
        """Return a step in words."""
        return " ".join(map(str, reversed(step)))

    def describe(self, state: State) -> str:
        """The table, the files, the processes."""
        world: Any = self._worlds.values[state[0]]
        active = ", ".join(each.path for each in world.active)
        stored = ", ".join(each.path for each in world.stored)
        phases = " ".join(
            f"{name}:{each.phase}@{each.base}"
            for name, each in zip(self._names, world.processes, strict=True)
        )
        flying = " ".join(f"{each.process}@{each.base}" for each in world.requests)
        return (
            f"[log {world.end}] version {world.version} next {world.following} fence"
            f" {world.fence} [{active}] stored [{stored}] {phases} vacuum {world.vacuum.phase}"
            f" flying [{flying}]"
        )


def _reporting(process: Process) -> Process:
    """Return a process whose attempt has landed."""
    assert process.attempt is not None
    end = max((each.end for each in process.attempt.offsets), default=0)
    return Process(attempts=process.attempts, reported=max(process.reported, end))


def _sent(world: World, request: Request) -> World:
    """Return the world with a commit in flight. Equal ones count once, as one of them comes in."""
    if request.base != world.version or request in world.requests:
        return world
    return world._replace(requests=tuple(sorted([*world.requests, request], key=repr)))


def _fenced(world: World, fence: int) -> World:
    """Return the world after the commit of a fence."""
    landed = (*world.landed, _FENCING)
    return _next_version(world._replace(fence=max(world.fence, fence), landed=landed))


def _next_version(world: World) -> World:
    """Return the world after a commit, which refuses all that are in flight."""
    return world._replace(version=world.version + 1, requests=())


def _with(world: World, number: int, process: Process) -> World:
    processes = list(world.processes)
    processes[number] = process
    return world._replace(processes=tuple(processes))


def _swapped(world: World) -> World:
    """Return the world with both ingests' names exchanged."""
    other = {"A": "B", "B": "A"}

    def run(name: str) -> str:
        return other.get(name[:1], name[:1]) + name[1:]

    def file(each: File) -> File:
        return each._replace(run=run(each.run))

    def attempt(each: CommitAttempt) -> CommitAttempt:
        inputs = tuple(run(path) for path in each.inputs)
        return replace(each, run=run(each.run), inputs=inputs)

    def process(each: Process) -> Process:
        return each._replace(
            attempt=None if each.attempt is None else attempt(each.attempt),
            file=None if each.file is None else file(each.file),
        )

    first, second, *rest = world.processes
    vacuum = world.vacuum
    return world._replace(
        active=tuple(sorted(map(file, world.active))),
        landed=tuple(map(run, world.landed)),
        stored=tuple(sorted(map(file, world.stored))),
        processes=tuple(map(process, (second, first, *rest))),
        requests=tuple(
            sorted(
                (
                    Request(run(each.process), attempt(each.attempt), file(each.file), each.base)
                    for each in world.requests
                ),
                key=repr,
            )
        ),
        vacuum=vacuum._replace(
            staged=tuple(sorted(map(file, vacuum.staged))),
            doomed=tuple(sorted(map(run, vacuum.doomed))),
        ),
    )
