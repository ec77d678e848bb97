"""Settings that a controller gets when its term begins.

The settings are the values of this broker's configuration on which decisions depend. The cluster's
unclean.leader.election.enable and min.insync.replicas may change within the term.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidelog.core.dataclass import dataclass

#: Function that checks a topic's configuration and returns the form to store; raises ConfigError.
ConfigValidator = Callable[[Mapping[str, str | None]], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """The cluster's configuration for new topics."""

    num_partitions: int
    replication_factor: int
    validate_configs: ConfigValidator
    deletion_enabled: bool = True


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Identity and configuration of the controller for one term."""

    controller_id: int
    controller_epoch: int
    topic_defaults: TopicDefaults
    #: unclean.leader.election.enable of the cluster; a topic may have its own value.
    unclean: bool = False
    #: min.insync.replicas of the cluster; a topic may have its own value.
    min_insync_replicas: int = 1
    #: isr.expand.linger.ms: how long an ISR expansion may be held back; 0 disables holding back
    #: (A11).
    isr_expand_linger_ms: int = 0
    #: reassignment.max.concurrent.partitions: maximum number of reassignments under way from the
    #: queue (R8).
    concurrent_reassignments: int = 50
    #: reassignment.max.concurrent.partitions.per.broker.
    concurrent_reassignments_per_broker: int = 5
    #: reassignment.auto.pause.enable.
    pauses_reassignments: bool = True
