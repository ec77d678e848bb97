"""Every target over its kept inputs, and over a bounded number of fresh mutants of them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable
from random import Random

import pytest
from tests.fuzz import corpus
from tests.fuzz.broker_targets import Broker, Groups
from tests.fuzz.fuzzer import Fuzzer
from tests.fuzz.log_targets import LogFiles
from tests.fuzz.targets import EXECUTIONS, TARGETS
from tests.support import draws

#: All kept inputs together, as text.
CORPUS_BYTES = 300_000
#: What an input may make its reader allocate: so much (a first guess at what is compressed, and
#: records that are read by several readers), and so many bytes a byte.
PEAK_BYTES, PEAK_BYTES_A_BYTE = 512 * 1024, 200
#: Whole brokers and directories hold more than their input.
BIG = (Broker.name, Groups.name, LogFiles.name)


def told(name: str, fuzzer: Fuzzer, inputs: Iterable[tuple[str, bytes]]) -> str:
    """What failed, with what repeats it."""
    names = {data: each for each, data in inputs}
    return "\n".join(
        f"{name} fails on {names.get(crash.data, 'a mutant')} {crash.data.hex()}\n{crash.text}"
        for crash in fuzzer.crashes.values()
    )


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_and_fresh_mutants_of_it_show_no_defect(name: str) -> None:
    inputs = list(corpus.inputs(name))
    fuzzer = Fuzzer(TARGETS[name](), Random(f"{draws.SEED} {name}"))
    fuzzer.begin(data for _, data in inputs)
    assert fuzzer.crashes == {}, told(name, fuzzer, inputs)
    for _ in range(EXECUTIONS[name]):  # `make fuzz` goes on with more
        fuzzer.step()
    assert fuzzer.crashes == {}, told(name, fuzzer, inputs)


@pytest.mark.parametrize("name", [name for name in TARGETS if name not in BIG])
def test_no_input_costs_more_memory_than_it_is_worth(name: str) -> None:
    target = TARGETS[name]()
    inputs = [*target.seeds(), *(data for _, data in corpus.inputs(name))]
    for data in inputs:
        target.run(data)  # what is made once and kept
    for data in inputs:
        tracemalloc.start()
        try:
            target.run(data)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < PEAK_BYTES + PEAK_BYTES_A_BYTE * len(data), data.hex()


def test_the_corpus_is_small_and_of_targets() -> None:
    files = list(corpus.CORPUS.rglob("*.txt"))
    assert {path.parent.name for path in files} <= TARGETS.keys()
    assert sum(path.stat().st_size for path in files) < CORPUS_BYTES
    for name in TARGETS:
        kept = corpus.kept(corpus.CORPUS / name)
        assert len(kept) == len(set(kept)) > 0, name
