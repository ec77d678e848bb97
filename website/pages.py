"""The pages of the documentation site, made from Markdown written for readers of the repository.

mkdocs calls the functions `on_...` (its hooks). The other functions need no mkdocs. They order the
pages and change what GitHub and mkdocs read differently: links out of `docs`, words behind the
language of a fence, lists without a blank line before them, and the names of headings.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
#: Files of the root that are pages, by their path on the site.
ROOT_PAGES = {
    "index.md": "README.md",
    "design.md": "DESIGN.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "security.md": "SECURITY.md",
}
#: Headings of the navigation, with their pages in reading order. A pattern stands for all pages
#: that it matches and that no entry names.
SECTIONS = (
    ("Start", ("index.md",)),
    (
        "Use it",
        (
            "guide/clients.md", "guide/testing.md", "guide/testing-recipes.md",
            "guide/instead-of-*.md", "guide/spark.md", "guide/lake.md", "guide/simulation.md",
            "guide/errors.md",
        ),
    ),
    (
        "Run it",
        (
            "guide/operating.md", "guide/replicas.md", "guide/durability.md", "guide/disks.md",
            "guide/reassignment.md", "guide/zookeeper.md", "guide/*.md",
        ),
    ),
    (
        "Look it up",
        (
            "reference/cli.md", "configuration.md", "compatibility.md", "guarantees.md",
            "measurements.md", "reference/*.md", "changelog.md",
        ),
    ),
    (
        "How it works",
        (
            "design.md", "internals/README.md", "internals/life-of-a-record.md",
            "internals/life-of-an-isr-change.md", "internals/life-of-a-failover.md",
            "internals/isr.md", "internals/rules.md", "internals/proof.md", "internals/*.md",
        ),
    ),
    ("Decisions", ("adr/README.md", "adr/*.md")),
    ("Change it", ("contributing.md", "security.md", "*.md")),
)  # fmt: skip
_FENCE = re.compile(r"^(```(?:\w*))[^\n]*\n.*?^```[ ]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_ITEM = re.compile(r"^( *)([-*]|\d+\.) ")


def navigation(paths: Iterable[str]) -> list[dict[str, list[str]]]:
    """Return the sections with their pages; every page is in one section."""
    left = dict.fromkeys(sorted(paths))
    named = {each for _, entries in SECTIONS for each in entries}
    found = []
    for title, entries in SECTIONS:
        pages = []
        for entry in entries:
            pages += [
                path
                for path in left
                if path == entry or (path not in named and fnmatch.fnmatchcase(path, entry))
            ]
            for path in pages:
                left.pop(path, None)
        found.append({title: pages})
    return found


def prepared(text: str, page: str) -> str:
    """Return the Markdown of a page for mkdocs; `page` is its path on the site."""
    parts = []
    at = 0
    for fence in _FENCE.finditer(text):
        parts.append(_prose(text[at : fence.start()], page))
        rest = fence[0].partition("\n")[2]
        parts.append(f"{fence[1]}\n{rest}")
        at = fence.end()
    return "".join([*parts, _prose(text[at:], page)])


def _prose(text: str, page: str) -> str:
    linked = _LINK.sub(lambda link: _link(link[1], link[2], link[3], page), text)
    return "\n".join(_lists(linked.split("\n")))


def _link(image: str, text: str, target: str, page: str) -> str:
    """Return a link as the site has it; a link to a file that is no page becomes its text."""
    if "://" in target or target.startswith("#"):
        return f"{image}[{text}]({target})"
    path, hash_, anchor = target.partition("#")
    place = ROOT_PAGES.get(page, f"docs/{page}")
    there = posixpath.normpath(posixpath.join(posixpath.dirname(place), path))
    on_site = {source: each for each, source in ROOT_PAGES.items()}.get(there)
    if on_site is None and there.startswith("docs/") and (ROOT / there).is_file():
        on_site = there.removeprefix("docs/")
    if on_site is None:
        return text
    relative = posixpath.relpath(on_site, posixpath.dirname(page) or ".")
    return f"{image}[{text}]({relative}{hash_}{anchor})"


def _lists(lines: list[str]) -> Iterator[str]:
    """Yield lines with a blank one before each list, and four blanks for each level of a list."""
    before = ""
    in_list = False
    for line in lines:
        item = _ITEM.match(line)
        if item is not None and (in_list or len(item[1]) < 4):
            if not in_list and before.strip():
                yield ""
            in_list = True
            line = " " * (4 * (len(item[1]) // 2)) + line.lstrip(" ")
        elif in_list and line.startswith("  ") and not before.strip():
            line = "    " + line.lstrip(" ")  # a further paragraph of the item
        elif line.strip() and not before.strip() and not line.startswith(" "):
            in_list = False
        yield line
        before = line


def slug(text: str, separator: str) -> str:
    """Return the name of a heading as GitHub makes it, so that links to headings hold on both."""
    kept = re.sub(r"[^\w\- ]", "", re.sub(r"<[^>]*>", "", text).strip().lower())
    return kept.replace(" ", separator)


def on_config(config: Any) -> Any:
    """Set the navigation, and names of headings as GitHub has them."""
    docs = Path(config.docs_dir)
    paths = [path.relative_to(docs).as_posix() for path in docs.rglob("*.md")]
    config.nav = navigation([*ROOT_PAGES, *paths])
    config.mdx_configs.setdefault("toc", {})["slugify"] = slug
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the root."""
    from mkdocs.structure.files import File

    for page, source in ROOT_PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Prepare a page."""
    return prepared(markdown, page.file.src_uri)
