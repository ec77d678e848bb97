"""Consumers and followers that ask for many bytes and wait for long (V61)."""

from __future__ import annotations

import pytest

from tidelog.sim.run import SeedRun

SEEDS = range(2)


@pytest.mark.rule("V61")
def test_no_fetch_waits_whose_response_cannot_grow() -> None:
    looks = 0
    for seed in SEEDS:
        run = SeedRun(seed, "patient_fetches")
        result = run.run()
        assert not result.violation, f"seed {seed}: {result.violation}"
        assert run.cluster.fetch_waits is not None
        looks += run.cluster.fetch_waits.looks
        if looks >= 1_000:
            return
    pytest.fail(f"{looks} fetches waited that had records")
