"""Commands of the guides, typed in order; what they print has the shape that the guides show.

A guide shows sessions in a terminal: a line after `$` is a command, the lines below are what it
prints. Numbers, sizes and names of files differ from run to run, so their shapes are compared.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pytest
from tests.guide.documents import PATIENCE_S, ROOT, Terminal, sections

from tidelog.local import LocalCluster
from tidelog.runtime.blocking import BlockingClient

GUIDES: Final = ROOT / "docs" / "guide"
#: Where the sessions of a guide were typed.
_TYPED_IN: Final = "/tmp/walk"
_BLOCK = re.compile(r"^```\n(\$ .*?)^```$", re.MULTILINE | re.DOTALL)
_SIZE = re.compile(r"\d[\d.,]* (?:B|KiB|MiB|GiB|TiB)\b")
_ID = re.compile(r"\bid [\w-]{22}(?!\w)")
_NUMBER = re.compile(r"\d[\d.,]*")
_LIST = re.compile(r"([\w-]*N[\w-]*)(?:,? ?\1)+")

#: Sections that no test types, and why.
NOT_TYPED: Final = {
    ("disks", "A disk is slow"): "takes minutes; tests/cluster/test_slow_directories.py does it",
    ("disks", "Balance the disks"): "needs two volumes; tests/cluster/test_drains.py has them",
    (
        "reassignment",
        "One command for a wish",
    ): "moves 318 MiB; tests/cluster/test_planned_moves.py",
    ("reassignment", "Progress"): "shows 318 MiB on the move; tests/unit/cli/test_move_watch.py",
    ("reassignment", "Queue"): "shows moves that wait; tests/unit/cli/test_move_queue.py",
    ("reassignment", "Cancel"): "shows a broker that hangs; tests/unit/cli/test_reassigning.py",
}
#: Guides whose commands a test of this folder types, as far as it goes.
GUIDES_TYPED: Final = {
    "clients",
    "disks",
    "durability",
    "older-store",
    "reassignment",
    "simulation",
    "testing",
}
NOT_TYPED_GUIDES: Final = {
    "observing": "tests/cluster/test_admin_port.py asks what the guide asks",
    "operating": "needs Kafka's tools; tests/clients/test_tools_gaps.py sets levels of loggers",
    "spark": "its commands are those of tests/spark",
    "zookeeper": "needs ZooKeeper; tests/cluster/test_zookeeper.py does what the guide does",
}
#: Commands that need another state than the session before them leaves.
NOT_REPEATED: Final = ("is too small: N of N bytes are left",)


@dataclass(frozen=True, slots=True)
class Typed:
    """A command and what the guide shows below it."""

    command: str
    shown: list[str]


def sessions(guide: str) -> dict[str, list[Typed]]:
    """The commands of each section, in order."""
    text = (GUIDES / f"{guide}.md").read_text(encoding="utf-8")
    found = {}
    for part in text.split("\n## ")[1:]:
        title, _, body = part.partition("\n")
        commands: list[Typed] = []
        for block in _BLOCK.findall(body):
            for each in f"\n{block}".split("\n$ ")[1:]:
                command, _, shown = each.partition("\n")
                commands.append(Typed(command, shown.splitlines()))
        if commands:
            found[title] = commands
    return found


def shape(line: str, directory: str) -> str:
    """A line without what differs from run to run."""
    line = line.replace(f"{directory}/tidelog-cluster", "DIR").replace(_TYPED_IN, "DIR")
    line = line.replace(" --dir DIR", "")
    line = _ID.sub("id X", line)
    line = _NUMBER.sub("N", _SIZE.sub("SIZE", line))
    return _LIST.sub(r"\1", " ".join(line.split()))


def shapes(lines: list[str], directory: str) -> set[str]:
    """Sentences, and headers of tables; rows of tables depend on where replicas happened to be."""
    found, is_table = set(), False
    for line in lines:
        if not line.strip():
            is_table = False
        elif set(line.strip()) == {"─"}:
            is_table = True
        elif is_table and "  " in line.strip():
            continue
        else:
            is_table = False
            found.add(shape(line, directory))
    return found


def type_section(terminal: Terminal, typed: list[Typed]) -> None:
    """Type the commands of a section; each must print what the guide shows.

    A reader asks for the health again until the cluster has noticed what he did.
    """
    directory = str(terminal.directory)
    for each in typed:
        expected = shapes(each.shown, directory)
        if any(part in line for line in expected for part in NOT_REPEATED):
            continue
        command = each.command.replace(_TYPED_IN, f"{directory}/tidelog-cluster")
        name = command.removeprefix("cat ")
        if command != name and not (terminal.directory / name).exists():
            terminal.save({name: "\n".join(each.shown) + "\n"})
            continue
        is_health = command.startswith("tidelog health")
        deadline = time.monotonic() + (PATIENCE_S if is_health else 0.0)
        while True:
            done = typed_into(terminal, command)
            missing = expected - shapes(done.stdout.splitlines(), directory)
            if not missing or time.monotonic() > deadline:
                break
        assert not missing, f"$ {command}\n{done.stdout}\nmissing: {missing}"
        is_refused = any(line.startswith("tidelog: ") for line in each.shown)
        assert is_health or (done.returncode != 0) is is_refused, f"$ {command}\n{done.stdout}"


def typed_into(terminal: Terminal, command: str) -> subprocess.CompletedProcess[str]:
    """What a command prints on a terminal, results and messages."""
    return subprocess.run(
        ["bash", "-c", f"{command} 2>&1"],
        cwd=terminal.directory,
        env=terminal.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def begin(terminal: Terminal, up: str, topic: str, config: Mapping[str, str]) -> None:
    keys = "".join(f" --config {key}={value}" for key, value in config.items())
    terminal.run(f"tidelog up {up}{keys}\n")
    terminal.run(f"tidelog topics create flights {topic}\n")


DISKS = sessions("disks")


@pytest.mark.parametrize(
    "titles",
    [
        ("A disk fails", "Replace it"),
        ("A disk is full",),
        ("Take a disk out of use",),
        ("Move replicas to another disk",),
    ],
    ids="-".join,
)
def test_the_guide_to_disks(terminal: Terminal, titles: tuple[str, ...]) -> None:
    quick = {"replica.lag.time.max.ms": "2000", "replica.fetch.wait.max.ms": "200"}
    begin(terminal, "-n 3 --log-dirs 2", "--partitions 4 --replication-factor 3", quick)
    cluster = LocalCluster.existing(str(terminal.directory / "tidelog-cluster"))
    for title in titles:
        type_section(terminal, located(DISKS[title], cluster))
        if title == "A disk fails":
            assert cluster.process(1) is not None, "the broker goes on with its other directory"


def located(typed: list[Typed], cluster: LocalCluster) -> list[Typed]:
    """The commands for partitions that are where the guide's were: on the disks of broker 1."""
    with BlockingClient(cluster.bootstrap) as client:
        partitions = client.metadata(["flights"]).topics["flights"].partitions
        held = {
            found.path[-1]: [
                each.tp
                for each in (*found.replicas, *found.last_known)
                if each.tp.topic == "flights"
            ]
            for found in client.describe_log_dirs(1)
        }
    followed = next(tp for tp in held["0"] if partitions[tp.partition].leader != 1)
    places = {
        "--topic-partition flights-1": f"--topic-partition {held['1'][0]}",
        "flights w1 -p 1": f"flights w1 -p {followed.partition}",
    }
    return [Typed(replaced(each.command, places), each.shown) for each in typed]


def replaced(text: str, places: Mapping[str, str]) -> str:
    for before, after in places.items():
        text = text.replace(before, after)
    return text


REASSIGNMENT = sessions("reassignment")


MOVES_TYPED: Final = ("Move", "Freeze", "Throttle")


def test_the_guide_to_reassignment(terminal: Terminal) -> None:
    begin(terminal, "-n 4", "--partitions 3 --replication-factor 2", {})
    for title in MOVES_TYPED:
        type_section(terminal, REASSIGNMENT[title])
        terminal.run("tidelog reassign list --watch\n")


def test_every_section_of_the_guides_is_typed_or_has_a_reason() -> None:
    typed = {"A disk fails", "Replace it", "A disk is full", "Take a disk out of use"}
    typed.add("Move replicas to another disk")
    assert DISKS.keys() == typed | {title for guide, title in NOT_TYPED if guide == "disks"}
    left = {title for guide, title in NOT_TYPED if guide == "reassignment"}
    assert REASSIGNMENT.keys() == {*MOVES_TYPED} | left


SIMULATION = sections(GUIDES / "simulation.md")


@pytest.mark.soak
def test_the_seeds_of_the_guide_to_the_simulator(terminal: Terminal) -> None:
    [commands] = SIMULATION["Run seeds"].commands
    terminal.run(commands)


def test_the_small_worlds_of_the_guide_to_the_simulator(terminal: Terminal) -> None:
    [commands] = SIMULATION["Search a part without a cluster"].commands
    printed = terminal.run(commands)
    assert printed.count(", 0 violations") == 4


def test_a_run_of_the_guide_to_the_simulator_becomes_a_page(terminal: Terminal) -> None:
    [commands] = SIMULATION["See a run in the browser"].commands
    printed = terminal.run(commands.splitlines()[0] + "\n")
    assert "page: run.html" in printed
    assert (terminal.directory / "run.html").read_text().startswith("<!doctype html>")


def test_the_mutant_of_the_guide_to_the_simulator(terminal: Terminal) -> None:
    section = SIMULATION["Run your own mutant"]
    terminal.save(section.files)
    mutant = section.named["mutant"].strip().replace("0..9", "0..0")
    printed = terminal.run(f"{mutant} && exit 1 || test $? = 1\n")
    assert "violations: " in printed


def test_single_commands_of_guides_with_few(terminal: Terminal) -> None:
    begin(terminal, "-n 1", "--partitions 1 --replication-factor 1", {})
    terminal.run("tidelog topics create payments --partitions 1 --replication-factor 1\n")
    [switch_on] = sections(GUIDES / "durability.md")["Switch it on"].commands
    terminal.run(switch_on)
    printed = terminal.run("tidelog configs describe --topic payments --key flush.before.ack\n")
    assert "true" in printed
    [backup] = sections(GUIDES / "older-store.md")["Take a backup"].commands
    terminal.run(backup)
    assert (terminal.directory / "metadata-backup.jsonl").stat().st_size > 0


def test_every_guide_with_commands_is_typed_or_has_a_reason() -> None:
    with_commands = {
        path.stem
        for path in GUIDES.glob("*.md")
        if re.search(r"^```sh|^\$ ", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert with_commands == GUIDES_TYPED | NOT_TYPED_GUIDES.keys()
