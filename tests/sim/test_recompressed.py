"""Leaders that compress what they are sent, under faults."""

from __future__ import annotations

import pytest

from tidelog.log import append_validation
from tidelog.records.batch import BatchView
from tidelog.records.compression import GZIP
from tidelog.records.recompressing import recompressed
from tidelog.sim.profiles import PROFILES, Profile
from tidelog.sim.run import run_seed


@pytest.fixture(autouse=True)
def profile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add a profile whose leaders compress the batches that they append."""
    compressing = Profile("recompressed", config="compression.type=gzip")
    monkeypatch.setitem(PROFILES, compressing.name, compressing)


def test_a_run_of_the_profile_stores_batches_with_the_topics_codec(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[BatchView] = []
    real = recompressed

    def counted(batch: BatchView, *rest: int) -> BatchView:
        made.append(real(batch, *rest))
        return made[-1]

    monkeypatch.setattr(append_validation, "recompressed", counted)
    result = run_seed(3, "recompressed")
    assert not result.violation
    assert len(made) > 100
    assert all(batch.compression == GZIP for batch in made)


def test_a_leader_that_forgets_the_producer_when_it_compresses_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without its sequence a repeated batch would be stored twice."""
    real = recompressed

    def forgetful(batch: BatchView, *rest: int) -> BatchView:
        made = real(batch, *rest)
        data = bytearray(made.buffer)
        data[43:57] = b"\xff" * 14
        data[17:21] = BatchView(data).computed_crc().to_bytes(4, "big")
        return BatchView(data)

    monkeypatch.setattr(append_validation, "recompressed", forgetful)
    assert ": duplicate: " in run_seed(3, "recompressed").violation
