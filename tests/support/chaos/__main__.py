"""Faults for some minutes on a real cluster with real clients, and a verdict.

`python -m tests.support.chaos --minutes 10 --store embedded|zookeeper --seed N`: three brokers,
four producers and five consumers of three libraries, each in a process of its own. The seed draws
the schedule of faults, which is printed first; each fault is printed again with its time when it
strikes. When the faults are over, every client must make progress again and end in order; then the
log and what the clients wrote are judged. The exit code is 0 only if nothing is wrong; otherwise
the event files, the logs of clients and brokers, and the data stay, and their place is printed.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.chaos import schedule
from tests.support.chaos.beside import Beside
from tests.support.chaos.brokers import PARTITIONS, SESSION_S, TOPIC, Brokers
from tests.support.chaos.crew import Crew, Member
from tests.support.chaos.disks import enter_namespace
from tests.support.chaos.judging import Content, Told, Verdict, judge

from tidelog.core.types import TopicPartition
from tidelog.local import LocalClusterError
from tidelog.local.java import find_java
from tidelog.local.zookeeper import find_jars
from tidelog.records.batch import iter_batches
from tidelog.records.reader import iter_records
from tidelog.runtime.blocking import BlockingClient

#: A client that makes no step for so long, with all brokers well, is hung. Longer than any timeout
#: of a library after which it tries again.
HUNG_S = 180.0
#: Acknowledged by partition after the faults: more than may have been on their way before.
MORE_ACKNOWLEDGED = 60
MORE_POLLED = 200
STORES = ("embedded", "zookeeper")


def kinds_of(store: str, *, small_disks: bool) -> list[str]:
    kinds = [schedule.KILL, schedule.EXPIRE, schedule.PAUSE]
    if store == "zookeeper":
        kinds.append(schedule.CLOSE)
    return [*kinds, schedule.FULL] if small_disks else kinds


class Run:
    """One run in a directory."""

    def __init__(
        self, directory: Path, store: str, seconds: float, seed: int, *, small_disks: bool
    ) -> None:
        self.directory = directory
        self.seconds = seconds
        self.store = store
        self.small_disks = small_disks
        kinds = kinds_of(store, small_disks=small_disks)
        self.faults = schedule.draw(seed, seconds, SESSION_S, kinds, PARTITIONS)
        self.brokers = Brokers(directory, store, small_disks=small_disks)
        self.troubles: list[str] = self.brokers.troubles
        self.say = self.brokers.say
        self.crew: Crew | None = None
        self._seed = seed

    def go(self) -> Verdict:
        """Run everything; returns the verdict of the events, `troubles` holds all else."""
        self._announce()
        self.brokers.up()
        self.say("the cluster is up")
        crew = self.crew = Crew(self.directory / "clients", self.brokers.bootstrap)
        crew.troubles = self.troubles
        crew.await_all(crew.members, self._goes_on(crew.members, 1), "first step", HUNG_S)
        self.say("all clients are at work")
        beside = Beside(self.brokers.bootstrap, TOPIC, self._seed, self.troubles)
        beside.begin()
        self._strike()
        beside.stop()
        self.brokers.heal()
        self._end(beside)
        crew.follow()
        self._last(crew)
        self.say("the faults are over and all replicas in sync")
        stuck = crew.await_all(
            crew.members, self._goes_on(crew.members), "step after the faults", HUNG_S
        )
        self.say(f"{len(crew.members) - len(stuck)} clients go on, {len(stuck)} do not")
        crew.finish([each for each in crew.producers if each not in stuck], HUNG_S)
        content = self._read_all()
        self.say("producers have ended")
        self._await_groups(crew, content)
        crew.finish([each for each in crew.consumers if each not in stuck], HUNG_S)
        self.say("consumers have ended")
        crew.close()
        crew.follow()
        self._check_commits(content)
        self._check_logs()
        told = [
            Told(each.process, each.events, each.group, "idempotent" in each.kind)
            for each in crew.members
        ]
        return judge(TOPIC, told, content)

    def _end(self, beside: Beside) -> None:
        """Do each act beside the faults once more, and say how often each was done."""
        beside.do_each()
        for name in beside.acts:
            done, cut_short = beside.done[name], beside.cut_short[name]
            why = beside.why.get(name, "")
            self.say(f"beside: {name}: done {done} times, cut short {cut_short} times{why}")

    def _last(self, crew: Crew) -> None:
        """Put an older store back, then let a directory hang; producers go on each time."""

        def go_on() -> None:
            reached = self._goes_on(crew.producers)
            crew.await_all(crew.producers, reached, "step beside what lasts", HUNG_S)

        if self.store == "embedded":
            self.brokers.put_older_store_back(go_on)
            self.brokers.heal()
            self.say("older store: every broker is back")
        if self.brokers.hang_directory(go_on):
            self.brokers.heal()
            self.say("hanging directory: its broker is back")

    def _announce(self) -> None:
        by_kind = dict.fromkeys((fault.kind for fault in self.faults), 0)
        for fault in self.faults:
            by_kind[fault.kind] += 1
            self.say(f"to come: {fault}")
        counts = ", ".join(f"{count} x {kind}" for kind, count in by_kind.items())
        self.say(f"{len(self.faults)} faults in {self.seconds:.0f} s: {counts}")
        if not self.small_disks:
            self.say("left out: full disks, which need root and unshare to mount small ones")

    def _goes_on(self, members: Sequence[Member], least: int = 0) -> Callable[[Member], bool]:
        """Whether a client has done enough since now."""
        acknowledged = {each.process: dict(each.by_partition) for each in members}
        polled = {each.process: each.polled for each in members}
        more = least or MORE_ACKNOWLEDGED

        def reached(member: Member) -> bool:
            if not member.is_producer:
                return member.polled >= polled[member.process] + (least or MORE_POLLED)
            before = acknowledged[member.process]
            return all(
                member.by_partition.get(number, 0) >= before.get(number, 0) + more
                for number in range(PARTITIONS)
            )

        return reached

    def _strike(self) -> None:
        """Begin and end every fault at its time, or as soon after it as the one before allows."""
        moments = sorted(
            [(fault.begin_s, 0, number) for number, fault in enumerate(self.faults)]
            + [(fault.end_s, 1, number) for number, fault in enumerate(self.faults)]
        )
        began_s = time.monotonic()
        struck = 0
        late_s = 0.0
        for at_s, is_end, number in moments:
            # What took longer than planned shifts what follows: faults keep their lengths.
            wait_s = at_s + late_s - (time.monotonic() - began_s)
            if wait_s > 0:
                time.sleep(wait_s)  # a fault has a length
            late_s = max(late_s, (time.monotonic() - began_s) - at_s)
            if is_end:
                self.brokers.end(self.faults[number])
            elif late_s > self.seconds + HUNG_S:
                self.troubles.append(f"faults lag behind their schedule by {late_s:.0f} s")
                return
            else:
                struck = self.brokers.begin(self.faults[number], struck)
            if self.crew is not None:
                self.crew.follow()

    def _read_all(self) -> Content:
        """Read every partition to its end."""
        found: dict[int, list[tuple[int, str]]] = {}
        with BlockingClient(self.brokers.bootstrap, timeout_ms=int(HUNG_S * 1000)) as client:
            for number in range(PARTITIONS):
                tp = TopicPartition(TOPIC, number)
                end = client.list_offsets({tp: -1})[tp].offset
                values = found[number] = []
                offset = 0
                while offset < end:
                    for batch in iter_batches(client.fetch(tp, offset).records):
                        values += [
                            (each.offset, (each.value or b"").decode().rpartition(" ")[0])
                            for each in iter_records(batch)
                            if each.offset >= offset
                        ]
                        offset = batch.next_offset
        return found

    def _await_groups(self, crew: Crew, content: Content) -> None:
        """Let every group come to the end of the log."""
        ends = {number: listed[-1][0] + 1 for number, listed in content.items() if listed}
        for group in dict.fromkeys(each.group for each in crew.consumers):
            members = [each for each in crew.consumers if each.group == group]
            last_step_s, seen = time.monotonic(), -1
            while True:
                crew.follow()
                positions = positions_of(members)
                if all(positions.get(number, 0) >= end for number, end in ends.items()):
                    break
                polled = sum(each.polled for each in members)
                if polled != seen:
                    last_step_s, seen = time.monotonic(), polled
                if time.monotonic() - last_step_s > HUNG_S:
                    self.troubles.append(
                        f"group {group} is hung at {positions} before the ends {ends}"
                    )
                    break
                time.sleep(0.1)

    def _check_commits(self, content: Content) -> None:
        """Every group has committed the end of every partition, and no more."""
        ends = {
            TopicPartition(TOPIC, number): listed[-1][0] + 1
            for number, listed in content.items()
            if listed
        }
        assert self.crew is not None
        ended = {each.group for each in self.crew.consumers if each.has_ended}
        with BlockingClient(self.brokers.bootstrap, timeout_ms=int(HUNG_S * 1000)) as client:
            for group in sorted(ended):
                committed = {
                    tp: each.offset for tp, each in client.committed(group, list(ends)).items()
                }
                if committed != ends:
                    self.troubles.append(
                        f"group {group} has committed {committed}, and the log ends at {ends}"
                    )

    def _check_logs(self) -> None:
        for broker in (1, 2, 3):
            lines = self.brokers.log_of(broker).splitlines()
            at = [number for number, line in enumerate(lines) if line.startswith("Traceback")]
            if at:
                shown = "\n    ".join(lines[max(0, at[0] - 1) : at[0] + 25])
                self.troubles.append(f"broker {broker} logged {len(at)} tracebacks:\n    {shown}")


def positions_of(members: Sequence[Member]) -> dict[int, int]:
    """By partition: the offset behind the last that any of them polled."""
    found: dict[int, int] = {}
    for member in members:
        for event in member.events:
            if event[1] == "poll":
                for partition, offset, _ in event[2]:
                    found[partition] = max(found.get(partition, 0), offset + 1)
    return found


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--store", choices=STORES, default="embedded")
    parser.add_argument("--seed", type=int, default=None, help="a random one where it is missing")
    parser.add_argument("--keep", action="store_true", help="keep the files of a good run, too")
    options = parser.parse_args(words)
    if options.minutes <= 0:
        parser.error("--minutes: more than 0 are needed")
    seed = int(time.time()) if options.seed is None else options.seed
    if options.store == "zookeeper":
        try:
            find_java(11)
            find_jars()
        except LocalClusterError as error:
            print(f"chaos on zookeeper is left out: {error}", flush=True)  # noqa: T201
            return 0
    small_disks = enter_namespace(sys.argv[1:])
    directory = Path(tempfile.mkdtemp(prefix="tidelog-chaos-"))
    run = Run(directory, options.store, options.minutes * 60, seed, small_disks=small_disks)
    run.say(f"chaos on {options.store}, seed {seed}, in {directory}")
    verdict = Verdict()
    try:
        verdict = run.go()
    except Exception as error:
        run.troubles.append(f"the run itself failed: {error!r}")
        raise
    finally:
        is_good = not run.troubles and not verdict.troubles and verdict.in_log > 0
        if run.crew is not None:
            run.crew.close()
        run.brokers.close()
        if is_good and not options.keep:
            shutil.rmtree(directory, ignore_errors=True)
        else:
            run.brokers.keep_data(directory / "data")
        report(run, verdict, options.store, seed, directory if not is_good else None)
    return 0 if is_good else 1


def report(run: Run, verdict: Verdict, store: str, seed: int, kept: Path | None) -> None:
    run.say(
        f"sent {verdict.sent}, acknowledged {verdict.acknowledged}, unsure {verdict.unsure},"
        f" in the log {verdict.in_log}; polled {verdict.polled}, {verdict.commits} commits,"
        f" {verdict.refused_commits} refused; allowed: {verdict.allowed or 'nothing'}"
    )
    for trouble in (*run.troubles, *verdict.troubles):
        run.say(f"WRONG {trouble}")
    if kept is not None:
        run.say(f"events, logs and data are kept in {kept}")
    verdict_text = "nothing is wrong" if kept is None else "chaos found troubles"
    run.say(f"{verdict_text}: {len(run.brokers.struck)} faults on {store}, seed {seed}")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
