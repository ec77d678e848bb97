"""Every page that a command writes is compared with its source, and no other is written."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from bench import isr_slow_reads
from tests.mutation import page as drawn_mutants
from tests.sim import coverage
from tests.sim.coverage_summary import KEPT, read_summary
from tests.support import reader_versions
from tests.support.mutilations import page as invariants
from tests.tidy import metrics_page, prose
from tests.tidy.sources import ROOT, Source, python_sources


class Generated(NamedTuple):
    """A file that a command writes, or parts of it."""

    command: str
    #: The test that compares it with what the command writes.
    compared_by: str


PAGES = {
    "docs/compatibility.md": Generated(
        "python -m tests.clients.matrix.document",
        "test_compatibility.py::"
        "test_the_page_is_as_its_command_writes_it_from_the_results_that_are_kept",
    ),
    "docs/configuration.md": Generated(
        "tidelog configs reference",
        "test_configuration.py::test_the_reference_is_what_the_declarations_say",
    ),
    "docs/internals/coverage.md": Generated(
        "python -m tests.sim.coverage --write",
        "test_generated_pages.py::test_the_page_of_coverage_is_what_the_last_search_found",
    ),
    "docs/internals/drawn-mutants.md": Generated(
        "python -m tests.mutation page",
        "test_generated_pages.py::test_the_page_of_drawn_mutants_is_what_their_judges_said",
    ),
    "docs/internals/mutants.md": Generated(
        "python -m tests.support.mutants page",
        "test_mutants.py::test_the_page_is_as_its_command_writes_it",
    ),
    "docs/internals/proof.md": Generated(
        "python -m tests.sim.fault_table",
        "test_faults.py::test_the_page_tells_of_every_fault_and_all_churn",
    ),
    "docs/internals/rules.md": Generated(
        "python -m tests.support.rules",
        "test_rules.py::test_statuses_and_tests_are_as_the_command_writes_them",
    ),
    "docs/reference/audit.md": Generated(
        "python -m tests.support.mutilations.page",
        "test_generated_pages.py::test_the_page_of_invariants_has_every_mutilation",
    ),
    "docs/reference/cli.md": Generated(
        "python -m tidelog.cli.reference docs/reference/cli.md",
        "test_command_line_reference.py::test_the_reference_is_up_to_date",
    ),
    "docs/reference/lake.md": Generated(
        "python -m tests.support.reader_versions",
        "test_generated_pages.py::test_the_reference_has_the_versions_of_readers_that_were_tried",
    ),
    "docs/reference/metrics.md": Generated(
        "python -m tests.tidy.metrics_page",
        "test_generated_pages.py::test_the_page_of_metrics_is_what_the_declarations_say",
    ),
    # Measured: a run draws other points into the same frame.
    "docs/slow-leader-reads.svg": Generated(
        "python -m bench isr", "test_generated_pages.py::test_the_plot_has_the_frame_of_its_program"
    ),
}
#: What commands record for tests and pages: found seeds, results of runs, counts that may not rise.
RECORDS = (
    "tests/clients/matrix/results.json",
    "tests/mutation/verdicts.json",
    "tests/sim/coverage_summary.json",
    "tests/sim/kills.json",
    "tests/tidy/prose.toml",
)
#: Words with which a page says that a command writes it.
_SAYS_SO = re.compile(
    r"Made from the commands by|This file is made by|are generated from|"
    r"writes (?:it from|this page|the tables)"
)
#: What measurements change in the plot: lines of points, and numbers in its captions.
_POINTS = re.compile(r"^<(?:polyline|path d=\"M[\d.]+ [\d.]+[Hv]).*\n", re.MULTILINE)
_COUNTS = re.compile(r"\d+ (ISR changes|produce errors)")


def written_constants(source: Source) -> Iterator[str]:
    """The paths of the project in constants of a module that it writes or hands to a writer."""
    paths = {}
    for statement in source.tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                paths[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                paths[name] = value
    for node in source.nodes:
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="write_text")):
                if name in paths:
                    yield path_of(paths[name], source)


def path_of(value: ast.expr, source: Source) -> str:
    """The path below the project that an expression of `/` or `with_name` says."""
    words = [
        str(node.value)
        for node in ast.walk(value)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    if "with_name" in ast.unparse(value):
        return f"{source.path.rpartition('/')[0]}/{words[0]}"
    # `ast.walk` meets the last part of `a / b / c` first.
    return "/".join(reversed(words))


def test_every_file_that_a_program_writes_is_listed() -> None:
    written = {
        path
        for source in python_sources()
        if not source.path.rpartition("/")[2].startswith("test_")
        for path in written_constants(source)
    }
    assert len(written) > 6, "this test looks at nothing"
    assert sorted(written - {*PAGES, *RECORDS}) == []


def test_every_page_that_says_so_is_listed() -> None:
    pages = sorted(
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "docs").rglob("*.md")
        if _SAYS_SO.search(path.read_text(encoding="utf-8"))
    )
    assert pages == [page for page in PAGES if page.endswith(".md")]
    assert [page for page in prose.GENERATED if page not in PAGES] == []


@pytest.mark.parametrize("page", PAGES)
def test_the_page_and_the_test_that_compares_it_exist(page: str) -> None:
    assert (ROOT / page).is_file()
    file, _, test = PAGES[page].compared_by.partition("::")
    assert f"\ndef {test}(" in (ROOT / "tests/tidy" / file).read_text(encoding="utf-8")


def test_the_reference_has_the_versions_of_readers_that_were_tried() -> None:
    assert reader_versions.table() in reader_versions.PAGE.read_text(encoding="utf-8")


def test_make_docs_writes_every_page_that_follows_from_what_is_here() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = makefile.partition("\ndocs: ")[2].partition("\n\n")[0]
    commands = {page: generated.command for page, generated in PAGES.items()}
    assert commands.pop("docs/slow-leader-reads.svg") == "python -m bench isr"
    assert {page: command in recipe for page, command in commands.items()} == dict.fromkeys(
        commands, True
    )


def test_every_record_exists() -> None:
    assert [path for path in RECORDS if not (ROOT / path).is_file()] == []


def test_the_page_of_metrics_is_what_the_declarations_say() -> None:
    assert metrics_page.PAGE.read_text() == metrics_page.text()


def test_the_page_of_invariants_has_every_mutilation() -> None:
    assert invariants.PAGE.read_text(encoding="utf-8") == invariants.text()


def test_the_page_of_coverage_is_what_the_last_search_found() -> None:
    kept = read_summary(KEPT.read_text(encoding="utf-8"))
    assert coverage.PAGE.read_text(encoding="utf-8") == coverage.render(kept), (
        f"run: {PAGES['docs/internals/coverage.md'].command}"
    )


def test_the_page_of_drawn_mutants_is_what_their_judges_said() -> None:
    text = drawn_mutants.render(drawn_mutants.read(), drawn_mutants.findings())
    assert drawn_mutants.PAGE.read_text(encoding="utf-8") == text


def frame(drawing: str) -> str:
    """A plot without its points and counts."""
    return _COUNTS.sub(r"n \1", _POINTS.sub("", drawing))


def test_the_plot_has_the_frame_of_its_program() -> None:
    empty = [isr_slow_reads.Run(enabled) for enabled in (False, True)]
    drawn = frame(isr_slow_reads.drawing(empty, isr_slow_reads.SLOW_S))
    assert drawn.count("<text") > 12, "this test looks at nothing"
    assert frame(isr_slow_reads.PLOT.read_text(encoding="utf-8")) == drawn
