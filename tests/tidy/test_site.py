"""The documentation site: its order has every page, and its links lead to pages and headings.

`tests/guide/test_site_build.py` builds it.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter

import pytest
from tests.tidy.sources import ROOT
from website.pages import ROOT_PAGES, navigation, prepared, slug

DOCS = ROOT / "docs"
SOURCES = {path.relative_to(DOCS).as_posix(): path for path in DOCS.rglob("*.md")}
SOURCES |= {page: ROOT / name for page, name in ROOT_PAGES.items()}
PAGES = {page: prepared(path.read_text(encoding="utf-8"), page) for page, path in SOURCES.items()}
_LINK = re.compile(r"(?<!`)\[[^\]]*\]\(([^)\s]+)\)")
_MARKS = re.compile(r"`|\*\*|(?<!\w)_|_(?!\w)")


def headings(text: str) -> set[str]:
    """The names of a page's headings; a repeated one has a number."""
    outside = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ +(.+?) *$", outside, re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title) for title in titles]
    found: Counter[str] = Counter()
    names = set()
    for title in plain:
        name = slug(_MARKS.sub("", title), "-")
        names.add(f"{name}_{found[name]}" if found[name] else name)
        found[name] += 1
    return names


HEADINGS = {page: headings(text) for page, text in PAGES.items()}


def test_every_page_is_in_the_order_once() -> None:
    order = [page for section in navigation(PAGES) for pages in section.values() for page in pages]
    assert sorted(order) == sorted(PAGES) and len(order) > 100
    assert order[0] == "index.md"


def test_a_page_without_an_entry_comes_behind_those_with_one() -> None:
    [_, use, run_it, *_] = navigation(["guide/zz.md", "guide/clients.md", "guide/disks.md"])
    assert use == {"Use it": ["guide/clients.md"]}
    assert run_it == {"Run it": ["guide/disks.md", "guide/zz.md"]}


@pytest.mark.parametrize("page", sorted(PAGES))
def test_links_of_a_page_lead_to_pages_and_headings(page: str) -> None:
    wrong = []
    for target in _LINK.findall(PAGES[page]):
        path, _, anchor = target.partition("#")
        there = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
        if "://" in target or (DOCS / there).suffix == ".svg":
            continue
        if there not in PAGES or (anchor and anchor not in HEADINGS[there]):
            wrong.append(target)
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](../../src/tidelog/cli/app.py)", "a"),
        ("[a](../adr/README.md#x)", "[a](../adr/README.md#x)"),
        ("[a](../../README.md#install)", "[a](../index.md#install)"),
        ("[a](../../DESIGN.md)", "[a](../design.md)"),
        ("[a](#here) [b](https://b.example/c)", "[a](#here) [b](https://b.example/c)"),
        ("```sh kill\n[a](../../src/x)\n```\n", "```sh\n[a](../../src/x)\n```\n"),
        ("text:\n- a\n  b\n- c\n  - d", "text:\n\n- a\n  b\n- c\n    - d"),
        ("1. a\n\n   b\n\nc\n\n    code", "1. a\n\n    b\n\nc\n\n    code"),
    ],
)
def test_markdown_is_prepared_for_the_site(text: str, expected: str) -> None:
    assert prepared(text, "guide/clients.md") == expected


def test_names_of_headings_are_those_of_the_repository() -> None:
    assert slug("What `make test` leaves -- to soak, 2 ms", "-") == (
        "what-make-test-leaves----to-soak-2-ms"
    )
