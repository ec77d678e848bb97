"""Listeners of a local cluster's brokers: their consecutive ports, and checks that these are free.

The listeners in a broker's server.properties are in force, even if a user has edited the file.
Listeners given for a whole cluster are the listeners of broker 1; each further broker listens one
port higher.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping

from tidelog.core.config import BrokerConfig
from tidelog.core.errors import TidelogError
from tidelog.core.listeners import admin_endpoint
from tidelog.core.types import Endpoint
from tidelog.local.errors import LocalClusterError
from tidelog.local.ports import LOOPBACK
from tidelog.runtime.config_files import load_config

#: Configuration keys whose values contain the ports of listeners.
_KEYS = ("listeners", "advertised.listeners", "admin.listener")
_PORT = re.compile(r":(\d+)(?=\s*/?(?:,|$))")
MAX_PORT = 65_535


def check_first_port(first: int | None, brokers: int, config: Mapping[str, str]) -> None:
    """Raise LocalClusterError for invalid port numbers of brokers."""
    if first is None:
        return
    if "listeners" in config:
        raise LocalClusterError(
            f"port {first} and listeners={config['listeners']}: give one of them"
        )
    if not 1 <= first <= MAX_PORT - brokers + 1:
        raise LocalClusterError(
            f"port {first}: {brokers} brokers need ports {first} to {first + brokers - 1};"
            f" 1 to {MAX_PORT} are possible"
        )


def config_of_broker(config: Mapping[str, str], broker_id: int) -> dict[str, str]:
    """Return one broker's configuration: `config` with listener ports `broker_id` - 1 higher."""

    def moved(match: re.Match[str]) -> str:
        port = int(match[1])
        return f":{port + broker_id - 1 if port else 0}"

    return {
        key: _PORT.sub(moved, value) if key in _KEYS else value for key, value in config.items()
    }


def config_of_file(properties_path: str) -> BrokerConfig | None:
    """Return the configuration in a server.properties file; None for an unusable file.

    The start of the broker reports the error of an unusable server.properties.
    """
    try:
        return load_config(properties_path, [])
    except TidelogError:
        return None


def bound_endpoints(config: BrokerConfig) -> tuple[Endpoint, ...]:
    """Return the endpoints on which a broker listens, including the admin port."""
    admin = admin_endpoint(config.admin_listener)
    return config.listeners if admin is None else (*config.listeners, admin)


def check_free(listeners: Mapping[int, tuple[Endpoint, ...]]) -> None:
    """Raise LocalClusterError if a broker cannot listen, before any broker starts."""
    owners: dict[int, int] = {}
    for broker_id, endpoints in listeners.items():
        for endpoint in endpoints:
            if endpoint.port == 0:
                raise LocalClusterError(
                    f"broker {broker_id}: listener {endpoint.listener} has port 0, which is"
                    " another one at each start; a local cluster needs a fixed port"
                )
            other = owners.setdefault(endpoint.port, broker_id)
            if other != broker_id:
                raise LocalClusterError(
                    f"brokers {other} and {broker_id} would both listen on port {endpoint.port}:"
                    " give each listener of each broker a port of its own"
                )
            _check_bindable(broker_id, endpoint)


def _check_bindable(broker_id: int, endpoint: Endpoint) -> None:
    host = endpoint.host or "0.0.0.0"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        # Brokers also set SO_REUSEADDR, so that the port of a killed broker is free at once.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, endpoint.port))
            # If another socket listens on the port, `bind` may succeed, and only `listen` fails.
            probe.listen(1)
        except OSError as error:
            raise LocalClusterError(
                f"broker {broker_id} cannot listen on {endpoint.host or LOOPBACK}:{endpoint.port}:"
                f" {error.strerror}; no broker was started. A port that no process listens on is"
                " needed: `tidelog up --port` chooses others for a new cluster, an existing one"
                " has them in its broker-*/server.properties"
            ) from error
