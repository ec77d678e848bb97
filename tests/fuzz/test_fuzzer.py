"""The fuzzer finds: bugs behind conditions that chance does not meet, and tells the input."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from tests.fuzz import corpus, planted, session
from tests.fuzz.fuzzer import Fuzzer
from tests.fuzz.mutation import mutated
from tests.fuzz.record_targets import repaired
from tests.fuzz.targets import TARGETS
from tests.fuzz.tracing import TooManyLines, Tracer

from tidelog.records.batch import BatchView, CorruptBatch, check
from tidelog.records.builder import NewRecord, build_batch

EXECUTIONS = 30_000


class Planted:
    """`planted.check`, which lies outside of the package."""

    name = "planted"
    traced = (planted.__file__,)
    max_lines = 1_000
    max_lines_per_byte = 10

    def seeds(self) -> Iterator[bytes]:
        yield bytes(8)

    def repair(self, data: bytes, draw: Random) -> bytes:
        return data

    def run(self, data: bytes) -> None:
        planted.check(data)


class Unseen(Planted):
    """The same without its lines: what is left when nothing guides."""

    traced = ("nowhere",)


def fuzzed(target: Planted, seed: str) -> Fuzzer:
    fuzzer = Fuzzer(target, Random(seed))
    fuzzer.begin()
    for _ in range(EXECUTIONS):
        fuzzer.step()
        if fuzzer.crashes:
            break
    return fuzzer


@pytest.mark.parametrize("seed", ["a", "b", "c"])
def test_a_bug_behind_a_chain_of_conditions_is_found_and_its_input_told(seed: str) -> None:
    fuzzer = fuzzed(Planted(), seed)
    (crash,) = fuzzer.crashes.values()
    smallest = fuzzer.smaller_crash(crash)
    assert "check" in smallest.cause and "planted.py" in smallest.cause
    assert "the planted bug" in smallest.text
    with pytest.raises(ZeroDivisionError, match="the planted bug"):
        planted.check(smallest.data)
    assert len(smallest.data) == len(planted.KEY)


@pytest.mark.parametrize("seed", ["a", "b", "c"])
def test_without_coverage_it_is_not_found(seed: str) -> None:
    """Else the test above would prove nothing."""
    assert fuzzed(Unseen(), seed).crashes == {}


def test_equal_seeds_run_equal_inputs() -> None:
    runs = [fuzzed(Planted(), "same") for _ in range(2)]
    assert runs[0].executions == runs[1].executions
    assert runs[0].corpus == runs[1].corpus
    assert fuzzed(Planted(), "other").corpus != runs[0].corpus


def test_what_would_never_end_is_ended_and_told() -> None:
    def endless() -> None:
        planted.endless()

    execution = Tracer(planted.__file__).run(endless, max_lines=500)
    assert isinstance(execution.error, TooManyLines)
    assert execution.lines == 501


def test_mutants_of_batches_get_past_the_checksum() -> None:
    draw = Random("checksums")
    whole = bytes(build_batch([NewRecord(b"k", b"v" * 20)] * 3))
    passed = changed = 0
    for _ in range(500):
        mutant = repaired(mutated(whole, [whole], draw), draw)
        try:
            batch = BatchView(mutant)
            check(batch)
        except CorruptBatch:
            continue
        passed += 1
        changed += bytes(batch.records) != whole[61:]
    assert passed > 100
    assert changed > 50


def test_inputs_are_kept_as_text_and_read_back(tmp_path: Path) -> None:
    inputs = [b"", b"\x00\xff", bytes(range(256))]
    corpus.keep(tmp_path, [*inputs, b"\x00\xff"])
    assert corpus.kept(tmp_path) == inputs
    path = tmp_path / "crash-x.txt"
    corpus.write(path, bytes(range(200)), "what was wrong\nhow to repeat it")
    assert path.read_text().startswith("# what was wrong\n# how to repeat it\n0001")
    assert corpus.read(path) == bytes(range(200))
    path.write_text("no digits\n")
    with pytest.raises(ValueError, match="crash-x.txt"):
        corpus.read(path)


def test_a_session_writes_a_crash_with_the_command_that_repeats_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(corpus, "CORPUS", tmp_path)
    monkeypatch.setitem(TARGETS, "planted", Planted)
    made = session.Session(["planted"], "a")
    made.run(lambda: not made.found and made.fuzzers["planted"].executions < EXECUTIONS)
    (path,) = made.found.values()
    assert path.parent == tmp_path / "planted"
    (how,) = [line for line in path.read_text().splitlines() if "--repeat" in line]
    assert Path(how.split()[-1]).resolve() == path.resolve()
    assert "the planted bug" in capsys.readouterr().out
    assert session.repeat(path) == 1
    path.write_text("00\n")
    assert session.repeat(path) == 0
    kept = session.keep("planted", made.fuzzers["planted"], tmp_path / "planted")
    assert kept == len(corpus.kept(tmp_path / "planted")) > 0
    assert "planted" in made.summary()
