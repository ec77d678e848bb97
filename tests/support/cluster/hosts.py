"""Hosts for tests: network namespaces of this machine, which resolve each other's names.

`Hosts` needs root and `ip`. Each host has an address on one bridge, a directory in the place of its
root, and `tests/support/cluster/systemctl.py` in the place of systemd. Commands that name paths of
a host find them in its directory.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

_PATIENCE_S: Final = 240.0
_SYSTEMCTL: Final = Path(__file__).with_name("systemctl.py")
_NETNS: Final = Path("/etc/netns")


class Host:
    """One host: a network namespace and a directory."""

    def __init__(
        self, name: str, namespace: str, directory: Path, paths: Mapping[str, str]
    ) -> None:
        self.name = name
        self.namespace = namespace
        self.directory = directory
        #: What the paths of a host are here.
        self._paths = dict(paths)
        self._started: list[subprocess.Popen[bytes]] = []
        (directory / "bin").mkdir(parents=True)
        for here in self._paths.values():
            Path(here).mkdir(parents=True, exist_ok=True)
        script = directory / "bin" / "systemctl"
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{_SYSTEMCTL}" "$@"\n')
        script.chmod(0o755)

    def here(self, text: str) -> str:
        """Return a text of a host with its paths as they are here."""
        for path, here in self._paths.items():
            text = text.replace(path, here)
        return text

    def save(self, path: str, text: str) -> None:
        """Write a file of the host."""
        Path(self.here(path)).write_text(self.here(text), encoding="utf-8")

    def run(self, commands: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run commands on the host until the first that fails; return what they printed."""
        return subprocess.run(
            self._words("bash", "-euo", "pipefail", "-c", self.here(commands)),
            env=self._environment(variables),
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )

    def start(self, *words: str, **variables: str) -> subprocess.Popen[bytes]:
        """Start a program on the host that runs until `Hosts` end."""
        with open(self.directory / "programs.log", "ab") as log:
            started = subprocess.Popen(
                self._words(*words), env=self._environment(variables), stdout=log, stderr=log
            )
        self._started.append(started)
        return started

    def lose(self) -> None:
        """Cut the host's network and kill all of its processes."""
        _ip("-n", self.namespace, "link", "set", "eth0", "down")
        self.end()

    def return_to_network(self) -> None:
        """Plug the host's network in again."""
        _ip("-n", self.namespace, "link", "set", "eth0", "up")

    def end(self) -> None:
        """Kill all processes of the host."""
        listed = subprocess.run(
            ["ip", "netns", "pids", self.namespace], capture_output=True, text=True, check=False
        )
        for pid in listed.stdout.split():
            subprocess.run(["kill", "-KILL", pid], check=False, stderr=subprocess.DEVNULL)
        for started in self._started:
            started.wait()
        self._started.clear()

    def _words(self, *words: str) -> list[str]:
        return ["ip", "netns", "exec", self.namespace, *words]

    def _environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        programs = f"{self.directory}/bin:{Path(sys.executable).parent}"
        here = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "TIDELOG_TEST_HOST": str(self.directory),
        }
        return {**os.environ, **here, **variables}


def require_namespaces() -> None:
    """Skip the test, with the reason, where there can be no network namespaces."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and ip")
    probe = f"tidelog-{os.getpid()}-probe"
    if subprocess.run(["ip", "netns", "add", probe], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets root add no network namespace")
    _ip("netns", "del", probe)


@contextmanager
def hosts(number: int, directory: Path, paths: tuple[str, ...]) -> Iterator[list[Host]]:
    """Yield hosts `host1`, `host2` and so on; end all of their processes afterwards."""
    prefix = f"tidelog-{os.getpid()}"
    switch = f"{prefix}-switch"
    made: list[Host] = []
    names = "127.0.0.1 localhost\n" + "".join(
        f"10.77.0.{each} host{each}\n" for each in range(1, number + 1)
    )
    try:
        _ip("netns", "add", switch)
        _ip("-n", switch, "link", "add", "bridge0", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge0", "up")
        for each in range(1, number + 1):
            namespace = f"{prefix}-{each}"
            place = directory / f"host{each}"
            mapped = {path: f"{place}{path}" for path in paths}
            made.append(Host(f"host{each}", namespace, place, mapped))
            (_NETNS / namespace).mkdir(parents=True)
            (_NETNS / namespace / "hosts").write_text(names)
            _ip("netns", "add", namespace)
            ends = ("eth0", "netns", namespace, "type", "veth", "peer", "name", f"port{each}")
            _ip("link", "add", *ends, "netns", switch)
            _ip("-n", switch, "link", "set", f"port{each}", "master", "bridge0")
            _ip("-n", switch, "link", "set", f"port{each}", "up")
            _ip("-n", namespace, "address", "add", f"10.77.0.{each}/24", "dev", "eth0")
            _ip("-n", namespace, "link", "set", "eth0", "up")
            _ip("-n", namespace, "link", "set", "lo", "up")
        yield made
    finally:
        for host in made:
            host.end()
            subprocess.run(["ip", "netns", "del", host.namespace], check=False)
            shutil.rmtree(_NETNS / host.namespace, ignore_errors=True)
        subprocess.run(["ip", "netns", "del", switch], check=False)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr}")
