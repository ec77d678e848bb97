"""What a machine can see of the style of sentences: no package and no page has more findings."""

from __future__ import annotations

import ast

from tests.tidy import prose
from tests.tidy.sources import ROOT, Source


def source_of(text: str) -> Source:
    tree = ast.parse(text)
    return Source("example.py", text, tree, tuple(ast.walk(tree)))


def test_banned_words_long_sentences_and_loops_are_found() -> None:
    long_sentence = "Return " + " ".join(["a"] * prose.MAX_WORDS) + "."
    text = (
        f'"""{long_sentence}"""\n'
        "def f(many):\n"
        '    """Somebody is told."""\n'
        "    for one in many:  # told anew\n"
        "        pass\n"
        "    return [one for one in many], 'told'\n"
    )
    assert prose.findings(source_of(text)) == {
        prose.WORDS: 4,
        prose.SENTENCES: 1,
        prose.LOOPS: 2,
    }


def test_banned_words_and_long_sentences_of_a_page_are_found() -> None:
    words = " ".join(["a"] * prose.MAX_PAGE_WORDS)
    page = (
        "# Somebody\n\n"
        f"Here {words}.\n"
        f"A {words}. A {words}\n\n"
        f"- Told: {words}, `nobody`\n"
        "> Told\n\n"
        "| so-and-so | 'anew' |\n"
    )
    assert prose.page_findings(page) == {prose.WORDS: 4, prose.SENTENCES: 4}


def test_code_and_the_ends_of_sentences_of_a_page_are_seen() -> None:
    half = "A" + " a" * (prose.MAX_PAGE_WORDS - 2)
    page = (
        f"It has `{half} told`. {half}. `told` {half}\n\n{half}\n- {half}\n1. {half}\n"
        f"| {half} | {half} |\n## {half}\n"
        f"```sh\ntell {half} {half}\n```\n   ```\n   tell\n   ```\n"
        f"> told {half} {half}\n"
        "<!-- table -->\n| told |\n\ntold\n<!-- end of table -->\n"
    )
    assert prose.page_findings(page).total() == 0


def test_only_pages_that_commands_write_are_left_out() -> None:
    pages = prose.pages()
    assert len(pages) > 80, "this test looks at nothing"
    assert [name for name in prose.GENERATED if name in pages or not (ROOT / name).is_file()] == []


def risen(found: dict[str, dict[str, int]]) -> list[str]:
    recorded = prose.allowed()
    return [
        f"{place}: {kind} rose from {recorded.get(place, {}).get(kind, 0)} to {number}"
        for place, kinds in found.items()
        for kind, number in kinds.items()
        if number > recorded.get(place, {}).get(kind, 0)
    ]


def test_no_package_has_more_of_them_than_recorded() -> None:
    found = prose.counts()
    assert sum(sum(each.values()) for each in found.values()) > 0, "this test looks at nothing"
    assert risen(found) == []


def test_no_page_has_more_of_them_than_recorded() -> None:
    assert risen(prose.page_counts()) == []
    assert risen({"none.md": {prose.WORDS: 1}}) == ["none.md: banned_words rose from 0 to 1"]
