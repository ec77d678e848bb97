"""The quickstarts of docs/guide/clients.md, as a reader runs them: from `tidelog up` to the end.

The cluster is the one that the guide starts, and each program is killed a broker while it runs, by
the guide's own command.
"""

from __future__ import annotations

import re
import shlex
import threading
from collections.abc import Callable, Iterator

import pytest
from tests.guide.documents import (
    PATIENCE_S,
    ROOT,
    Section,
    Terminal,
    end,
    kill_all_of,
    sections,
)
from tests.support.clients import franz_program, kafkajs_packages
from tests.support.clients.absent import Absent
from tests.support.clients.jars import KAFKA, jars_of_kafka, jars_of_spark
from tests.support.clients.kafka_tools import MAINS, Tools
from tests.support.clients.kcat import needs_kcat

from tidelog.local import LocalCluster
from tidelog.runtime.blocking import BlockingClient

GUIDE = sections(ROOT / "docs" / "guide" / "clients.md")
PROGRAMS = ("confluent-kafka", "kafka-python", "aiokafka", "kafkajs", "franz-go", "Java")
OTHERS = ("A cluster", "kcat", "Kafka's command line tools", "PySpark", "The end")
#: What a program says when it has begun, and what it says last.
STARTED = "now kill a broker\n"
WHOLE = "1000 acknowledged, 1000 read"
KAFKA_VERSION = KAFKA[-1]


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """Where the guide's cluster runs."""
    terminal = Terminal(tmp_path_factory.mktemp("quickstarts"))
    start, [down] = GUIDE["A cluster"], GUIDE["The end"].commands
    try:
        terminal.run_exporting(start.commands[0], "TIDELOG_BOOTSTRAP")
        yield terminal
    finally:
        terminal.run(down)


@pytest.fixture
def in_sync(terminal: Terminal) -> Callable[[], None]:
    """Wait until all brokers are back, as a reader sees from `tidelog status`."""
    directory = str(terminal.directory / "tidelog-cluster")
    return lambda: LocalCluster.existing(directory).await_full_isrs(PATIENCE_S)


def kafka_home(terminal: Terminal) -> None:
    """A directory with the jars and the scripts of a Kafka download."""
    home = terminal.directory / "kafka"
    if not home.exists():
        tools = Tools(KAFKA_VERSION)
        (home / "bin").mkdir(parents=True)
        (home / "libs").symlink_to(jars_of_kafka(KAFKA_VERSION))
        for name in MAINS:
            script = home / "bin" / f"{name}.sh"
            script.write_text(f'#!/bin/sh\nexec {shlex.join(tools.words(name))} "$@"\n')
            script.chmod(0o755)
    terminal.environment["KAFKA_HOME"] = str(home)


def prepare(terminal: Terminal, section: Section) -> None:
    """What a reader's package manager does; raises Absent where a runtime is missing."""
    if section.title == "kafkajs":
        terminal.environment["NODE_PATH"] = str(kafkajs_packages.packages())
    elif section.title == "franz-go":
        franz_program.program()  # what it is built of is what the quickstart needs
        for name in ("go.mod", "go.sum"):
            text = (franz_program.HERE / name).read_text(encoding="utf-8")
            terminal.save({name: text})
        terminal.environment |= {"GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"}
    elif section.title in ("Java", "Kafka's command line tools"):
        kafka_home(terminal)
    terminal.save(section.files)


def ready(terminal: Terminal, title: str) -> Section:
    try:
        prepare(terminal, GUIDE[title])
    except Absent as absent:
        pytest.skip(f"{title}: {absent}")
    return GUIDE[title]


def test_every_section_is_run_here() -> None:
    assert sorted(GUIDE) == sorted([*PROGRAMS, *OTHERS])


def coordinator_of(terminal: Terminal, group: str) -> int:
    """The broker that coordinates a group, of which nothing need be known yet."""
    cluster = LocalCluster.existing(str(terminal.directory / "tidelog-cluster"))
    with BlockingClient(cluster.bootstrap) as client:
        return client.describe_group(group).coordinator.broker_id


@pytest.mark.parametrize("title", PROGRAMS)
def test_a_program_survives_a_kill(
    terminal: Terminal, in_sync: Callable[[], None], title: str
) -> None:
    survives(terminal, in_sync, title, killed_by=lambda command: command)


def test_aiokafka_survives_the_death_of_its_coordinator(
    terminal: Terminal, in_sync: Callable[[], None]
) -> None:
    """Its last commit looks for no other coordinator: the example does not leave it that one."""

    def of_the_coordinator(command: str) -> str:
        return command.replace("2", str(coordinator_of(terminal, "aiokafka")))

    survives(terminal, in_sync, "aiokafka", killed_by=of_the_coordinator)


def survives(
    terminal: Terminal,
    in_sync: Callable[[], None],
    title: str,
    killed_by: Callable[[str], str],
) -> None:
    """A program reads all that it writes, though a broker is killed in between; `killed_by` names
    another broker in the guide's commands, or the same."""
    section, cluster = ready(terminal, title), GUIDE["A cluster"]
    [command] = section.commands
    in_sync()
    running = terminal.start(command)
    # A program that hangs is ended, so that what it has said until then is shown.
    guard = threading.Timer(PATIENCE_S, kill_all_of, [running])
    guard.start()
    restart = ""
    try:
        assert running.stdout is not None
        first = running.stdout.readline()
        if first == STARTED:
            kill = killed_by(cluster.named["kill"])
            restart = killed_by(cluster.named["restart"])
            terminal.run(kill)
        output, errors = running.communicate()
    finally:
        guard.cancel()
        end(running)
        if restart:  # also for the programs that come after this one
            terminal.run(restart)
    assert first == STARTED, errors
    assert running.returncode == 0, errors
    assert output.splitlines()[-1] == WHOLE, errors


@needs_kcat
def test_a_group_of_kcat_goes_on_without_a_broker(
    terminal: Terminal, in_sync: Callable[[], None]
) -> None:
    write_and_read, after_a_kill = ready(terminal, "kcat").commands
    in_sync()
    assert terminal.run(write_and_read).split() == ["500"]
    read, described = terminal.run(after_a_kill).split("\n", 1)
    assert read.strip() == "1500"
    assert described.startswith("group kcat")


def test_kafkas_tools(terminal: Terminal, in_sync: Callable[[], None]) -> None:
    write_and_read, after_a_kill = ready(terminal, "Kafka's command line tools").commands
    in_sync()
    assert terminal.run(write_and_read).split()[-1] == "1000"
    terminal.environment["PATH"] = f"{terminal.directory}/kafka/bin:{terminal.environment['PATH']}"
    told = terminal.run(after_a_kill)
    assert "Leader: 2" not in told
    rows = [line.split() for line in told.splitlines() if line.startswith("tools")]
    # A partition that the consumer had not yet asked for when it had its thousand is not shown.
    assert sum(int(committed) for _, _, _, committed, *_ in rows) == 1000, told
    assert {lag for _, _, _, _, _, lag, *_ in rows} == {"0"}, told


def test_spark_reads_what_is_left(terminal: Terminal, in_sync: Callable[[], None]) -> None:
    section = GUIDE["PySpark"]
    ours, official = "orders_spark.py", "orders_official.py"
    assert list(section.files) == [ours, official]
    files = dict(section.files)
    commands = section.commands[0]
    try:
        jars = ",".join(str(path) for path in sorted(jars_of_spark("4.2.0").glob("*.jar")))
    except Absent as absent:
        commands = commands.replace(f"python {official} $TIDELOG_BOOTSTRAP\n", "")
        wanted, reason = 1, f"Spark's Kafka connector: {absent}"
    else:
        setting = '"spark.jars.packages", connector'
        assert files[official].count(setting) == 1
        files[official] = files[official].replace(setting, f'"spark.jars", "{jars}"')
        wanted, reason = 2, ""
    terminal.save(files)
    in_sync()
    terminal.run("seq 1 1000 | tidelog produce orders\n")
    counts = re.findall(r"^(\d+) orders, a broker being dead$", terminal.run(commands), re.M)
    assert len(counts) == wanted
    assert len(set(counts)) == 1 and int(counts[0]) >= 1000
    if reason:
        pytest.skip(reason)
