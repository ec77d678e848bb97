"""Run the parts of the test suite, and tell how each went.

`python tests/run.py check` is lint, types, contracts, tidy and unit tests; `test` is everything;
further words choose single parts. A part is a command, or a pytest run over one folder of tests/: a
folder that is not named here still runs. The parts of `soak` are what `make test` leaves to `make
soak`. Parts run side by side, and what they print is shown when they end. First come those that
compute, one per core (`--jobs`). Then come parts of real processes, which have timeouts to meet and
wait more than they compute: two more of them run than there are cores. Simulations and models
know no real time. They run beside all others from the beginning, at the lowest priority, in the
time in which those wait. Each part has a time limit. Counts and CPU time come from
pytest's JUnit files, skips are listed with their reasons, processes that a part left behind are an
error. The last line is `N passed, N failed, N skipped` with the reasons of the skips; the exit code
is 0 only if nothing failed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
BIN = Path(sys.executable).parent
#: Names a run to its processes, so that what they leave behind is found.
MARK = "TEST_RUN_OF_TIDELOG"
#: The niceness of parts that yield to others, and how many times longer they may take.
LOWEST, YIELDING_LIMIT = 19, 2
#: How many parts of real processes run beyond the number of cores.
MORE_THAN_CORES = 2
#: Of pytest's results (`tests/conftest.py`).
CPU_PROPERTY = "cpu_s"
#: A test file that cannot be read hides no other.
PYTEST_OPTIONS = ("--continue-on-collection-errors",)
#: A part of pytest that is at its limit gets SIGABRT first: pytest has faulthandler print where
#: every thread stands, which tells the test that hangs. pytest's own faulthandler_timeout is not
#: used: another thread prints then, without the GIL, and reads frames that a test which computes is
#: changing. That crashed Python 3.11 in the middle of a test that was slow and sound. The signal is
#: handled by the thread that computes, and only when the part has failed anyway.
TELL_WHERE, TELL_WHERE_S = signal.SIGABRT, 10
DECISIONS = ("controller", "replication", "group", "txn")
#: Tests of rules that are the only ones of some branches of the decision packages: each is stated
#: once, beside its rule, and runs here again, in a few seconds altogether.
DECISION_RULES = tuple(
    f"tests/rules/test_{name}_rules.py"
    for name in (
        "bad_isr_request",
        "cancel",
        "change_in_flight",
        "damaged_member",
        "direct",
        "display",
        "failed_directory",
        "full_directory",
        "held_expansion",
        "led_on",
        "move_throttle",
        "older_store",
        "pending_read",
        "queue",
        "reassignment",
        "recovery",
        "recreated_topic",
        "relinquishing",
        "request_node",
        "slow_directory",
        "superseded_change",
        "synced",
    )
)
#: How many times the usual number of examples is drawn (tests/support/draws.py), and takes as long.
EXAMPLES = int(os.environ.get("TIDELOG_TEST_EXAMPLES", "1"))


@dataclass(frozen=True, slots=True)
class Part:
    """One step: a command, or a pytest run whose results are counted one by one."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    pytest: bool = False
    limit_s: int = 600
    #: Real processes with timeouts to meet: parts that only compute leave the cores to them.
    has_processes: bool = False
    #: Of its environment, beside what there is.
    variables: tuple[tuple[str, str], ...] = ()
    #: Nothing but computing without real time: it runs beside all others, and yields to them.
    yields: bool = False


@dataclass(slots=True)
class Outcome:
    """How one part went."""

    part: str
    seconds: float
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    skips: Counter[str] = field(default_factory=Counter)
    expected_failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    #: CPU seconds of the tests and of all processes that they waited for.
    cpu_s: float = 0.0


def command(name: str, *words: str, limit_s: int = 600) -> Part:
    return Part(name, ((str(BIN / words[0]), *words[1:]),), limit_s=limit_s)


def pytest_part(
    name: str,
    *arguments: str,
    limit_s: int = 600,
    has_processes: bool = False,
    variables: tuple[tuple[str, str], ...] = (),
) -> Part:
    words = (sys.executable, "-m", "pytest", *arguments)
    return Part(name, (words,), True, limit_s * EXAMPLES, has_processes, variables)


def decisions() -> Part:
    """The tests of the decision packages, which must cover every branch of them."""
    coverage = (sys.executable, "-m", "coverage")
    folders = [f"tests/unit/{package}" for package in DECISIONS if has_tests(f"unit/{package}")]
    return Part(
        "decisions",
        (
            (*coverage, "run", "-m", "pytest", *folders, *DECISION_RULES),
            (*coverage, "report"),
        ),
        pytest=True,
    )


def has_tests(folder: str) -> bool:
    return any((TESTS / folder).rglob("test_*.py"))


def check_parts() -> list[Part]:
    ignored = [f"--ignore=tests/unit/{package}" for package in DECISIONS]
    return [
        command("ruff", "ruff", "check", "."),
        command("format", "ruff", "format", "--check", "."),
        command("mypy", "mypy"),
        command("contracts", "lint-imports"),
        pytest_part("tidy", "tests/tidy"),
        decisions(),
        # The longest of these: it begins first.
        pytest_part("unit", "tests/unit", *ignored, limit_s=1800),
    ]


def files(folder: str, *patterns: str) -> tuple[str, ...]:
    """The test files of a folder whose names match; none twice."""
    found = (path for pattern in patterns for path in sorted((TESTS / folder).glob(pattern)))
    return tuple(dict.fromkeys(f"tests/{folder}/{path.name}" for path in found))


#: Folders of tests/, in the order of the table, and other parts with a time limit of their own.
LIMITS_S = {
    "sim": 1800,
    "model": 900,
    "rules": 600,
    "wire_oracles": 300,
    "mutants": 600,
    "mutation": 600,
    "store": 600,
    "fuzz": 600,
    "clients": 900,
    "cluster": 1800,
    "testing": 900,
    "guide": 1800,
    "spark": 1800,
    "pipelines": 1800,
    "spark_kills": 1800,
    "matrix": 1500,
    "pythons": 900,
}
#: Tests of clusters that bring a store of their own: they are the same whatever the others run on.
OWN_STORE = tuple(
    f"tests/cluster/test_{name}.py"
    for name in (
        "audited_kafka",
        "chaos",
        "histories",
        "kafka_levels",
        "kafka_log_dirs",
        "kafka_peer_moves",
        "kafka_peers",
        "older_store",
        "zookeeper",
    )
)
PIPELINES = ("analyze", "audit", "copy", "demo", "ingest", "plan", "simulate")
#: Of a folder, what is a part of its own: no part may take much longer than all others.
SPLIT: dict[str, dict[str, tuple[str, ...]]] = {
    "sim": {
        # The longest: in a part of its own, it is not left over for one core at the end.
        "sim_mutants": ("tests/sim/test_mutants.py",),
        # Whole runs of seeds; these look at some of the same runs.
        "seeds": (
            "tests/sim/test_seeds.py",
            "tests/sim/test_scenarios_fire.py",
            "tests/sim/test_cluster_determinism.py",
        ),
    },
    "clients": {
        "matrix": ("tests/clients/test_matrix.py",),
        "tools": files("clients", "test_tools*.py"),
    },
    "cluster": {"own_store": OWN_STORE},
    # Each part has a Spark session of its own.
    "spark": {
        "pipelines": files("spark", *(f"test_{verb}*.py" for verb in PIPELINES)),
        "spark_kills": files(
            "spark",
            "test_killed*.py",
            "test_sink_kills.py",
            "test_moved*.py",
            "test_standalone.py",
        ),
    },
}
#: Tests of clusters to which the store makes no difference: disks, memory, bytes that clients send,
#: signals and streams of processes, plans, the command line. `make test` runs them on the embedded
#: store, `make soak` on ZooKeeper as well.
ANY_STORE = tuple(
    f"tests/cluster/test_{name}.py"
    for name in (
        "audited_directories",
        "bad_input",
        "command_line",
        "configurations",
        "connection_floods",
        "damaged_logs",
        "described_replicas",
        "directory_moves",
        "drains",
        "first_use",
        "full_directories",
        "full_disk",
        "group_abuse",
        "late_frames",
        "life",
        "log_dir_commands",
        "log_rotation",
        "long_requests",
        "lost_page_caches",
        "operating",
        "planned_moves",
        "power_failures",
        "protocol_abuse",
        "receive_memory",
        "refused_requests",
        "response_memory",
        "signals",
        "slow_directories",
        "slow_reads",
        "standard_streams",
    )
)
#: On each other Python, `make soak` runs whole parts: a part of its own.
PYTHONS = "tests/pythons"
#: Those whose tests only compute; any other folder may hold real processes with timeouts.
COMPUTING = ("sim", "rules", "wire_oracles", "mutants", "mutation", "model")
#: Parts of real processes that take longest, the longest first.
LONGEST = ("pipelines", "spark", "cluster", "own_store", "zookeeper", "guide", "spark_kills")
#: Parts that know no real time.
YIELDING = ("sim", "sim_mutants", "seeds", "model")


def all_parts() -> list[Part]:
    parts = check_parts()
    # Before the parts whose JVMs use the archives.
    parts.append(command("archives", "python", "-m", "tests.archived_programs", limit_s=900))
    folders = sorted(path.name for path in TESTS.iterdir() if path.is_dir())
    others = [name for name in folders if name not in ("unit", "tidy", *LIMITS_S)]
    for name in (*LIMITS_S, *others):
        if (TESTS / name).is_dir() and has_tests(name):
            limit_s, is_real = LIMITS_S.get(name, 600), name not in COMPUTING
            words = [f"tests/{name}"]
            split = SPLIT.get(name, {})
            words += [f"--ignore={path}" for files in split.values() for path in files]
            for part, paths in {name: tuple(words), **split}.items():
                limit_s = LIMITS_S.get(part, limit_s)
                made = pytest_part(part, *paths, limit_s=limit_s, has_processes=is_real)
                parts.append(replace(made, yields=part in YIELDING))
        if name == "cluster":
            parts.append(cluster_on_zookeeper())
    return parts


def cluster_on_zookeeper() -> Part:
    """The tests of clusters once more, every cluster on a ZooKeeper server of its own."""
    others = (*OWN_STORE, *ANY_STORE)
    ignored = (f"--ignore={path}" for path in others)
    return on_zookeeper("zookeeper", "tests/cluster", *ignored, limit_s=1200)


def on_zookeeper(name: str, *words: str, limit_s: int) -> Part:
    store = (("TIDELOG_TEST_STORE", "zookeeper"),)
    return pytest_part(name, *words, limit_s=limit_s, has_processes=True, variables=store)


def soak_parts() -> list[Part]:
    """What `make test` leaves to `make soak`: tests marked so, and tests on the other store."""
    marked = [path for path in TESTS.rglob("test_*.py") if "@pytest.mark.soak" in path.read_text()]
    folders = sorted({f"tests/{path.relative_to(TESTS).parts[0]}" for path in marked})
    folders.remove(PYTHONS)
    return [
        pytest_part("marked", *folders, "--soak", limit_s=3600, has_processes=True),
        pytest_part("all_pythons", PYTHONS, "--soak", limit_s=2 * 3600, has_processes=True),
        on_zookeeper("any_store", *ANY_STORE, limit_s=2400),
    ]


class Runner:
    """Runs parts; each carries a mark of its own, so that what it leaves behind is found."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._run_id = secrets.token_hex(8)
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def run(self, parts: list[Part], jobs: int) -> list[Outcome]:
        """The outcomes, in the order of the parts."""
        order = sorted(parts, key=when)
        if jobs > 1 and len(parts) > 1:
            outcomes = self._side_by_side(order, jobs)
        else:
            outcomes = {}
            for part in sorted(order, key=lambda part: part.has_processes or part.yields):
                print(f"\n=== {part.name}", flush=True)
                outcomes[part.name] = self._run(part, None)
        return [outcomes[part.name] for part in parts]

    def _side_by_side(self, parts: list[Part], jobs: int) -> dict[str, Outcome]:
        yielding = [part for part in parts if part.yields]
        waiting = [part for part in parts if part.has_processes]
        computing = [part for part in parts if not part.yields and not part.has_processes]
        with (
            ThreadPoolExecutor(jobs) as beside,
            ThreadPoolExecutor(jobs) as first,
            ThreadPoolExecutor(jobs + MORE_THAN_CORES) as then,
        ):
            begun = [beside.submit(self._run_and_show, part) for part in yielding]
            begun += [first.submit(self._run_and_show, part) for part in computing]
            try:
                wait(begun[len(yielding) :])
                begun += [then.submit(self._run_and_show, part) for part in waiting]
                return {outcome.part: outcome for outcome in (each.result() for each in begun)}
            except BaseException:
                self._stop()
                raise

    def _run_and_show(self, part: Part) -> Outcome:
        """Run a part beside others; what it prints is shown when it has ended."""
        path = self._scratch / f"{part.name}.out"
        with path.open("wb") as out:
            outcome = self._run(part, out)
        told = path.read_text(encoding="utf-8", errors="replace").rstrip()
        with self._lock:
            print(f"\n=== {part.name}, {outcome.seconds:.1f} s\n{told}", flush=True)
        return outcome

    def _run(self, part: Part, out: BinaryIO | None) -> Outcome:
        """Run one part to its end or its limit."""
        started = time.monotonic()
        outcome = Outcome(part.name, 0.0)
        results = self._scratch / f"{part.name}.xml"
        mark = f"{self._run_id}-{part.name}"
        yields = out is not None and part.yields
        limit_of_all_s = part.limit_s * (YIELDING_LIMIT if yields else 1)
        for number, words in enumerate(part.commands):
            is_pytest = part.pytest and number == 0
            if is_pytest:
                words = (*words, *PYTEST_OPTIONS, f"--junitxml={results}")
            environment = {**os.environ, **dict(part.variables), MARK: mark}
            # Hundreds of processes would compile the same modules, a quarter of each one's start.
            environment.pop("PYTHONDONTWRITEBYTECODE", None)
            limit_s = limit_of_all_s - (time.monotonic() - started)
            code = self._call(words, limit_s, environment, out, is_pytest, yields)
            if is_pytest and results.exists():
                count(results, outcome)
            if code != 0 and (not is_pytest or outcome.failed == 0):
                outcome.failed += 1
                outcome.notes.append(f"{' '.join((Path(words[0]).name, *words[1:3]))}: {code}")
            elif not is_pytest:
                outcome.passed += 1
        for left in leftovers(mark, grace_s=5.0):
            outcome.failed += 1
            outcome.notes.append(f"left running: {left}")
        outcome.seconds = time.monotonic() - started
        return outcome

    def _call(
        self,
        words: tuple[str, ...],
        limit_s: float,
        environment: dict[str, str],
        out: BinaryIO | None,
        is_pytest: bool,
        yields: bool,
    ) -> int | str:
        """The exit code of a command, which is ended with its whole group at its limit."""
        with self._lock:
            if self._stopped:
                return "not run: the tests were stopped"
            process = subprocess.Popen(
                words,
                cwd=ROOT,
                env=environment,
                start_new_session=True,
                stdout=out,
                stderr=out and subprocess.STDOUT,
            )
            self._processes.add(process)
        if yields:
            yield_to_others(process.pid)
        try:
            return process.wait(timeout=max(limit_s, 1))
        except subprocess.TimeoutExpired:
            if is_pytest:
                process.send_signal(TELL_WHERE)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(TELL_WHERE_S)
                with contextlib.suppress(ProcessLookupError):  # the others of its group
                    os.killpg(process.pid, signal.SIGKILL)
            return "no end within its time limit"
        finally:
            with self._lock:
                self._processes.discard(process)
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _stop(self) -> None:
        """End what runs and begin nothing more."""
        with self._lock:
            self._stopped = True
            for process in self._processes:
                os.killpg(process.pid, signal.SIGKILL)


def when(part: Part) -> tuple[int, int]:
    """The place of a part in the order; the longest begin first, so that none is left over."""
    is_long = part.name in LONGEST
    return LONGEST.index(part.name) if is_long else len(LONGEST), -part.limit_s


def yield_to_others(pid: int) -> None:
    """Give a process, and those that it will start, the lowest priority.

    Where the kernel schedules sessions as groups (sched_autogroup), a group has a niceness as well.
    """
    with contextlib.suppress(ProcessLookupError):
        os.setpriority(os.PRIO_PROCESS, pid, LOWEST)
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        Path(f"/proc/{pid}/autogroup").write_text(str(LOWEST))


def count(results: Path, outcome: Outcome) -> None:
    """Add what a JUnit file says of tests to an outcome."""
    root = ElementTree.parse(results).getroot()
    for each in root.iter("property"):
        if each.get("name") == CPU_PROPERTY:
            outcome.cpu_s += float(each.get("value", ""))
    for case in root.iter("testcase"):
        kinds = {child.tag: child for child in case}
        if "failure" in kinds or "error" in kinds:
            outcome.failed += 1
        elif "skipped" in kinds:
            reason = kinds["skipped"].get("message") or "no reason given"
            if kinds["skipped"].get("type") == "pytest.xfail":
                outcome.passed += 1
                outcome.expected_failures.append(f"{case.get('name')}: {reason}")
            else:
                outcome.skipped += 1
                outcome.skips[reason] += 1
        else:
            outcome.passed += 1


def leftovers(mark: str, grace_s: float) -> list[str]:
    """Processes that outlived their part although they had time to end; they are killed."""
    deadline = time.monotonic() + grace_s
    while (found := processes_of(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return [f"{pid} {words}" for pid, words in found.items()]


def processes_of(mark: str) -> dict[int, str]:
    """The live processes that carry the mark of this run, with their command lines."""
    found = {}
    wanted = f"{MARK}={mark}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            marked = wanted in (entry / "environ").read_bytes().split(b"\0")
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it ended meanwhile, or belongs to somebody else
            continue
        if marked and state != "Z" and int(entry.name) != os.getpid():
            found[int(entry.name)] = words.strip()
    return found


def report(outcomes: list[Outcome], seconds: float) -> bool:
    """Print the table and the closing line; True if nothing failed."""
    names = ("seconds", "CPU s", "passed", "failed", "skipped")
    print(f"\n{'part':<14}{''.join(f'{name:>8}' for name in names)}")
    for outcome in outcomes:
        print(
            f"{outcome.part:<14}{outcome.seconds:>8.1f}{outcome.cpu_s:>8.1f}{outcome.passed:>8}"
            f"{outcome.failed:>8}{outcome.skipped:>8}"
        )
    print(f"{'all':<14}{seconds:>8.1f}{sum(outcome.cpu_s for outcome in outcomes):>8.1f}")
    for outcome in outcomes:
        for note in outcome.notes:
            print(f"FAILED {outcome.part}: {note}")
        for reason, times in sorted(outcome.skips.items()):
            print(f"skipped {times} in {outcome.part}: {reason}")
        for test in outcome.expected_failures:
            print(f"failed as expected in {outcome.part}: {test}")
    passed = sum(outcome.passed for outcome in outcomes)
    failed = sum(outcome.failed for outcome in outcomes)
    skipped = sum(outcome.skipped for outcome in outcomes)
    skips = sum((outcome.skips for outcome in outcomes), Counter[str]())
    reasons = "; ".join(f"{times} {reason}" for reason, times in sorted(skips.items()))
    print(
        f"{passed} passed, {failed} failed, {skipped} skipped{f' ({reasons})' if reasons else ''}",
        flush=True,
    )
    return failed == 0 and passed > 0


def chosen(words: list[str]) -> list[Part]:
    """The parts that the command line asks for; exits with 2 for a name that is none."""
    sets = {"check": check_parts(), "test": all_parts(), "soak": soak_parts()}
    parts = {part.name: part for each in (sets["test"], sets["soak"]) for part in each}
    names: list[str] = []
    for word in words or ["test"]:
        if word in sets:
            names += [part.name for part in sets[word]] if len(words) <= 1 else []
        elif word in parts:
            names.append(word)
        else:
            sys.exit(f"no part {word!r}: {', '.join(sets)} or one of {', '.join(parts)}")
    return [parts[name] for name in dict.fromkeys(names)]


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the tests part by part.")
    parser.add_argument("parts", nargs="*", help="check, test, soak, or names of parts")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--jobs", type=int, default=cores, help="parts side by side (%(default)s)")
    options = parser.parse_args()
    parts = chosen(options.parts)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tidelog-tests-") as scratch:
        outcomes = Runner(Path(scratch)).run(parts, max(options.jobs, 1))
    return 0 if report(outcomes, time.monotonic() - started) else 1


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
