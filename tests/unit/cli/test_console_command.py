"""`tidelog console` and `tidelog down` where no console can be served or ended."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from tidelog.cli import clusters
from tidelog.cli.console import _host_name
from tidelog.local.errors import LocalClusterError


@pytest.mark.parametrize("text", ["Console.Example", "console.example."])
def test_a_proxys_name_is_written_as_browsers_send_it(text: str) -> None:
    assert _host_name(text) == "console.example"


@pytest.mark.parametrize("text", ["", ".", "console.example:80", "https://console.example", "a b"])
def test_what_is_no_host_name_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="without scheme and port expected"):
        _host_name(text)


def test_a_damaged_pid_file_of_the_console_does_not_keep_brokers_running(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Brokers:
        directory = str(tmp_path)
        are_down = False

        def down(self, _timeout_s: float) -> None:
            self.are_down = True

    brokers = Brokers()
    (tmp_path / "console.pid").write_text("")
    monkeypatch.setattr(clusters, "local_cluster", lambda _: brokers)
    with pytest.raises(LocalClusterError, match=r"console\.pid: not a pid file"):
        clusters.down(str(tmp_path))
    assert brokers.are_down
