"""`python -m tidelog.testing`: a cluster with an HTTP API, for tests in other languages.

The program prints one line of JSON when the cluster is up: `bootstrap`, the list
`bootstrap_servers`, `url` of the HTTP API, and `directory`. The program and all brokers end at
SIGTERM or SIGINT. If standard input is a pipe, they also end when the test's program closes the
pipe or ends. The program removes all files, except in a directory that `--dir` names.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import stat
import sys
import tempfile
import threading
from collections.abc import Sequence

from tidelog.core.errors import TidelogError
from tidelog.testing.cluster import Cluster
from tidelog.testing.http_server import FaultServer
from tidelog.testing.spec import SpecError, config_lines

_USAGE_ERROR = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a cluster until a signal or the end of standard input; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tidelog.testing", description="a cluster for tests, with faults by HTTP"
    )
    parser.add_argument("-n", "--brokers", type=int, default=3, help="number of brokers (3)")
    parser.add_argument("--port", type=int, help="port of broker 1; the next have the next ports")
    parser.add_argument("--http-port", type=int, default=0, help="port of the HTTP API")
    parser.add_argument("--log-dirs", type=int, default=1, help="log directories per broker (1)")
    parser.add_argument("--dir", help="a directory to keep; by default a temporary one")
    parser.add_argument(
        "--config", action="append", default=[], metavar="KEY=VALUE", help="for every broker"
    )
    given = parser.parse_args(arguments)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: ended.set())
    try:
        with contextlib.ExitStack() as stack:
            directory = given.dir or stack.enter_context(
                tempfile.TemporaryDirectory(prefix="tidelog-")
            )
            cluster = stack.enter_context(
                Cluster(
                    directory,
                    given.brokers,
                    config=config_lines("--config", given.config),
                    log_dirs=given.log_dirs,
                    port=given.port,
                )
            )
            _show(cluster, stack.enter_context(FaultServer(cluster, given.http_port)).url)
            _await_end(ended)
    except (TidelogError, SpecError, OSError) as error:
        sys.stderr.write(f"tidelog.testing: {error}\n")
        return _USAGE_ERROR
    return 0


def _show(cluster: Cluster, url: str) -> None:
    shown = {
        "bootstrap": cluster.bootstrap,
        "bootstrap_servers": cluster.bootstrap_servers,
        "url": url,
        "directory": cluster.directory,
    }
    sys.stdout.write(json.dumps(shown) + "\n")
    sys.stdout.flush()


def _await_end(ended: threading.Event) -> None:
    if stat.S_ISFIFO(os.fstat(0).st_mode) or stat.S_ISSOCK(os.fstat(0).st_mode):
        threading.Thread(target=_await_end_of_input, args=(ended,), daemon=True).start()
    ended.wait()


def _await_end_of_input(ended: threading.Event) -> None:
    while os.read(0, 1 << 16):
        pass
    ended.set()


if __name__ == "__main__":
    sys.exit(main())
