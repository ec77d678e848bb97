"""The first lines of a broker's log, written before and after the broker's start.

The lines before the start name the version, ids, listeners, store and directories, so that the log
has these facts even if the start fails. The line after the start names the cluster, the broker
epoch and the number of replicas. Each log directory has a log line of its own about its recovery.
"""

from __future__ import annotations

import logging
import os
import platform

import tidelog
from tidelog.broker.broker import Broker
from tidelog.core.config import BrokerConfig
from tidelog.core.types import Endpoint
from tidelog.core.wording import counted


def log_before_start(log: logging.Logger, config: BrokerConfig) -> None:
    """Log the version, the machine, and the main settings of the configuration."""
    log.info(
        "tidelog %s on Python %s, %s %s, %d processors; process %d, broker %d",
        tidelog.__version__,
        platform.python_version(),
        platform.system(),
        platform.release(),
        os.cpu_count() or 1,
        os.getpid(),
        config.broker_id,
    )
    log.info(
        "listeners %s; advertised %s; between brokers %s at level %s",
        addresses(config.listeners),
        addresses(config.advertised_listeners),
        config.inter_broker_listener_name,
        config.inter_broker_protocol_version or "of this version",
    )
    log.info(
        "metadata store %s; log directories %s",
        config.metadata_store or "not set",
        ", ".join(config.log_dirs),
    )


def log_after_start(log: logging.Logger, broker: Broker) -> None:
    """Log that the broker has started, with its cluster, epoch and number of replicas."""
    identity, directories = broker.services.identity, broker.replicas.log_dirs.good
    log.info(
        "broker %d started on %s; cluster %s, epoch %d; %s in %s",
        broker.broker_id,
        addresses(broker.advertised_endpoints()),
        identity.cluster_id,
        identity.broker_epoch,
        counted(len(list(broker.replicas.all())), "replica"),
        ", ".join(each.path for each in directories),
    )


def addresses(endpoints: tuple[Endpoint, ...]) -> str:
    """Return endpoints as text; a single endpoint is shown without its listener's name."""
    return ", ".join(
        (f"{each.listener}://" if len(endpoints) > 1 else "") + f"{each.host}:{each.port}"
        for each in endpoints
    )
