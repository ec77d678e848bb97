"""The examples of docs/guide/testing.md are tests, and they notice what they say they notice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "testing.md"
PATIENCE_S = 240.0


def examples() -> dict[str, str]:
    """File name to text of every code block that begins with one."""
    blocks = re.findall(r"```python\n# (test_\w+\.py)\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    return dict(blocks)


def run(pytester: pytest.Pytester, name: str, source: str) -> pytest.RunResult:
    (pytester.path / name).write_text(source)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", name, timeout=PATIENCE_S)


def test_there_are_six_worked_examples() -> None:
    names = ["payments", "billing", "carriers", "ledger", "arrivals", "throttled"]
    assert list(examples()) == [f"test_{name}.py" for name in names]


@pytest.mark.parametrize("name", list(examples()))
def test_an_example_passes(pytester: pytest.Pytester, name: str) -> None:
    run(pytester, name, examples()[name]).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("test_payments.py", '"enable.idempotence": True', '"enable.idempotence": False'),
        ("test_billing.py", ", on_revoke=lambda consumer, partitions: self.commit()", ""),
    ],
)
def test_an_example_notices_what_it_is_there_for(
    pytester: pytest.Pytester, name: str, right: str, wrong: str
) -> None:
    source = examples()[name]
    assert source.count(right) == 1
    result = run(pytester, name, source.replace(right, wrong))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*- tidelog cluster 127.0.0.1:*"])
