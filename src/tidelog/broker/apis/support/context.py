"""The context of API handlers: the parts of this broker that handlers use.

A test of one handler passes an object with only the parts that the handler uses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidelog.core.dataclass import dataclass

if TYPE_CHECKING:
    from tidelog.broker.configs.config_store import ConfigStore
    from tidelog.broker.configs.live_configs import LiveConfigs
    from tidelog.broker.controller.runtime import ControllerRuntime
    from tidelog.broker.coordinators.group_coordinators import GroupCoordinators
    from tidelog.broker.held_answers import HeldAnswers
    from tidelog.broker.membership.auto_creation import AutoCreation
    from tidelog.broker.membership.controlled_shutdown import ControlledShutdown
    from tidelog.broker.membership.producer_ids import ProducerIds
    from tidelog.broker.membership.store_trouble import StoreTrouble
    from tidelog.broker.replicas.commands import ReplicaCommands
    from tidelog.broker.replicas.fetching.fetch_sessions import FetchSessions
    from tidelog.broker.replicas.hosting.isr_change_queue import IsrChangeQueue
    from tidelog.broker.replicas.isr.foreign_isr_changes import ForeignIsrChanges
    from tidelog.broker.replicas.replica_set import ReplicaSet
    from tidelog.broker.replicas.stray_recovery import StrayRecovery
    from tidelog.broker.server.admission import Admission
    from tidelog.broker.server.dispatch import Dispatcher
    from tidelog.broker.services import Services


@dataclass(frozen=True, slots=True)
class ApiContext:
    """The broker's parts, made once by `broker.broker` and passed to every handler."""

    services: Services
    dispatcher: Dispatcher
    admission: Admission
    replicas: ReplicaSet
    commands: ReplicaCommands
    alter_partition_manager: IsrChangeQueue
    foreign_isr_changes: ForeignIsrChanges
    fetch_sessions: FetchSessions
    strays: StrayRecovery
    groups: GroupCoordinators
    controller: ControllerRuntime
    producer_ids: ProducerIds
    auto_creation: AutoCreation
    controlled_shutdown: ControlledShutdown
    store_trouble: StoreTrouble
    config_store: ConfigStore
    live_configs: LiveConfigs
    held_answers: HeldAnswers
    #: Called with the name of the mark in a controller's request; the mark is a store node which
    #: records that the metadata store lost writes (E8).
    store_marked: Callable[[str], None]
