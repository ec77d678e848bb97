"""The start of a broker's process for a local cluster.

A fork of a process that has imported the broker takes a quarter of a new interpreter's CPU time.
Brokers that end with their program are forked, because tests start and end such brokers often.
Brokers that outlive their program have an interpreter of their own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from tidelog.local.errors import LocalClusterError
from tidelog.local.forking import ForkedProcess, ForkServer, Program
from tidelog.local.layout import BrokerPlace
from tidelog.local.processes import ProcessIdentity, start_process

_MODULE: Final = "tidelog.runtime.main"
#: The fork server of all brokers that this program starts, with the modules that brokers need at
#: their start.
FORK_SERVER: Final = ForkServer(
    _MODULE, "tidelog.runtime.stores.sqlite", "tidelog.runtime.admin.admin_port"
)


def start_broker(
    place: BrokerPlace, environment: Mapping[str, str] | None, *, ends_with_program: bool
) -> subprocess.Popen[bytes] | ForkedProcess:
    """Start a broker, and record its process identity.

    The broker gets the environment of this process and the variables in `environment`. With
    `ends_with_program` the kernel kills the broker when this program ends. A broker that ends with
    this program is a fork, if a forked process would start in the same state as a new child process
    of this program.
    """
    os.makedirs(os.path.dirname(place.log_path), exist_ok=True)
    arguments = ["--config", place.properties_path]
    arguments += ["--override", f"tidelog.test.disk.faults={place.disk_faults_path}"]
    process: subprocess.Popen[bytes] | ForkedProcess | None = None
    if ends_with_program and not environment and FORK_SERVER.starts_alike(os.environ):
        process = _forked(arguments, place.log_path)
    if process is None:
        if ends_with_program:
            arguments += ["--end-with-parent", str(os.getpid())]
        process = start_process(
            [sys.executable, "-m", _MODULE, *arguments],
            place.log_path,
            environment,
            ends_with_program=ends_with_program,
        )
    place.write_process(ProcessIdentity.of(process.pid))
    return process


def _forked(arguments: Sequence[str], log_path: str) -> ForkedProcess | None:
    """Fork a broker that ends with the fork server; return None if the server does not respond."""
    try:
        arguments = [*arguments, "--end-with-parent", str(FORK_SERVER.pid)]
        words = [sys.executable, "-m", _MODULE, *arguments]
        program = Program(f"{_MODULE}:main", arguments, os.environ, words, new_session=True)
        with open(os.devnull, "rb") as nothing, open(log_path, "ab") as log:
            return FORK_SERVER.start(program, (nothing.fileno(), log.fileno(), log.fileno()))
    except LocalClusterError:
        return None
