"""Writes docs/compatibility.md: what brokers serve, and what a run of the tests did with clients.

    .venv/bin/python -m tests.clients.matrix.document

runs the tests of this folder and of Spark's connector and writes what passed; it writes nothing
where one failed. `--from RESULTS.xml` takes pytest's JUnit files of runs that have been made, of
single tests too: `results.json` keeps what became of the others, and the page follows from it.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.clients import thorough
from tests.clients.matrix.table import CLIENTS, FEATURES, Client, Feature, Lacking, cell

from tidelog.broker.apis import cards
from tidelog.wire.registry import API

ROOT = Path(__file__).resolve().parents[3]
RESULTS = Path(__file__).with_name("results.json")
DOCUMENT = ROOT / "docs" / "compatibility.md"
APIS_BEGIN, APIS_END = "<!-- from the handlers' cards -->", "<!-- end of the cards -->"
TOOLS = ROOT / "tests" / "clients"
MATRIX = "tests/clients/test_matrix.py"
TESTS = (
    MATRIX,
    *sorted(
        str(path.relative_to(ROOT)) for path in (ROOT / "tests/clients").glob("test_tools*.py")
    ),
    "tests/clients/test_dump_log.py",
    "tests/spark/test_official_connector.py",
)

#: Of a test's module as pytest names it: the class that holds the test, and what begins its words.
_CLASS = re.compile(r"\.Test(\w+)$")
_CAPITAL = re.compile(r"([A-Z])")

#: Of Kafka's APIs, those that clients send and brokers do not serve, and what that means.
NOT_SERVED = {
    27: ("WriteTxnMarkers", "no transactions"),
}


class Outcome(NamedTuple):
    """How one test went."""

    module: str
    name: str
    #: "passed", "failed", or why it was skipped.
    result: str
    client_version: str


def outcomes(results: Path) -> list[Outcome]:
    """What pytest's JUnit file says."""
    found = []
    for case in ElementTree.parse(results).getroot().iter("testcase"):
        kinds = {child.tag: child for child in case}
        result = "passed"
        if "failure" in kinds or "error" in kinds:
            result = "failed"
        elif "skipped" in kinds:
            result = kinds["skipped"].get("message") or "no reason given"
        versions = [
            one.get("value") or ""
            for one in case.iter("property")
            if one.get("name") == "client_version"
        ]
        module = (case.get("classname") or "").removeprefix("tests.")
        found.append(Outcome(module, case.get("name") or "", result, "".join(versions[:1])))
    return found


def read_results(text: str) -> list[Outcome]:
    """The outcomes that are kept."""
    return [Outcome(*row) for row in json.loads(text)]


def results_text(found: Iterable[Outcome]) -> str:
    """The text of their file: a line each."""
    return "[\n" + ",\n".join(json.dumps(each) for each in found) + "\n]\n"


def defined_tests() -> list[tuple[str, str]]:
    """Module (and class) and name of each test that the page shows, in the order of the files.

    Of the matrix, the page shows the cells alone.
    """
    found = []
    for path in TESTS:
        module = path.removeprefix("tests/").removesuffix(".py").replace("/", ".")
        for node in ast.parse((ROOT / path).read_text(encoding="utf-8"), path).body:
            holder = f".{node.name}" if isinstance(node, ast.ClassDef) else ""
            for test in node.body if isinstance(node, ast.ClassDef) else [node]:
                shown = "test_feature" if path == MATRIX else "test_"
                if isinstance(test, ast.FunctionDef) and test.name.startswith(shown):
                    found.append((f"{module}{holder}", test.name))
    return found


def function_of(outcome: Outcome) -> tuple[str, str]:
    """The test whose outcome it is, without its parameters."""
    return outcome.module, outcome.name.partition("[")[0]


def merged(kept: Sequence[Outcome], new: Sequence[Outcome]) -> list[Outcome]:
    """Outcomes in the order of the files: the new ones, and kept ones of tests that still exist."""
    known = {(each.module, each.name) for each in new}
    order = {test: number for number, test in enumerate(defined_tests())}
    left = [each for each in kept if (each.module, each.name) not in known]
    every = [each for each in (*left, *new) if function_of(each) in order]
    return sorted(every, key=lambda each: order[function_of(each)])


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in lines)


def apis() -> str:
    """The part that follows from the code alone; a tidy test holds the document to it."""
    served, refused = [], []
    for key, card in cards().items():
        versions = f"{card.first_advertised_version} to {card.max_version}"
        if card.first_advertised_version == card.max_version:
            versions = str(card.max_version)
        if card.first_advertised_version != card.min_version:
            versions += f" (served from {card.min_version})"
        whom = "brokers" if card.inter_broker else "clients"
        if card.refused:
            refused.append((str(key), API[key].name, versions, card.refused))
        else:
            served.append((str(key), API[key].name, versions, whom))
    lacking = [
        (str(key), name, meaning)
        for key, (name, meaning) in NOT_SERVED.items()
        if key not in cards()
    ]
    return (
        f"{APIS_BEGIN}\n\n"
        + table(("key", "API", "versions", "for"), served)
        + "\nBrokers reject these with a final error, which clients show at once:\n\n"
        + table(("key", "API", "versions", "why"), refused)
        + "\nBrokers do not serve these, ApiVersions does not name them, and clients report it:\n\n"
        + table(("key", "API", "what that means"), lacking)
        + f"\n{APIS_END}\n"
    )


def _mark(client: Client, feature: Feature, by_id: dict[str, Outcome], notes: list[str]) -> str:
    what = cell(client, feature)
    if isinstance(what, Lacking):
        return f"–{_note(notes, what.reason)}"
    outcome = by_id.get(f"test_feature[{client.name}-{feature.name}]")
    if outcome is None:
        return "not run"
    if outcome.result == "passed":
        return "passed"
    return f"not run{_note(notes, outcome.result)}"


def _note(notes: list[str], reason: str) -> str:
    if reason not in notes:
        notes.append(reason)
    return f" ({notes.index(reason) + 1})"


def matrix(found: Sequence[Outcome]) -> str:
    """Feature by client."""
    by_id = {each.name: each for each in found if each.module.endswith("test_matrix")}
    notes: list[str] = []
    rows = [
        (feature.title, *(_mark(client, feature, by_id, notes) for client in CLIENTS))
        for feature in FEATURES
    ]
    versions = []
    for client in CLIENTS:
        of_client = [
            each.client_version
            for name, each in by_id.items()
            if name.startswith(f"test_feature[{client.name}-") and each.client_version
        ]
        versions.append(f"{client.name} {of_client[0]}" if of_client else client.name)
    numbered = "".join(f"{number}. {reason}\n" for number, reason in enumerate(notes, 1))
    return table(("", *versions), rows) + f"\n{numbered}"


def others(found: Sequence[Outcome], module: str) -> str:
    """Tests of modules whose names speak for themselves: a row each, its variants side by side."""
    rows: dict[str, list[str]] = {}
    for each in found:
        if module in each.module:
            words, _, variant = each.name.removeprefix("test_").partition("[")
            of_class = _CLASS.search(each.module)
            title = words.replace("_", " ").strip()
            if of_class is not None:
                words_of_class = _CAPITAL.sub(r" \1", of_class[1]).strip()
                title = f"{words_of_class}: {title}".capitalize()
            told = f"{variant.rstrip(']')}: {each.result}" if variant else each.result
            rows.setdefault(title, []).append(told)
    if not rows:
        return "Not run.\n"
    return table(("test", "result"), ((title, ", ".join(told)) for title, told in rows.items()))


STRINGS = """\
### Strings that are no UTF-8

A broker reads a string with malformed bytes as Kafka does: each malformed sequence becomes U+FFFD.
Names with it are refused by their own rules: a topic gets INVALID_TOPIC_EXCEPTION. Client ids,
group ids and the metadata of commits may hold any text. They keep the replacement, and the
malformed bytes are lost. Two group ids that differ only in malformed bytes are one group. Data that
the protocol declares as bytes, such as values and the metadata of members, is never changed. A
string that has more than 32,767 bytes with its replacements closes the connection, because no
response could hold it.
"""


def document(found: Sequence[Outcome]) -> str:
    return f"""# Compatibility

This page shows which APIs brokers serve, and which features work with which client.
`.venv/bin/python -m tests.clients.matrix.document` writes it from a run of the tests. They run real
clients of other projects, in their pinned versions, against three brokers on one machine. "passed"
means that the test ran and passed. Features of groups and of idempotent producers must also hold
while the coordinator or the leader is killed with SIGKILL. All clients run the same checks
(`tests/clients/matrix/`); `make test` includes them.

## What brokers serve

{apis()}
{STRINGS}
## Clients

{matrix(found)}
## Kafka's command line tools

{others(found, "test_tools")}
## Files on disk

{others(found, "test_dump_log")}
## Spark's own Kafka connector

{others(found, "test_official_connector")}"""


def run(results: Path) -> None:
    """Run the tests; their results as a JUnit file."""
    words = [sys.executable, "-m", "pytest", *TESTS, f"--junitxml={results}"]
    environment = {**os.environ, thorough.VARIABLE: "all"}
    subprocess.run(words, cwd=ROOT, check=False, env=environment)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--from", dest="results", action="append", type=Path, default=[])
    parser.add_argument("--kept", action="store_true", help="run nothing; write what is kept")
    options = parser.parse_args()
    given: list[Path] = options.results
    if options.kept:
        kept = read_results(RESULTS.read_text(encoding="utf-8"))
        DOCUMENT.write_text(document(kept), encoding="utf-8")
        return 0
    is_partial = bool(given)
    with tempfile.TemporaryDirectory() as scratch:
        if not given:
            given = [Path(scratch) / "results.xml"]
            run(given[0])
        found = [each for path in given for each in outcomes(path)]
    failed = [each.name for each in found if each.result == "failed"]
    if failed or not found:
        sys.stderr.write(
            f"nothing is written, these failed: {', '.join(failed) or 'nothing ran'}\n"
        )
        return 1
    kept = read_results(RESULTS.read_text(encoding="utf-8")) if is_partial else []
    every = merged(kept, found)
    RESULTS.write_text(results_text(every), encoding="utf-8")
    DOCUMENT.write_text(document(every), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
