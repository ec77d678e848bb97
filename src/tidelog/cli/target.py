"""The cluster of a command: an address, or the directory of a local cluster.

The module declares the options that name a cluster, and checks their combinations. It opens no
connection.
"""

from __future__ import annotations

import os
import threading
from typing import Annotated, Any

import typer

from tidelog.cli.output import OutputFormat, OutputOption, printed, say
from tidelog.cli.parameters import finite
from tidelog.client.bootstrap import parse_bootstrap
from tidelog.core.config_text import BOOTSTRAP_VARIABLE
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ConfigError, ConnectionLost, RequestTimeout
from tidelog.local import LocalCluster, LocalClusterError
from tidelog.local.ports import LOOPBACK
from tidelog.runtime.blocking import BlockingClient

#: Default directory of `tidelog up` and of other commands.
DEFAULT_DIRECTORY = "tidelog-cluster"
#: Seconds without a response after which a notice names the address.
NOTICE_S = 2.0

DirectoryOption = Annotated[str, typer.Option("--dir", "-d", help="Directory of a local cluster.")]
OptionalDirectoryOption = Annotated[
    str | None, typer.Option("--dir", "-d", help="Directory of a local cluster.")
]
BootstrapOption = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        "-b",
        help="Address of a broker: host:port,... Without it and --dir: TIDELOG_BOOTSTRAP of the"
        " environment, if set.",
    ),
]
TimeoutOption = Annotated[
    float,
    typer.Option("--timeout", min=0.1, callback=finite, help="Seconds to wait for the cluster."),
]


class CommandClient(BlockingClient):
    """A client that prints a notice when no broker responds for a while."""

    def __init__(self, bootstrap: str, timeout_s: float, source: str = "") -> None:
        """Create a client; errors and notices name `source`, the origin of the address."""
        super().__init__(bootstrap, client_id="tidelog-cli", timeout_ms=int(timeout_s * 1000))
        self._source = source
        # Calls of this client block, so another thread prints the notice that no broker responds.
        self._notice = threading.Timer(NOTICE_S, self._print_notice, (bootstrap, timeout_s))
        self._notice.daemon = True
        if timeout_s > NOTICE_S:
            self._notice.start()

    def close(self) -> None:
        """Close all connections; cancel the notice that no broker responds."""
        self._notice.cancel()
        super().close()

    def __exit__(self, *raised: object) -> None:
        for error in raised:
            if self._source and isinstance(error, (ConnectionLost, RequestTimeout)):
                error.add_note(f"the address is from {self._source}")
        super().__exit__(*raised)

    def _print_notice(self, bootstrap: str, timeout_s: float) -> None:
        if not self.is_reached:
            where = f"{bootstrap} ({self._source})" if self._source else bootstrap
            say(f"tidelog: no broker answers yet at {where}; trying for {timeout_s:g} s in all")


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster of a command; `local` is None if only the cluster's address is known."""

    bootstrap: str
    local: LocalCluster | None
    #: The environment variable that named the cluster; empty if no variable named it.
    source: str = ""

    def client(self, timeout_s: float) -> BlockingClient:
        """Return a client of the cluster."""
        return CommandClient(self.bootstrap, timeout_s, self.source)


def choose_target(bootstrap: str | None, directory: str | None, *, warns: bool = True) -> Target:
    """Return the cluster of an address, of a directory, or of the default directory.

    An address together with a directory is a usage error. With `warns`, a message appears if the
    environment and the default directory name different clusters.
    """
    address = address_of(bootstrap, directory)
    if address is not None:
        if directory is not None:
            raise typer.BadParameter("give --bootstrap-server or --dir, not both")
        if bootstrap is not None:
            return Target(_checked(address, False), None)
        if warns:
            _warn_of_other(_checked(address, True))
        return Target(_checked(address, True), None, BOOTSTRAP_VARIABLE)
    try:
        cluster = LocalCluster.existing(directory or DEFAULT_DIRECTORY)
    except LocalClusterError as error:
        if directory is not None:
            raise
        raise LocalClusterError(f"{error}; --dir or --bootstrap-server name another") from error
    return Target(cluster.bootstrap, cluster)


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """The options of a command on a cluster: address or directory, and the time limit."""

    bootstrap: BootstrapOption = None
    directory: OptionalDirectoryOption = None
    timeout: TimeoutOption = 30.0

    def client(self) -> BlockingClient:
        """Return a client of the cluster."""
        return choose_target(self.bootstrap, self.directory).client(self.timeout)


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The options of a command that reads a cluster and prints a table or a document."""

    bootstrap: BootstrapOption = None
    directory: OptionalDirectoryOption = None
    output: OutputOption = OutputFormat.TABLE
    timeout: TimeoutOption = 30.0

    def client(self) -> BlockingClient:
        """Return a client of the cluster."""
        return choose_target(self.bootstrap, self.directory).client(self.timeout)

    def printed(self, document: Any) -> bool:
        """Print a document or a list of documents if --output is JSON; return whether it is."""
        return printed(document, self.output)


def address_of(bootstrap: str | None, directory: str | None) -> str | None:
    """Return the address in the option, else the address in the environment (TIDELOG_BOOTSTRAP).

    Returns None if a directory, and not an address, names the cluster. The option takes precedence
    over the environment, and the environment over the default directory.
    """
    if bootstrap is not None:
        return bootstrap
    return None if directory is not None else os.environ.get(BOOTSTRAP_VARIABLE) or None


def local_cluster(directory: str) -> LocalCluster:
    """Return the cluster in a directory, for a command that takes no address.

    A message appears if the environment and the default directory name different clusters.
    """
    cluster = LocalCluster.existing(directory)
    address = os.environ.get(BOOTSTRAP_VARIABLE)
    if directory == DEFAULT_DIRECTORY and address and _is_other(cluster, address):
        say(
            f"tidelog: this is the cluster in {directory}; {BOOTSTRAP_VARIABLE}={address} names"
            " another one, and does not count here"
        )
    return cluster


def _warn_of_other(address: str) -> None:
    """Warn if the default directory has a cluster, and an address belongs to another cluster."""
    try:
        cluster = LocalCluster.existing(DEFAULT_DIRECTORY)
    except LocalClusterError:
        return
    if _is_other(cluster, address):
        say(
            f"tidelog: this is the cluster at {address}, which {BOOTSTRAP_VARIABLE} names, not the"
            f" one in {DEFAULT_DIRECTORY}; --dir {DEFAULT_DIRECTORY} names that"
        )


def _is_other(cluster: LocalCluster, address: str) -> bool:
    """Return whether none of the addresses belongs to the cluster."""
    try:
        return not _places(address) & _places(cluster.bootstrap)
    except ConfigError:
        return True


def _places(servers: str) -> set[tuple[str, int]]:
    """Return hosts and ports; `localhost` becomes the loopback address of local clusters."""
    found = parse_bootstrap(servers)
    return {(LOOPBACK if each.host == "localhost" else each.host, each.port) for each in found}


def _checked(address: str, is_of_environment: bool) -> str:
    """Return the address; raise a usage error if it cannot be parsed."""
    try:
        parse_bootstrap(address)
    except ConfigError as error:
        where = f"{BOOTSTRAP_VARIABLE} in the environment: " if is_of_environment else ""
        raise typer.BadParameter(f"{where}{error}") from error
    return address


DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Check and show what would be done; change nothing.")
]


def key_values(words: list[str] | None) -> dict[str, str]:
    """Return `--config key=value` words as a mapping; a word without `=` is a usage error."""
    found: dict[str, str] = {}
    for word in words or []:
        key, separator, value = word.partition("=")
        if not separator or not key:
            raise typer.BadParameter(f"{word!r} is not of the form key=value")
        found[key] = value
    return found
