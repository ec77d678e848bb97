"""The directory of a local cluster: its files, written and read back.

    cluster.json                 the brokers and their ports
    metadata/                    the embedded metadata store, shared by the brokers
    zookeeper/                   or a ZooKeeper server of its own (`local.zookeeper`)
    .never-up                    exists until the first start has succeeded

    broker-N/server.properties   Kafka's configuration of one broker, for people to change
    broker-N/data[-K]/           its log directories
    broker-N/log/broker.log      its standard output and error
    broker-N/broker.pid          the process: id and start time.

Functions raise an error for a directory with other content. No function starts a process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import glob
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from tidelog.core.config import BrokerConfig
from tidelog.core.config_text import parse_properties
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import TidelogError
from tidelog.core.listeners import admin_endpoint
from tidelog.core.types import Endpoint
from tidelog.local.errors import LocalClusterError
from tidelog.local.listeners import bound_endpoints, config_of_broker, config_of_file
from tidelog.local.ports import LOOPBACK, free_ports
from tidelog.local.processes import ProcessIdentity, replace_file
from tidelog.local.readiness import PROBE_PREFIX
from tidelog.runtime.config_files import read_properties
from tidelog.runtime.stores.zookeeper_servers import SCHEME, parse_servers, require_client

T = TypeVar("T")

_STATE_VERSION = 1
#: Session timeout for paused and hanging brokers; the metadata store notices a killed process on
#: the same machine at once.
_SESSION_TIMEOUT_MS = 6_000
#: ZooKeeper connection timeout in ms, longer than the session timeout, because an ensemble may be
#: starting.
_CONNECTION_MS = "18000"
#: The text that selects an SQLite file in the cluster's directory as the metadata store of a new
#: cluster. A text other than EMBEDDED and ZOOKEEPER is a value of `metadata.store`.
EMBEDDED = "embedded"
#: The value of `store` that selects, as the metadata store, a ZooKeeper server of the cluster's
#: own.
ZOOKEEPER = "zookeeper"
#: Maximum number of brokers; more would exhaust the memory and descriptors of the machine.
MAX_BROKERS = 100


@dataclass(frozen=True, slots=True)
class BrokerPlace:
    """The id, address and directory of one broker of a local cluster."""

    broker_id: int
    port: int
    directory: str
    host: str = LOOPBACK
    #: Address of the admin port; None for a broker without an admin port.
    admin: str | None = None

    @property
    def address(self) -> str:
        """The broker's `host:port` for clients."""
        return _address(self.host, self.port)

    @property
    def properties_path(self) -> str:
        """The broker's configuration file."""
        return f"{self.directory}/server.properties"

    @property
    def log_path(self) -> str:
        """The file of the broker's standard output and error."""
        return f"{self.directory}/log/broker.log"

    @property
    def disk_faults_path(self) -> str:
        """The file with the injected faults of the broker's log directories."""
        return f"{self.directory}/disk-faults"

    @property
    def pid_path(self) -> str:
        """The file that identifies the broker's process."""
        return f"{self.directory}/broker.pid"

    def read_process(self) -> ProcessIdentity | None:
        """Return the process that was started last; None if no process was started."""
        return ProcessIdentity.read(self.pid_path)

    def write_process(self, identity: ProcessIdentity | None) -> None:
        """Write the identity of the started process to the pid file; with None, delete the pid
        file.
        """
        if identity is None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.pid_path)
            return
        replace_file(self.pid_path, identity.to_text())

    def last_lines(self, lines: int = 15) -> str:
        """Return the last lines of the broker's log."""
        try:
            with open(self.log_path, "rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - 64 * 1024))
                text = file.read().decode("utf-8", errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])


def create(
    directory: str,
    brokers: int,
    config: Mapping[str, str],
    log_dirs: int,
    store: str = EMBEDDED,
    first_port: int | None = None,
) -> dict[int, BrokerPlace]:
    """Create a cluster's files; raise LocalClusterError for a directory with other content.

    Broker 1 listens on `first_port`, and the next brokers on the following ports; None chooses free
    ports. Files that an interrupted command left incomplete are replaced. A cluster can be
    discarded until `has_come_up` is called.
    """
    check_size(brokers, log_dirs)
    check_unused(directory)
    discard(directory)
    given = range(first_port or 0, first_port + brokers if first_port else 0)
    server_port, *ports = free_ports(2 * brokers + 1, apart_from=given)
    places = {
        number: BrokerPlace(
            number, port, f"{directory}/broker-{number}", admin=_address(LOOPBACK, admin_port)
        )
        for number, (port, admin_port) in enumerate(
            zip(given or ports[:brokers], ports[brokers:], strict=True), 1
        )
    }
    where = store_key(directory, store, server_port)
    os.makedirs(directory, exist_ok=True)
    replace_file(_marker_path(directory), asked_text(brokers, config, log_dirs, store, first_port))
    for place in places.values():
        os.makedirs(os.path.dirname(place.log_path), exist_ok=True)
        text = properties_text(where, place, len(places), config, log_dirs)
        replace_file(place.properties_path, text)
    state: dict[str, Any] = {
        "version": _STATE_VERSION,
        "brokers": {str(place.broker_id): {"port": place.port} for place in places.values()},
    }
    if store == ZOOKEEPER:
        state["zookeeper"] = {"port": server_port}
    replace_file(_state_path(directory), json.dumps(state, indent=2) + "\n")
    return {number: _placed(place) for number, place in places.items()}


def asked_text(
    brokers: int, config: Mapping[str, str], log_dirs: int, store: str, first_port: int | None
) -> str:
    """Return the text of the marker `.never-up`: the requested layout of the cluster."""
    return json.dumps([brokers, dict(sorted(config.items())), log_dirs, store, first_port])


def asked_of(directory: str) -> str | None:
    """Return the text of the marker `.never-up`; None if the cluster has come up before."""
    try:
        with open(_marker_path(directory), encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None


def has_come_up(directory: str) -> None:
    """Record the first write to the cluster, after which the cluster is never discarded."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_marker_path(directory))


def is_abandoned(directory: str) -> bool:
    """Return whether the first start failed, so that the layout may be replaced.

    A directory with a live process or with records never counts as abandoned.
    """
    if asked_of(directory) is None:
        return False
    for path in _broker_directories(directory):
        place = BrokerPlace(0, 0, path)
        process = place.read_process()
        if process is not None and process.is_alive:
            return False
        for data in glob.glob(f"{glob.escape(path)}/data*"):
            if any(not _is_without_records(data, name) for name in os.listdir(data)):
                return False
    return True


def discard(directory: str) -> None:
    """Remove the files of a cluster whose first start failed, and no other file."""
    if not is_abandoned(directory):
        return
    paths = [f"{directory}/{name}" for name in ("metadata", "zookeeper")]
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_state_path(directory))
    for path in [*_broker_directories(directory), *paths]:
        shutil.rmtree(path, ignore_errors=True)


def _is_without_records(data: str, name: str) -> bool:
    """Return whether an entry of a log directory has no records except records of a probe topic."""
    return name.startswith(PROBE_PREFIX) or not os.path.isdir(f"{data}/{name}")


def _broker_directories(directory: str) -> list[str]:
    return sorted(glob.glob(f"{glob.escape(directory)}/broker-[0-9]*"))


def _marker_path(directory: str) -> str:
    return f"{directory}/{_MARKER_NAME}"


def _placed(place: BrokerPlace) -> BrokerPlace:
    """Return `place` with the address in its server.properties, which users may have edited."""
    config = config_of_file(place.properties_path)
    if config is None:
        return place
    endpoint, admin = config.advertised_listeners[0], admin_endpoint(config.admin_listener)
    return dataclasses.replace(
        place,
        host=endpoint.host or LOOPBACK,
        port=endpoint.port,
        admin=None if admin is None else _address(admin.host, admin.port),
    )


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_size(brokers: int, log_dirs: int) -> None:
    """Raise LocalClusterError for too few or too many brokers, or too few log directories."""
    if brokers < 1 or log_dirs < 1:
        raise LocalClusterError("a cluster has at least one broker with one log directory")
    if brokers > MAX_BROKERS:
        raise LocalClusterError(
            f"{brokers} brokers are too many for one machine: at most {MAX_BROKERS}, for each is a"
            " process of about 40 MB with connections to all others"
        )


def store_key(directory: str, store: str, port: int) -> str:
    """Return the value of `metadata.store`; `port` is the port of the cluster's own ZooKeeper."""
    if store == ZOOKEEPER:
        return f"{SCHEME}{LOOPBACK}:{port}"
    return f"embedded:{directory}/metadata" if store == EMBEDDED else store


def check_store(store: str, config: Mapping[str, str]) -> None:
    """Raise LocalClusterError for an invalid metadata store."""
    if store not in (EMBEDDED, ZOOKEEPER) and not store.startswith((SCHEME, "embedded:")):
        raise LocalClusterError(
            f"store {store!r}: embedded, zookeeper (a server of the cluster's own) or"
            " zookeeper://host:port[,host:port][/chroot] expected"
        )
    if store != EMBEDDED and config.get("metadata.store", store) != store:
        raise LocalClusterError(
            f"store {store} and metadata.store={config['metadata.store']}: give one of them"
        )
    try:
        if store.startswith(SCHEME):
            parse_servers(store)
        if store == ZOOKEEPER or store.startswith(SCHEME):
            require_client(f"store {store}")
    except TidelogError as error:
        raise LocalClusterError(str(error)) from error


def check_config(
    directory: str, brokers: int, config: Mapping[str, str], log_dirs: int, store: str = EMBEDDED
) -> dict[int, tuple[Endpoint, ...]]:
    """Return the listeners of a new cluster's brokers with these configuration keys.

    Raises LocalClusterError if a broker cannot run with the configuration keys.
    """
    found = {}
    for number in range(1, brokers + 1):
        # Port 1 stands for every port here, because free ports are chosen later.
        place = BrokerPlace(number, 1, f"{directory}/broker-{number}")
        text = properties_text(store_key(directory, store, 1), place, brokers, config, log_dirs)
        try:
            found[number] = bound_endpoints(BrokerConfig.from_properties(parse_properties(text)))
        except TidelogError as error:
            raise LocalClusterError(f"no cluster is made in {directory}: {error}") from error
    return found


def check_same_config(places: Mapping[int, BrokerPlace], config: Mapping[str, str]) -> None:
    """Raise LocalClusterError if an existing broker's configuration contradicts `config`."""
    for place in places.values() if config else ():
        written = read_properties(place.properties_path)
        for key, value in config_of_broker(config, place.broker_id).items():
            there = written.get(key)
            if there is not None and there.strip() == value.strip():
                continue
            says = f"does not have {key}" if there is None else f"has {key}={there}"
            raise LocalClusterError(
                f"{place.properties_path} {says}: {key}={value} counts for a new cluster only;"
                " correct it there, in the file of each broker, and restart the brokers"
            )


def make_directory(directory: str) -> None:
    """Create a cluster's directory if missing; raise LocalClusterError if that fails."""
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError as error:
        raise _unusable(directory, error) from error


def _unusable(directory: str, error: OSError) -> LocalClusterError:
    return LocalClusterError(
        f"{directory} cannot hold a cluster: {error.strerror}: give a directory that can be made"
        " and written to"
    )


def check_unused(directory: str) -> None:
    """Raise LocalClusterError for a directory with foreign content."""
    others = [
        name
        for name in _names_in(directory)
        if name != _LOCK_NAME and not name.startswith(_MARKER_NAME)
    ]
    if others and not is_abandoned(directory):
        raise LocalClusterError(
            f"{directory} is not empty and holds no cluster.json: give a directory of its own "
            f"(found {', '.join(others[:3])})"
        )


def load(directory: str) -> dict[int, BrokerPlace] | None:
    """Return the brokers of the cluster in a directory; None if there is no cluster."""

    def places(state: Any) -> dict[int, BrokerPlace]:
        if state["version"] != _STATE_VERSION:
            raise LocalClusterError(
                f"{_state_path(directory)} is of version {state['version']}, not {_STATE_VERSION}"
            )
        return {
            int(number): _placed(
                BrokerPlace(int(number), entry["port"], f"{directory}/broker-{number}")
            )
            for number, entry in sorted(state["brokers"].items(), key=lambda item: int(item[0]))
        }

    return _of_state(directory, places)


def zookeeper_port(directory: str) -> int | None:
    """Return the port of the cluster's own ZooKeeper server; None if it has no such server."""

    def port(state: Any) -> int | None:
        server = state.get("zookeeper")
        return None if server is None else int(server["port"])

    return _of_state(directory, port)


def _of_state(directory: str, read: Callable[[Any], T]) -> T | None:
    """Return the result of `read` for the content of cluster.json; None if there is no cluster.

    Raises LocalClusterError for an unreadable or invalid file.
    """
    path = _state_path(directory)
    try:
        with open(path, encoding="utf-8") as file:
            return read(json.load(file))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise LocalClusterError(f"{path} cannot be read: {error.strerror}") from error
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise LocalClusterError(f"{path} is not the state of a cluster: {error}") from error


_LOCK_NAME = ".lock"
#: The marker file, which exists until the first write to a cluster.
_MARKER_NAME = ".never-up"


@contextlib.contextmanager
def locked(directory: str) -> Iterator[None]:
    """Hold the lock of a cluster, so that only one command at a time changes it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        descriptor = os.open(f"{directory}/{_LOCK_NAME}", flags, 0o644)
    except OSError as error:
        raise _unusable(directory, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _state_path(directory: str) -> str:
    return f"{directory}/cluster.json"


def _names_in(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unusable(directory, error) from error


def _admin_keys(place: BrokerPlace, address: str) -> dict[str, str]:
    """Return the keys of an admin port with a history."""
    return {
        "admin.listener": address,
        "admin.history.path": f"{place.directory}/metrics.history",
    }


def properties_text(
    store: str, place: BrokerPlace, brokers: int, config: Mapping[str, str], log_dirs: int
) -> str:
    """Return the server.properties of one broker of a new cluster; `config` overrides its keys."""
    data = [f"{place.directory}/data" + (f"-{n}" if log_dirs > 1 else "") for n in range(log_dirs)]
    keys = {
        "broker.id": str(place.broker_id),
        "listeners": f"PLAINTEXT://{place.address}",
        **({} if place.admin is None else _admin_keys(place, place.admin)),
        "log.dirs": ",".join(data),
        "metadata.store": store,
        "metadata.session.timeout.ms": str(_SESSION_TIMEOUT_MS),
        **({"zookeeper.connection.timeout.ms": _CONNECTION_MS} if store.startswith(SCHEME) else {}),
        "default.replication.factor": str(min(brokers, 3)),
        "offsets.topic.replication.factor": str(min(brokers, 3)),
        # With a delay of 0, as in Kafka's sample server.properties, a group's first rebalance
        # starts at once.
        "group.initial.rebalance.delay.ms": "0",
        **config_of_broker(config, place.broker_id),
    }
    return "".join(f"{key}={value}\n".replace("\\", "\\\\") for key, value in keys.items())
