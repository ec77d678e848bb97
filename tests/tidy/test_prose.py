"""What a machine can see of the style of sentences: no package falls behind where it stands."""

from __future__ import annotations

import ast

from tests.tidy import prose
from tests.tidy.sources import Source


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


def test_no_package_has_more_of_them_than_recorded() -> None:
    recorded = prose.allowed()
    found = prose.counts()
    assert sum(sum(each.values()) for each in found.values()) > 0, "this test looks at nothing"
    assert [
        f"{package}: {kind} rose from {recorded.get(package, {}).get(kind, 0)} to {number}"
        for package, kinds in found.items()
        for kind, number in kinds.items()
        if number > recorded.get(package, {}).get(kind, 0)
    ] == []
