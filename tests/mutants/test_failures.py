"""Which failures of a rule's tests count: assertions of the test, and no mere crash."""

from __future__ import annotations

import pytest
from tests.support.mutants.lines import ROOT
from tests.support.mutants.trials import NOT_RUNNING, TESTS, Failure, judge

RULES = str(TESTS / "rules" / "test_x.py")
SUPPORT = str(TESTS / "support" / "x.py")
CODE = str(ROOT / "src" / "tidelog" / "x.py")


def judged(text: str, file: str, printed: str = "") -> Failure:
    """What is said of a test that failed with this line of this file."""
    with pytest.raises(BaseException) as caught:
        exec(compile(text, file, "exec"), {"pytest": pytest})
    return judge("tests/rules/test_x.py::test_y", caught, f"{caught.exconly()}\n{printed}")


@pytest.mark.parametrize("file", [RULES, SUPPORT])
@pytest.mark.parametrize(
    "text", ["assert [1] == [2]", "[event] = []", "a, b = 'abc'", "pytest.fail('not so')"]
)
def test_an_assertion_of_a_test_counts(text: str, file: str) -> None:
    assert judged(text, file).by_assertion


@pytest.mark.parametrize("text", ["{}['key']", "[][0]"])
def test_a_line_of_a_rules_test_that_takes_what_must_be_there_counts(text: str) -> None:
    assert judged(text, RULES).by_assertion
    assert not judged(text, SUPPORT).by_assertion, "the harness itself came to grief"


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("assert [1] == [2]", CODE),
        ("[event] = []", CODE),
        ("{}['key']", CODE),
        ("raise ValueError('no such state')", RULES),
        ("raise TimeoutError", RULES),
        ("None.stat", RULES),
        ("None.stat", CODE),
        ("no_such_name", RULES),
        ("len(3)", RULES),
    ],
)
def test_other_errors_and_assertions_of_the_code_do_not_count(text: str, file: str) -> None:
    failure = judged(text, file)
    assert not failure.by_assertion
    assert failure.test in str(failure) and failure.error in str(failure)


@pytest.mark.parametrize("error", NOT_RUNNING)
def test_an_assertion_does_not_count_where_a_line_did_not_run(error: str) -> None:
    """The broken line raised in a broker, which logged it; the test only saw what followed."""
    failure = judged("assert [1] == [2]", RULES, f"controller failed\n{error}: 'x'")
    assert not failure.by_assertion and failure.not_running == (error,)
    shown = judged("assert [1] == [2]", RULES, f"controller failed: {error}('x')")
    assert not shown.by_assertion
