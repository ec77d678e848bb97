"""The simulator of one run: the scheduler, the network, the nodes with their disks, and the trace.

Faults call methods of the simulated parts (`SimNode`, `SimNetwork`, `SimDisk`). Checkers follow the
simulator through `on_traced` and `Scheduler.after_event`, and report to `violate`. The module knows
nothing of brokers.
"""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable

from tidelog.core.errors import ConfigError
from tidelog.core.ports import Lane
from tidelog.sim.disk import DEFAULT_CAPACITY_BYTES, Loss, SimDisk
from tidelog.sim.files import SimFiles
from tidelog.sim.lanes import SimLane
from tidelog.sim.listeners import CallbackList
from tidelog.sim.loop import EventOwner
from tidelog.sim.node import Incarnation, NodeServices, SimNode
from tidelog.sim.seeds import stream


class ViolationError(Exception):
    """The error for a violated invariant, which ends the run."""


class Simulator(NodeServices):
    """Virtual time, nodes, network, disks and trace of one run."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.scheduler.on_unhandled = self._unhandled
        self.nodes: dict[int, SimNode] = {}
        self.disks: dict[tuple[int, str], SimDisk] = {}
        #: Size of each new disk in bytes.
        self.disk_bytes = DEFAULT_CAPACITY_BYTES
        #: Violations in order; the first violation ends the run.
        self.violations: list[str] = []
        #: Called with (incarnation, loss) after an incarnation has died, its connections are broken
        #: and its disks have lost data.
        self.on_death: CallbackList[[Incarnation, Loss]] = CallbackList()
        #: Called with the reason when a node halts itself; without a callback, every halt is a
        #: violation.
        self.on_halt: Callable[[Incarnation, str], None] | None = None
        self._incarnations: list[Incarnation] = []

    @property
    def now_ns(self) -> int:
        """Virtual time."""
        return self.scheduler.now_ns

    # Nodes

    def add_node(self, node_id: int, host: str) -> SimNode:
        """Add a node that does not run yet."""
        if node_id in self.nodes:
            raise ValueError(f"node {node_id} exists")
        node = self.nodes[node_id] = SimNode(self, node_id, host)
        self.network.add_host(host)
        return node

    def disk(self, node_id: int, directory: str) -> SimDisk:
        """Return the disk of a log directory, created on first use; it outlives incarnations."""
        found = self.disks.get((node_id, directory))
        if found is None:
            found = self.disks[(node_id, directory)] = SimDisk(directory, self.disk_bytes)
        return found

    def open_lane(self, incarnation: Incarnation, directory: str) -> Lane:
        """Return the `core.ports.Lane` of a log directory for one incarnation."""
        incarnation.port_call("lane.open")
        if not directory.startswith("/"):
            raise ConfigError(f"log directory {directory!r}: an absolute path is expected")
        disk = self.disk(incarnation.node_id, directory)
        draw = stream(self.seed, "disk", incarnation.node_id, directory, incarnation.number)
        files = SimFiles(incarnation, disk, draw)
        return SimLane(incarnation, self.scheduler, directory, files, draw)

    def node_started(self, incarnation: Incarnation) -> None:
        """Record that an incarnation begins."""
        self._incarnations.append(incarnation)
        self.note(incarnation.node_id, "start", str(incarnation.number))

    def node_died(self, incarnation: Incarnation, loss: Loss) -> None:
        """End an incarnation: break its connections, and let its disks lose data according to
        `loss`.

        A power loss affects every disk. Without a power loss, only disks that dropped pages lose
        data.
        """
        self.network.process_died(incarnation, power_lost=loss is not Loss.NONE)
        if loss is not Loss.NONE:
            for (node_id, directory), disk in self.disks.items():
                is_struck = incarnation.died_with_power or disk.has_dropped
                if node_id == incarnation.node_id and is_struck:
                    incarnation.struck_disks[disk] = disk.has_dropped
                    draw = stream(self.seed, "loss", node_id, directory, incarnation.number)
                    for line in disk.lose_power(draw, loss):
                        self.note(node_id, "lost data", line)
        self.on_death(incarnation, loss)

    def loss_of(self, node_id: int, wanted: Loss) -> Loss:
        """Return which loss of unsynced data a node's disks suffer when its process ends, at least
        `wanted`.

        Pages that a failed fsync dropped are lost in any case, even without a power loss.
        """
        if wanted is Loss.NONE and self.has_dropped(node_id):
            return Loss.ALL_UNSYNCED
        return wanted

    def has_dropped(self, node_id: int) -> bool:
        """Return whether a node reads pages that a failed fsync dropped (SimDisk.has_dropped)."""
        return any(owner == node_id and disk.has_dropped for (owner, _), disk in self.disks.items())

    def is_damaged(self, node_id: int) -> bool:
        """Return whether a node's files still contain flipped bits."""
        return any(owner == node_id and disk.is_damaged for (owner, _), disk in self.disks.items())

    def node_halted(self, incarnation: Incarnation, reason: str) -> None:
        """End a node that halts itself."""
        self.note(incarnation.node_id, "halt", reason)
        if self.on_halt is not None:
            self.on_halt(incarnation, reason)
        else:
            self.violate(f"node {incarnation.node_id} halted: {reason}")
        incarnation.die(Loss.NONE, f"halt: {reason}", judged=False)

    # Events

    def violate(self, what: str) -> None:
        """Record a violation."""
        self.violations.append(f"{self.scheduler.now_ns / 1e9:.6f} s: {what}")
        self.note(-1, "violation", what.partition("\n")[0])

    def _unhandled(self, owner: EventOwner | None, what: str, error: BaseException) -> None:
        if owner is None:
            raise error  # a defect of the simulator itself
        text = "".join(traceback.format_exception(error))
        self.violate(f"node {owner.node_id}: unhandled ({what}) {error!r}\n{text}")

    # Running

    def run_until(self, time_ns: int) -> None:
        """Run to an instant; stop early after a violation."""
        scheduler = self.scheduler
        violations = self.violations
        while not violations:
            next_ns = scheduler.next_time_ns()
            if next_ns is None or next_ns > time_ns:
                scheduler.now_ns = max(scheduler.now_ns, time_ns)
                return
            scheduler.run_next()

    def run_while(self, unfinished: Callable[[], bool], limit_ns: int) -> bool:
        """Run while `unfinished()` holds.

        Return False if the limit was reached, an invariant was violated, or no event was left.
        """
        scheduler = self.scheduler
        while unfinished():
            next_ns = scheduler.next_time_ns()
            if self.violations or next_ns is None or next_ns > limit_ns:
                return False
            scheduler.run_next()
        return True

    def check(self) -> None:
        """Raise ViolationError if there was a violation."""
        if self.violations:
            raise ViolationError(self.violations[0])

    def close(self) -> None:
        """End the run; close the remaining coroutines without executing any of their code."""
        for incarnation in self._incarnations:
            incarnation.bury()
        self._incarnations.clear()


class CollectorPaused:
    """A context in which Python's garbage collector does not run by itself, for the time of
    simulated runs.

    If the collector ran by itself, the use of memory would determine when it collects a coroutine,
    which then runs its `finally` blocks. Objects from before the runs are frozen (`gc.freeze`), so
    that the collection at the end visits only objects of the runs. If the program has frozen
    objects itself, all frozen objects stay frozen after the runs.
    """

    #: Whether the program has frozen objects. It is determined only once, because counting frozen
    #: objects takes long.
    _is_program_frozen = False

    def __enter__(self) -> None:
        self._was_enabled = gc.isenabled()
        if not CollectorPaused._is_program_frozen:
            CollectorPaused._is_program_frozen = gc.get_freeze_count() > 0
        self._is_to_unfreeze = not CollectorPaused._is_program_frozen
        gc.disable()
        gc.freeze()

    def __exit__(self, *_: object) -> None:
        gc.collect()
        if self._is_to_unfreeze:
            gc.unfreeze()
        if self._was_enabled:
            gc.enable()
