"""The history can be read: subjects of commits, and the changelog's section of this version."""

from __future__ import annotations

import re
import subprocess

import pytest
from tests.tidy.sources import ROOT

import tidelog

#: The last commit before the form was checked.
BEFORE = "30cfd54e"
SUBJECT = re.compile(r"[a-z0-9_ ,]+: \S.*[^.]")
MOST_CHARACTERS = 72


def git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


def is_of_the_form(subject: str) -> bool:
    return len(subject) <= MOST_CHARACTERS and SUBJECT.fullmatch(subject) is not None


def test_subjects_name_their_area_and_fit_in_a_line() -> None:
    try:
        git("cat-file", "-e", f"{BEFORE}^{{commit}}")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("the history of this checkout does not reach so far back")
    subjects = git("log", "--no-merges", "--format=%s", f"{BEFORE}..HEAD").splitlines()
    assert [subject for subject in subjects if not is_of_the_form(subject)] == []


@pytest.mark.parametrize(
    ("subject", "is_good"),
    [
        ("broker: a load waits for nothing that never comes", True),
        ("sim, log: the disk of a run is read once", True),
        ("types follow", False),
        ("broker: a load waits.", False),
        ("Broker: a load waits", False),
        (f"sim: {'x' * MOST_CHARACTERS}", False),
    ],
)
def test_the_form_of_a_subject(subject: str, is_good: bool) -> None:
    assert is_of_the_form(subject) is is_good


def test_the_changelog_has_a_section_of_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    _, _, section = text.partition(f"\n## [{tidelog.__version__}]\n")
    assert len(section) > 1_000
