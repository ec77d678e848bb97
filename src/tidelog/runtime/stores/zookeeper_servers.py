"""Connection settings of ZooKeeper servers: addresses, chroot, TLS, credentials.

The setting has the form `metadata.store=zookeeper://host:port[,host:port][/chroot]`. This module
opens no connections. The ZooKeeper client kazoo is an extra (`zookeeper` in pyproject.toml), which
this module does not need.
"""

from __future__ import annotations

import importlib
from urllib.parse import urlsplit

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ConfigError
from tidelog.metadata.paths import is_path

SCHEME = "zookeeper://"
_DEFAULT_PORT = 2181


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS settings with PEM files; without `ca_file`, the system's authorities are trusted."""

    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    check_hostname: bool = True


@dataclass(frozen=True, slots=True)
class Servers:
    """The servers of an ensemble, with their connection settings.

    `sasl` is user and password for SASL DIGEST-MD5. `is_protected` means that only the creator of a
    node may change it.
    """

    addresses: tuple[tuple[str, int], ...]
    chroot: str = ""
    tls: Tls | None = None
    sasl: tuple[str, str] | None = None
    is_protected: bool = False

    @property
    def hosts(self) -> str:
        """The addresses of the servers as `host:port,host:port`."""
        return ",".join(_address(host, port) for host, port in self.addresses)

    def __str__(self) -> str:
        return f"{SCHEME}{self.hosts}{self.chroot}"


def parse_servers(text: str) -> Servers:
    """Parse `zookeeper://host:port,host:port/chroot`, scheme optional; raise ConfigError."""
    rest = text.removeprefix(SCHEME)
    hosts, slash, below = rest.partition("/")
    chroot = slash + below.rstrip("/") if below.rstrip("/") else ""
    expected = "zookeeper://host:port[,host:port][/chroot] expected"
    if chroot and not is_path(chroot):
        raise ConfigError(f"{text}: {chroot} is not a path of a node; {expected}")
    names = [name.strip() for name in hosts.split(",")]
    if not all(names):
        raise ConfigError(f"{text}: a server without a name; {expected}")
    try:
        addresses = tuple(_host_and_port(name) for name in names)
    except ValueError as error:
        raise ConfigError(f"{text}: {error}; {expected}") from error
    if len(set(addresses)) != len(addresses):
        raise ConfigError(f"{text}: a server is named twice; {expected}")
    return Servers(addresses, chroot)


def require_client(setting: str) -> None:
    """Raise ConfigError if the ZooKeeper client, which `setting` needs, is not installed."""
    try:
        importlib.import_module("kazoo")
    except ImportError as error:
        # Imported here, because this import reads the metadata of installed packages.
        from tidelog.runtime.extras import install_command

        raise ConfigError(
            f"{setting} needs ZooKeeper's client, kazoo, which is not installed:"
            f" {install_command('zookeeper')}"
        ) from error


def _host_and_port(name: str) -> tuple[str, int]:
    """Return the address in `host`, `host:port` or `[address]:port`; raise ValueError."""
    parts = urlsplit(f"//{name}")
    if not parts.hostname:
        raise ValueError(f"{name!r} names no host")
    return parts.hostname.strip(), parts.port or _DEFAULT_PORT


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
