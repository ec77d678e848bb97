"""Each invariant of a log directory has a mutilation, and the audit finds every mutilation."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.audits import audited
from tests.support.mutilations.drawing import drawn, planted
from tests.support.mutilations.sites import MUTILATIONS, healthy

from tidelog.spark.pipelines.audit.findings import FindingKind
from tidelog.spark.pipelines.audit.invariants import INVARIANTS

#: Not a state of the files: they change while they are read.
NOT_PLANTED = {FindingKind.CHANGING}


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    made = {}
    for is_clean in (False, True):
        made[is_clean] = tmp_path_factory.mktemp("clean" if is_clean else "crashed")
        healthy(made[is_clean], is_clean=is_clean)
    return made


def missed(seed: int, count: int, directories: dict[bool, Path], root: Path) -> list[str]:
    """Plant drawn mutilations; return those that no finding shows, with what was found."""
    found = []
    for mutilation, draw in drawn(seed, count):
        site, findings = planted(mutilation, draw, directories, root / "planted")
        if not any(mutilation.is_shown_by(each, site) for each in findings):
            shown = [f"{each.severity} {each.kind} {each.path}" for each in findings]
            found.append(f"{mutilation.name} at {site.replica} (clean: {site.is_clean}): {shown}")
        elif any(str(site.root) not in each.path for each in findings):
            found.append(f"{mutilation.name}: a finding elsewhere")
    return found


@pytest.mark.parametrize("is_clean", [False, True])
def test_healthy_directories_have_no_findings(
    directories: dict[bool, Path], is_clean: bool
) -> None:
    assert audited(directories[is_clean]).all_findings() == []


def test_every_invariant_has_a_mutilation() -> None:
    assert set(INVARIANTS) == set(FindingKind)
    assert {each.kind for each in MUTILATIONS} == set(FindingKind) - NOT_PLANTED
    assert len({each.name for each in MUTILATIONS}) == len(MUTILATIONS) >= 60


def test_every_mutilation_is_found(directories: dict[bool, Path], tmp_path: Path) -> None:
    assert missed(1, len(MUTILATIONS), directories, tmp_path) == []


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10, 20))
def test_mutilations_at_many_places_are_found(
    directories: dict[bool, Path], tmp_path: Path, seed: int
) -> None:
    assert missed(seed, 4 * len(MUTILATIONS), directories, tmp_path) == []
