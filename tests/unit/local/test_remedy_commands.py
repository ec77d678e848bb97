"""Commands of remedies: what a shell and `tidelog` read in them."""

from __future__ import annotations

import subprocess

import pytest

from tidelog.local.remedy_commands import command_on


@pytest.mark.parametrize(
    "name", ["billing", "-v", "--help", "$(id)", "it's", "a b", "-\n;id", "é", "--"]
)
def test_a_shell_passes_the_name_as_one_argument_behind_all_options(name: str) -> None:
    command = command_on("printf '<%s>'", name, " --dir /tmp/x")
    printed = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    words = printed.stdout.removeprefix("<").removesuffix(">").split("><")
    if name.startswith("-"):
        assert words == ["--dir", "/tmp/x", "--", name]
    else:
        assert words == [name, "--dir", "/tmp/x"]
    assert command.isprintable()
