"""Which cluster a command talks to: an address, or the directory of a local cluster.

The options that commands share, and how they fit together. Connects to nothing by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from tidelog.local import LocalCluster
from tidelog.runtime.blocking import BlockingClient

#: Where `tidelog up` puts a cluster, and other commands look for it, without being told.
DEFAULT_DIRECTORY = "tidelog-cluster"

DirectoryOption = Annotated[str, typer.Option("--dir", "-d", help="Directory of a local cluster.")]
OptionalDirectoryOption = Annotated[
    str | None, typer.Option("--dir", "-d", help="Directory of a local cluster.")
]
BootstrapOption = Annotated[
    str | None, typer.Option("--bootstrap-server", "-b", help="Address of a broker: host:port,...")
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", min=0.1, help="Seconds to wait for the cluster.")
]


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster; `local` where its directory is known."""

    bootstrap: str
    local: LocalCluster | None

    def client(self, timeout_s: float) -> BlockingClient:
        """A client for it."""
        return BlockingClient(
            self.bootstrap, client_id="tidelog-cli", timeout_ms=int(timeout_s * 1000)
        )


def choose_target(bootstrap: str | None, directory: str | None) -> Target:
    """One of the two, or the default directory; both together are a usage error."""
    if bootstrap is not None:
        if directory is not None:
            raise typer.BadParameter("give --bootstrap-server or --dir, not both")
        return Target(bootstrap, None)
    cluster = LocalCluster.existing(directory or DEFAULT_DIRECTORY)
    return Target(cluster.bootstrap, cluster)


DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Check and show what would be done; change nothing.")
]


def key_values(words: list[str] | None) -> dict[str, str]:
    """`--config key=value` words; a word without `=` is a usage error."""
    found: dict[str, str] = {}
    for word in words or []:
        key, separator, value = word.partition("=")
        if not separator or not key:
            raise typer.BadParameter(f"{word!r} is not of the form key=value")
        found[key] = value
    return found
