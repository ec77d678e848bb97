"""The construction of the metadata store that a configuration names, without opening it.

The value of `metadata.store` selects the store; this module reads the keys of the embedded store
and of ZooKeeper.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable

from tidelog.core.config import BrokerConfig
from tidelog.core.errors import ConfigError
from tidelog.metadata.store import MetadataStore
from tidelog.runtime.stores.sqlite import SqliteStore
from tidelog.runtime.stores.zookeeper_servers import Servers, Tls, parse_servers, require_client


def make_store(
    config: BrokerConfig,
    loop: asyncio.AbstractEventLoop,
    log: Callable[[str], None],
    *,
    connect_timeout_name: str = "zookeeper.connection.timeout.ms",
) -> MetadataStore:
    """Return the store of a broker; raise a ConfigError that names an unusable key.

    `connect_timeout_name` is the setting that an error names if no server is reached in time.
    """
    directory = config.embedded_store_directory()
    timeout_ms = config.metadata_session_timeout_ms
    if directory is not None:
        return SqliteStore(directory, loop, session_timeout_ms=timeout_ms, log=log)
    servers = zookeeper_servers(config)
    # Imported here, so that a broker on the embedded store needs no memory for a ZooKeeper client.
    from tidelog.runtime.stores.zookeeper import ZookeeperStore

    return ZookeeperStore(
        servers,
        loop,
        session_timeout_ms=timeout_ms,
        connect_timeout_ms=config.zookeeper_connection_timeout_ms,
        connect_timeout_name=connect_timeout_name,
        log=log,
    )


def zookeeper_servers(config: BrokerConfig) -> Servers:
    """Return the servers of `metadata.store` with connection settings from `zookeeper.*` keys.

    Raises ConfigError for unusable keys, or if the ZooKeeper client is not installed.
    """
    servers = parse_servers(config.metadata_store)
    require_client(f"metadata.store={config.metadata_store}")
    keystore = config.zookeeper_ssl_keystore_location
    tls = None
    if config.zookeeper_ssl_client_enable:
        tls = Tls(
            ca_file=config.zookeeper_ssl_truststore_location,
            certificate_file=keystore,
            key_file=keystore,
            check_hostname=config.zookeeper_ssl_endpoint_identification_algorithm == "HTTPS",
        )
    return dataclasses.replace(
        servers,
        tls=tls,
        sasl=_credentials(config.zookeeper_sasl_credentials_file),
        is_protected=config.zookeeper_set_acl,
    )


def _credentials(path: str) -> tuple[str, str] | None:
    """Return user and password from a file with one line; raise ConfigError."""
    if not path:
        return None
    key = f"zookeeper.sasl.credentials.file={path}"
    try:
        with open(path, encoding="utf-8") as file:
            user, colon, password = file.read().strip().partition(":")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{key}: {error}") from error
    if not (user and colon and password):
        raise ConfigError(f"{key}: one line user:password expected")
    return user, password
