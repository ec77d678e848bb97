"""A broker process refuses log directories that are one behind their links, or not apart (D1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.core.config import BrokerConfig
from tidelog.runtime.main import EXIT_FAILED, Start, run_broker
from tidelog.runtime.signals import BrokerSignals


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("a", "names a directory twice: {0}/a and {0}/link (links lead to {0}/a)"),
        ("a/in", "{0}/link lies inside {0}/a (links lead to {0}/a/in)"),
    ],
)
def test_links_do_not_hide_that_directories_are_not_apart(
    target: str, problem: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a" / "in").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / target)
    config = BrokerConfig.from_properties(
        {
            "broker.id": "1",
            "log.dirs": f"{tmp_path}/a,{tmp_path}/link",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "metadata.store": f"embedded:{tmp_path}/metadata",
        }
    )
    assert run_broker(Start(config, lambda: config, BrokerSignals())) == EXIT_FAILED
    text = capfd.readouterr().err
    assert "broker 1 cannot run: log.dirs=" in text
    assert problem.format(tmp_path.resolve()) in text
    assert not any((tmp_path / "a" / "in").iterdir()), "nothing was opened"
