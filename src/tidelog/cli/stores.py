"""`tidelog store`: metadata saved to a file, imported, compared, and accepted (rules S6, E8).

An argument names a store by the value of `metadata.store`, the path of a broker's
server.properties, or the directory of a local cluster. The ZooKeeper server of a local cluster runs
while a command needs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Annotated, TypeVar

import typer

from tidelog.cli.documents import StoreDifference, prints
from tidelog.cli.help import CommandGroup
from tidelog.cli.output import OutputFormat, OutputOption, print_line, print_rows, say
from tidelog.cli.parameters import finite
from tidelog.core.config import BrokerConfig
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ConfigError
from tidelog.local import LocalCluster
from tidelog.metadata.store import MetadataStore
from tidelog.runtime.config_files import load_config
from tidelog.runtime.stores import transfer
from tidelog.runtime.stores.opening import make_store, zookeeper_servers
from tidelog.runtime.stores.sqlite_database import DATABASE_FILE, raise_ids
from tidelog.runtime.stores.transfer import SavedTree, TransferError

T = TypeVar("T")

_EXIT_DIFFERENT = 1
_SHOWN_BYTES = 60

app = CommandGroup("Metadata stores: move a cluster between them.")

#: A function that reads all nodes of a store; its second argument names the store in errors.
ReadTree = Callable[[MetadataStore, str], Awaitable[SavedTree]]
StoreArgument = Annotated[
    str,
    typer.Argument(
        metavar="STORE",
        help="embedded:DIRECTORY, zookeeper://host:port/chroot, a server.properties, or the"
        " directory of a local cluster.",
    ),
]
WaitOption = Annotated[
    float, typer.Option("--timeout", min=0.1, callback=finite, help="Seconds to reach a store.")
]


@dataclass(frozen=True, slots=True)
class NamedStore:
    """A metadata store that is named on the command line."""

    text: str
    config: BrokerConfig

    @property
    def directory(self) -> str | None:
        """Return the directory of an embedded store, None for ZooKeeper."""
        return self.config.embedded_store_directory()


@app.command("create", epilog="Example: tidelog store create zookeeper://zk1:2181,zk2:2181/tidelog")
def create(store: StoreArgument, timeout: WaitOption = 18.0) -> None:
    """Create the chroot of a cluster in ZooKeeper."""
    with _named(store, timeout) as named:
        if named.directory is not None:
            raise ConfigError(f"{store}: an embedded store is made by the first broker")
        servers = zookeeper_servers(named.config)
        if not servers.chroot:
            raise ConfigError(f"{store}: there is no chroot in it: .../NAME expected")
        # Imported late, because commands on an embedded store need no ZooKeeper client.
        from tidelog.runtime.stores.zookeeper_chroot import create_chroot

        made = asyncio.run(create_chroot(servers, int(timeout * 1000), say))
        print_line(f"{servers}: {'made' if made else 'is there already'}")


@app.command("accept", epilog="Example: tidelog store accept embedded:/var/lib/tidelog/metadata")
def accept(store: StoreArgument, timeout: WaitOption = 18.0) -> None:
    """Accept a store restored from an older copy, so that `tidelog health` stops reporting it.

    The command is refused while a partition without a leader waits for brokers whose logs were not
    compared.
    """
    with _named(store, timeout) as named:
        _require_store(named)
        was_marked = _use(named, lambda opened: transfer.accept_older(opened, named.text))
        print_line(f"{named.text}: {'accepted' if was_marked else 'has no mark of an older copy'}")


@app.command("export", epilog="Example: tidelog store export /tmp/tide metadata.jsonl")
def export(
    store: StoreArgument,
    file: Annotated[str, typer.Argument(metavar="FILE", help="File to write; must not exist.")],
    timeout: WaitOption = 18.0,
) -> None:
    """Write a stopped cluster's metadata to a file."""
    _save(store, file, timeout, transfer.read_tree)


@app.command("backup", epilog="Example: tidelog store backup tidelog-cluster metadata.jsonl")
def backup(
    store: StoreArgument,
    file: Annotated[str, typer.Argument(metavar="FILE", help="File to write; must not exist.")],
    timeout: WaitOption = 18.0,
) -> None:
    """Write the metadata of one moment to a file while brokers run; `store import` reads it."""
    _save(store, file, timeout, transfer.read_running_tree)


def _save(store: str, file: str, timeout: float, read: ReadTree) -> None:
    if os.path.exists(file):
        raise ConfigError(f"{file} exists: it is not overwritten")
    tree = _read(store, timeout, read)
    with open(f"{file}.tmp", "x", encoding="utf-8") as output:
        output.writelines(f"{line}\n" for line in transfer.to_lines(tree))
    os.replace(f"{file}.tmp", file)
    say(f"cluster {tree.cluster_id}: {len(tree.nodes)} nodes are in {file}")


@app.command("import", epilog="Example: tidelog store import metadata.jsonl zookeeper://zk1:2181/t")
def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A file of `tidelog store export`.")],
    store: StoreArgument,
    timeout: WaitOption = 18.0,
) -> None:
    """Write an export into a store that holds no cluster."""
    try:
        with open(file, encoding="utf-8") as lines:
            tree = transfer.from_lines(lines, file)
    except UnicodeDecodeError as error:
        raise TransferError(f"{file} is no text, so no export: {error}") from None
    with _named(store, timeout) as named:
        if named.directory is not None:
            raise_ids(named.directory, tree.zxid, time.monotonic_ns)
        count = _use(named, lambda opened: transfer.write_tree(opened, tree, named.text))
        say(f"cluster {tree.cluster_id}: {count} nodes are in {named.text}")
        say(f"set metadata.store={named.config.metadata_store} for every broker before they start")


@app.command("diff", epilog="Example: tidelog store diff /tmp/tide zookeeper://zk1:2181/tidelog")
@prints(list[StoreDifference])
def diff(
    first: StoreArgument,
    second: StoreArgument,
    output: OutputOption = OutputFormat.TABLE,
    timeout: WaitOption = 18.0,
) -> None:
    """Compare the metadata of two stopped clusters; exit code 1 if it differs."""
    differences = transfer.compare(_read(first, timeout), _read(second, timeout))
    found = [
        StoreDifference(each.path, _text(each.first), _text(each.second)) for each in differences
    ]
    if found or output is OutputFormat.JSON:
        columns = (("node", "path"), ("first", "first", _short), ("second", "second", _short))
        print_rows(found, columns, output)
    else:
        print_line("no differences")
    if found:
        raise typer.Exit(_EXIT_DIFFERENT)


def _read(store: str, timeout: float, read_tree: ReadTree = transfer.read_tree) -> SavedTree:
    with _named(store, timeout) as named:
        _require_store(named)
        return _use(named, lambda opened: read_tree(opened, named.text))


def _use(named: NamedStore, act: Callable[[MetadataStore], Awaitable[T]]) -> T:
    """Open a store, call a function with the store, and return the result."""

    async def used() -> T:
        async with _opened(named) as opened:
            return await act(opened)

    return asyncio.run(used())


def _require_store(named: NamedStore) -> None:
    """Raise TransferError if an embedded store is missing; opening it would create one."""
    directory = named.directory
    if directory is not None and not os.path.isfile(os.path.join(directory, DATABASE_FILE)):
        raise TransferError(f"{named.text}: there is no embedded store in {directory}")


@contextlib.contextmanager
def _named(text: str, timeout: float) -> Iterator[NamedStore]:
    """Yield the store that an argument names; a local cluster's ZooKeeper server runs until the
    block ends.
    """
    wait_key, wait_ms = "zookeeper.connection.timeout.ms", str(int(timeout * 1000))
    if text.startswith(("embedded:", "zookeeper://")):
        given = {"broker.id": "0", wait_key: wait_ms, "metadata.store": text}
        yield NamedStore(text, BrokerConfig.from_properties(given))
        return
    if os.path.isfile(text) or text.endswith((".properties", ".toml")):
        # The whole properties file is read as a broker reads it, because several keys name the
        # store and credentials.
        named = NamedStore(
            text, load_config(text, [f"{wait_key}={wait_ms}"], named="", needs_id=False)
        )
        if not named.config.metadata_store:
            raise ConfigError(f"{text}: metadata.store is not set, so it names no store")
        yield named
        return
    cluster = LocalCluster.existing(text)
    place = next(iter(cluster.places().values()))
    server = cluster.zookeeper
    starts = server is not None and server.process is None
    if server is not None and starts:
        server.start(timeout)
    try:
        with _named(place.properties_path, timeout) as named:
            yield NamedStore(text, named.config)
    finally:
        if server is not None and starts:
            server.stop()


@contextlib.asynccontextmanager
async def _opened(named: NamedStore) -> AsyncIterator[MetadataStore]:
    """Yield an open store whose session is kept alive."""
    loop = asyncio.get_running_loop()
    store = make_store(named.config, loop, say, connect_timeout_name="--timeout")
    await store.open()
    beating = asyncio.create_task(_beat(store))
    try:
        yield store
    finally:
        beating.cancel()
        await store.close()


async def _beat(store: MetadataStore) -> None:
    while True:
        store.beat()
        await asyncio.sleep(store.session_timeout_ms / 12_000)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")


def _short(text: str | None) -> str | None:
    if text is None or len(text) <= _SHOWN_BYTES:
        return text
    return f"{text[:_SHOWN_BYTES]}..."
