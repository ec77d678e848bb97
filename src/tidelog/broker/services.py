"""Services for every part of a broker: configuration, clock, tracer, tasks, timers, view, peers.

`broker.broker` makes the services once and passes them to every part. Objects of other parts do not
belong to the services; a part gets them as separate parameters.
"""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING

from tidelog.broker.cluster_view import ClusterView
from tidelog.broker.peers import Peers
from tidelog.broker.server.fence import Fence
from tidelog.broker.server.timers import TimerWheel
from tidelog.core.config import BrokerConfig
from tidelog.core.dataclass import dataclass
from tidelog.core.metrics import Metrics
from tidelog.core.ports import Clock, Ports, Tracer
from tidelog.core.response_budget import ResponseBudget
from tidelog.core.tasks import Tasks
from tidelog.core.types import NO_BROKER_EPOCH, CleanEpochs

if TYPE_CHECKING:
    from tidelog.metadata.store import MetadataStore


class Identity:
    """The identity of this broker: its configured id, the epoch of its registration, its cluster.

    `membership.session` sets the fields of this class, and every part of the broker reads them.
    """

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "clean_epochs",
        "cluster_id",
        "fetching_epoch",
        "is_leaving",
        "older_stamp",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        #: Creation transaction id of the broker's own registration; `NO_BROKER_EPOCH` without a
        #: registration.
        self.broker_epoch = NO_BROKER_EPOCH
        #: Epoch of the latest registration of this process. Fetches carry this epoch even after the
        #: registration expired, because a leader would count a fetch without a broker epoch for the
        #: broker's next registration (V63).
        self.fetching_epoch = NO_BROKER_EPOCH
        #: The cluster's id; empty until the session is open.
        self.cluster_id = ""
        #: Epochs of earlier registrations; this broker has lost no record since the first of them.
        #: They are registrations of this process (E7), and of earlier processes if every log
        #: directory proves a clean shutdown (E3).
        self.clean_epochs = CleanEpochs()
        #: Whether the broker's controlled shutdown has begun (V43).
        self.is_leaving = False
        #: This broker's transaction id (stamp) in a store that is older than its logs; None before
        #: the broker met such a store (E8).
        self.older_stamp: int | None = None

    @property
    def is_registered(self) -> bool:
        """Whether the broker has a registration under which it may act."""
        return self.broker_epoch != NO_BROKER_EPOCH

    def registered(self, broker_epoch: int) -> None:
        """Begin to use the epoch of a new registration."""
        self.broker_epoch = self.fetching_epoch = broker_epoch

    def lost_while_registering(self, broker_epoch: int) -> None:
        """Note a registration that expired before the store's response reached the broker.

        The controller may already have recorded the expired registration; this process lost no
        record under it (E7).
        """
        self.clean_epochs = self.clean_epochs.followed_by(broker_epoch)

    def session_expired(self) -> None:
        """Note that the registration expired; this process still has its logs (E7)."""
        self.clean_epochs = self.epochs_so_far()
        self.broker_epoch = NO_BROKER_EPOCH

    def store_is_older(self, stamp: int) -> bool:
        """Note this broker's transaction id in an older store; return whether the id is new.

        An older store assigns transaction ids a second time. A broker epoch that was assigned
        before the restoration therefore no longer proves a registration of this broker, and
        `clean_epochs` becomes empty (E8).
        """
        is_news = self.older_stamp != stamp
        self.older_stamp = stamp
        self.clean_epochs = CleanEpochs()
        return is_news

    def epochs_so_far(self) -> CleanEpochs:
        """Return `clean_epochs`, followed by the current registration's epoch, if there is one.

        A clean shutdown writes the returned epochs into every log directory, even if the broker is
        not registered at that time.
        """
        if not self.is_registered:
            return self.clean_epochs
        return self.clean_epochs.followed_by(self.broker_epoch)


class Settings:
    """The broker's current configuration: static values, overridden by stored settings (V25)."""

    __slots__ = ("in_force",)

    def __init__(self, config: BrokerConfig) -> None:
        self.in_force = config


@dataclass(frozen=True, slots=True)
class Services:
    """The services that all parts of one broker share."""

    ports: Ports
    store: MetadataStore
    settings: Settings
    identity: Identity
    clock: Clock
    tracer: Tracer
    metrics: Metrics
    tasks: Tasks
    timers: TimerWheel
    #: Timers for timeouts of requests and groups; none of these fires while this broker is fenced
    #: (V47).
    serving_timers: TimerWheel
    fence: Fence
    view: ClusterView
    peers: Peers
    responses: ResponseBudget

    @property
    def config(self) -> BrokerConfig:
        """The broker's current configuration."""
        return self.settings.in_force

    @property
    def broker_id(self) -> int:
        """This broker's id."""
        return self.identity.broker_id

    @property
    def broker_epoch(self) -> int:
        """Epoch of the broker's own registration; `NO_BROKER_EPOCH` without a registration."""
        return self.identity.broker_epoch

    def unexpected(self, where: str, error: BaseException) -> None:
        """Log a defect of tidelog, by which one request or partition fails (DESIGN.md, rule 9)."""
        text = "".join(traceback.format_exception(error))
        self.tracer.event("unexpected_error", where=where, error=repr(error))
        self.tracer.log("server", logging.ERROR, f"unexpected error in {where}: {text}")
