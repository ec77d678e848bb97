"""The pages `instead-of-*.md`: each test after the change passes, and notices what it is there for.

The tests before the change need Docker, kfake or Spring; only the one with a mock runs here.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.guide.documents import PATIENCE_S, ROOT, Section, Terminal, sections
from tests.support.clients import franz_program
from tests.support.clients.absent import Absent
from tests.support.clients.jars import KAFKA, jars_of_kafka

GUIDES = ROOT / "docs" / "guide"
PAGES = {path.stem: sections(path) for path in sorted(GUIDES.glob("instead-of-*.md"))}
CODE, BEFORE, AFTER = "The code under test", "Before", "After"


def files(page: str, *titles: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for title in titles:
        section = PAGES[page].get(title, Section(title, {}, [], {}))
        found |= section.files
    assert found, f"{page} has no files under {titles}"
    return found


def run_pytest(directory: Path, texts: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    directory.mkdir()
    for name, text in texts.items():
        (directory / name).write_text(text, encoding="utf-8")
    (directory / "pytest.ini").write_text("[pytest]\n")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    return subprocess.run(
        words, cwd=directory, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


def test_every_page_has_a_test_before_and_after() -> None:
    assert sorted(PAGES) == [
        "instead-of-embedded-kafka",
        "instead-of-kfake",
        "instead-of-mocks",
        "instead-of-testcontainers",
    ]
    for page, found in PAGES.items():
        assert list(found[BEFORE].files) == list(found[AFTER].files), page
        assert "Gained and lost" in found


def test_after_testcontainers(tmp_path: Path) -> None:
    page = "instead-of-testcontainers"
    compile(files(page, BEFORE)["test_orders.py"], page, "exec")
    done = run_pytest(tmp_path / "after", files(page, CODE, AFTER))
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_a_mock_passes_with_settings_that_double_an_order_and_the_test_after_it_does_not(
    tmp_path: Path,
) -> None:
    page, right = "instead-of-mocks", '{"enable.idempotence": True}'
    code = files(page, CODE)["orders.py"]
    assert code.count(right) == 1
    doubling = {"orders.py": code.replace(right, '{"enable.idempotence": False}')}
    before = run_pytest(tmp_path / "before", files(page, BEFORE) | doubling)
    assert "1 passed" in before.stdout, before.stdout
    after = run_pytest(tmp_path / "after", files(page, CODE, AFTER))
    assert "1 passed" in after.stdout, after.stdout + after.stderr
    noticed = run_pytest(tmp_path / "noticed", files(page, AFTER) | doubling)
    assert "1 failed" in noticed.stdout and "'book', 'lamp', 'book'" in noticed.stdout


@pytest.mark.soak
def test_after_kfake(tmp_path: Path) -> None:
    try:
        franz_program.program()  # what it is built of is what the test needs
    except Absent as absent:
        pytest.skip(str(absent))
    terminal = Terminal(tmp_path)
    for name in ("go.mod", "go.sum"):
        shutil.copy(franz_program.HERE / name, tmp_path / name)
    terminal.save(files("instead-of-kfake", CODE, AFTER))
    terminal.environment |= {"GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"}
    assert terminal.run("go test ./...\n").startswith("ok")


@pytest.mark.soak
def test_after_embedded_kafka(tmp_path: Path) -> None:
    try:
        jars = jars_of_kafka(KAFKA[-1])
    except Absent as absent:
        pytest.skip(str(absent))
    terminal = Terminal(tmp_path)
    terminal.save(files("instead-of-embedded-kafka", AFTER))
    terminal.run(f"java -cp '{jars}/*' OrdersTest.java\n")
