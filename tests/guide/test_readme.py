"""The first use that README.md shows, as a newcomer runs it."""

from __future__ import annotations

from tests.guide.documents import ROOT, Terminal, sections

README = ROOT / "README.md"
DOCUMENTS = ROOT / "docs"
#: Folders whose files are in an index of their own, which tests/tidy checks.
WITH_INDEX = (DOCUMENTS / "adr", DOCUMENTS / "internals")


def test_the_first_use(terminal: Terminal) -> None:
    section = sections(README)["First use"]
    begin, go_on = section.commands
    terminal.run_exporting(begin, "TIDELOG_BOOTSTRAP")
    terminal.save(section.files)
    assert list(section.files) == ["late.py"]
    assert terminal.run("python late.py $TIDELOG_BOOTSTRAP\n") == "0 not acknowledged\n"
    told = terminal.run(go_on).splitlines()
    assert sorted(told) == ["DL461 LGA ATL", "UA1545 EWR IAH", "UA1714 LGA IAH, 4 minutes late"]


def test_the_index_has_every_document() -> None:
    index = sections_text("Documentation")
    paths = [path for path in DOCUMENTS.rglob("*.md") if path.parent not in WITH_INDEX]
    paths += [folder / "README.md" for folder in WITH_INDEX]
    documents = [path.relative_to(ROOT).as_posix() for path in paths]
    assert len(documents) > 5
    assert [name for name in documents if f"({name})" not in index] == []


def sections_text(title: str) -> str:
    """The text under one heading of the read-me."""
    return README.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]
