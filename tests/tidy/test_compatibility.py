"""docs/compatibility.md says of APIs and of the matrix what the code says."""

from __future__ import annotations

from tests.clients.matrix import document
from tests.clients.matrix.table import CLIENTS, FEATURES, cell

from tidelog.broker.apis import cards

AGAIN = "run .venv/bin/python -m tests.clients.matrix.document"


def text() -> str:
    return document.DOCUMENT.read_text(encoding="utf-8")


def test_the_apis_are_those_of_the_handlers_cards() -> None:
    _, begin, rest = text().partition(document.APIS_BEGIN)
    told, end, _ = rest.partition(document.APIS_END)
    assert begin + told + end == document.apis().rstrip("\n"), AGAIN


def test_every_api_is_either_served_or_told_not_to_be() -> None:
    both = [key for key in cards() if key in document.NOT_SERVED]
    assert both == [], "served now: remove them from NOT_SERVED"


def test_the_matrix_has_every_feature_and_every_client() -> None:
    told = text()
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in told.splitlines()}
    assert [one.title for one in FEATURES if one.title not in rows] == [], AGAIN
    [head] = [line for line in told.splitlines() if line.startswith(f"|  | {CLIENTS[0].name} ")]
    columns = [column.strip().split(" ")[0] for column in head.split("|")[2:-1]]
    assert columns == [client.name for client in CLIENTS], AGAIN
    for feature in FEATURES:
        marks = [mark.strip() for mark in rows[feature.title].split("|")[2:-1]]
        assert len(marks) == len(CLIENTS)
        for client, mark in zip(CLIENTS, marks, strict=True):
            what = cell(client, feature)
            kinds = ("passed", "not run") if callable(what) else ("–",)
            assert mark.startswith(kinds), f"{feature.title}, {client.name}: {mark}: {AGAIN}"


def results() -> list[document.Outcome]:
    return document.read_results(document.RESULTS.read_text(encoding="utf-8"))


def test_the_page_is_as_its_command_writes_it_from_the_results_that_are_kept() -> None:
    assert text() == document.document(results()), f"{AGAIN}, with --from of a JUnit file"


def test_results_are_kept_of_every_test_that_the_page_shows_and_of_no_other() -> None:
    """One is missing: `pytest FILE -k TEST --junitxml=X.xml`, then the command `--from X.xml`."""
    kept = {document.function_of(each) for each in results()}
    assert len(kept) > 30, "this test looks at nothing"
    assert [test for test in document.defined_tests() if test not in kept] == []
    assert document.merged(results(), []) == results()


def test_results_of_single_tests_replace_theirs_and_leave_the_others() -> None:
    kept = results()
    newer = kept[7]._replace(result="skipped")
    gone = newer._replace(name="test_that_is_gone[1]")
    assert sorted(document.merged([*kept, gone], [newer])) == sorted([*kept[:7], newer, *kept[8:]])
