"""Findings about a broker's configuration file, and about the directories and hosts that it names.

`examine_config` is pure. A value that a broker refuses gives a finding of the level unavailable,
because the broker does not start. An unknown key gives a finding of the level degraded, because
brokers ignore the key.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence

from tidelog.core.config import BrokerConfig, known_keys
from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ConfigError
from tidelog.local.doctor.diagnosis import (
    Diagnosis,
    degraded,
    diagnosis,
    notice,
    unavailable,
    unread,
)
from tidelog.local.doctor.directory_facts import DirectoryFacts, read_directory
from tidelog.local.doctor.directory_findings import of_directory
from tidelog.local.doctor.machine_facts import MachineFacts, needed_open_files, read_machine
from tidelog.local.doctor.machine_findings import of_machine
from tidelog.local.health import Finding
from tidelog.runtime.config_files import load_config

_CONFIGURED = "correct it in {path}; every key: docs/configuration.md, or tidelog configs reference"


@dataclass(frozen=True, slots=True)
class ConfigFacts:
    """A configuration file; `refusal` is the error with which a broker refuses it."""

    path: str
    refusal: str = ""
    is_missing: bool = False
    config: BrokerConfig | None = None
    directories: Sequence[DirectoryFacts] = ()
    #: Advertised host names that this machine cannot resolve, with the errors.
    unresolved: Sequence[tuple[str, str]] = ()
    machine: MachineFacts = MachineFacts()


def read_config(path: str) -> ConfigFacts:
    """Return the facts about a configuration file, and about the paths and hosts in the file."""
    if not os.path.isfile(path):
        return ConfigFacts(path, "there is no such file", is_missing=True)
    try:
        config = load_config(path, [], named="", needs_id=False)
        config.embedded_store_directory()
    except ConfigError as error:
        return ConfigFacts(path, str(error))
    paths = [*config.log_dirs]
    machine = read_machine(paths, [], needed_open_files(len(paths), config.max_connections))
    hosts = dict.fromkeys(each.host for each in config.advertised_listeners)
    unresolved = [(host, trouble) for host in hosts if (trouble := _unresolved(host))]
    return ConfigFacts(
        path,
        config=config,
        directories=[read_directory(each) for each in paths],
        unresolved=unresolved,
        machine=machine,
    )


def _unresolved(host: str) -> str:
    """Return why this machine cannot resolve a host; empty if the host can be resolved."""
    try:
        socket.getaddrinfo(host or None, 0)
    except (OSError, UnicodeError) as error:
        return str(error)
    return ""


def examine_config(facts: ConfigFacts) -> Diagnosis:
    """Return the diagnosis of a configuration file."""
    return diagnosis("file", facts.path, _findings(facts))


def _findings(facts: ConfigFacts) -> Iterator[Finding]:
    correct = _CONFIGURED.format(path=facts.path)
    if facts.is_missing:
        message = f"{facts.path} cannot be examined: {facts.refusal}"
        yield unread("config_missing", message, "name a server.properties or .toml file")
        return
    config = facts.config
    if config is None:
        yield unavailable("config_refused", f"a broker does not start: {facts.refusal}", correct)
        return
    known = dict.fromkeys(known_keys())
    for warning in config.warnings:
        key = warning.partition(" ")[0]
        if key in config.given and key not in known:
            yield degraded("config_unknown_key", warning, correct)
        else:
            yield notice("config_warning", warning, correct)
    yield from _values(config, correct)
    for host, trouble in facts.unresolved:
        message = f"the advertised host {host} cannot be resolved here: {trouble}"
        yield degraded("host_unresolved", message, f"getent hosts {host}; {correct}")
    for each in facts.directories:
        if each.is_missing:
            message = f"log directory {each.path} does not exist: the broker creates it"
            yield notice("directory_new", message, f"if its disk is not mounted: mount {each.path}")
        elif each.trouble:
            message = f"log directory {each.path} cannot be used: {each.trouble}"
            yield unavailable("directory_unreadable", message, f"ls -ld {each.path}")
        else:
            yield from of_directory(each)
    yield from of_machine(facts.machine)


def _values(config: BrokerConfig, correct: str) -> Iterator[Finding]:
    """Yield values that a broker accepts, but that may harm its operation."""
    minimum, replicas = config.min_insync_replicas, config.default_replication_factor
    if replicas > 1 and minimum == replicas:
        message = (
            f"min.insync.replicas={minimum} equals default.replication.factor={replicas}: the stop"
            " of one broker stops writes with acks=all"
        )
        yield notice(
            "config_min_isr", message, f"set min.insync.replicas={replicas - 1}; {correct}"
        )
    if replicas > 1 and config.offsets_topic_replication_factor < replicas:
        message = (
            f"offsets.topic.replication.factor={config.offsets_topic_replication_factor} is below"
            f" default.replication.factor={replicas}: committed offsets are lost before records are"
        )
        remedy = f"set offsets.topic.replication.factor={replicas}; {correct}"
        yield notice("config_offsets_replicas", message, remedy)
