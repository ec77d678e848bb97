"""Rules of missing and offline replicas broken, which `DirectoryModel` must find broken (D3, D4).

Each variant has the smallest bounds that let its defect show.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tests.support.models.directory_states import Bounds
from tests.support.models.variants import by_name, variant

from tidelog.controller.elections.leaders import RecreateReplicas
from tidelog.controller.orders import SendRoleAgain
from tidelog.controller.records import Presence
from tidelog.core.errors import ErrorCode


def _always_new(original: Any) -> Any:
    """Every role that the controller sends may create the replica."""
    return lambda builder, topic_partition, is_new: original(builder, topic_partition, True)


def _without(**values: Any) -> Callable[[Any], Any]:
    """A broker that does not know of failures decides on missing replicas."""
    return lambda original: lambda **found: original(**{**found, **values})


def _bounces_ignored(_: Any) -> Any:
    """A creation may have been cut short although a member has restarted since."""

    def cut_short(state: Any, replicas: Any, brokers: Any) -> bool:
        is_unwritten = state.partition_epoch == state.first_epochs[1]
        return is_unwritten and all(replica in brokers for replica in replicas)

    return cut_short


def _asked(*, awaits_all: bool, stops_at: tuple[Presence, ...]) -> Callable[[Any], Any]:
    """A partition is created again where brokers are silent, or where some have a replica."""

    def make(_: Any) -> Any:
        def ask(topic_partition: Any, replicas: Any, draft: Any) -> bool:
            presence = draft.image.presence(topic_partition)
            if any(found in stops_at for found in presence.values()):
                return False
            silent = [replica for replica in replicas if replica not in presence]
            for replica in silent:
                draft.order(SendRoleAgain(replica, topic_partition))
            if not silent or not awaits_all:
                draft.order(RecreateReplicas(topic_partition))
            return True

        return ask

    return make


def _only_lost(original: Any) -> Any:
    """The controller forgets which replicas are offline."""

    def absent(image: Any, topic_partition: Any) -> tuple[int, ...]:
        offline = image.offline(topic_partition)
        return tuple(each for each in original(image, topic_partition) if each not in offline)

    return absent


def _any_life(_: Any) -> Any:
    """A broker obeys commands for its earlier registrations."""

    def request_error(*, known_controller_epoch: int, controller_epoch: int, **_: Any) -> Any:
        is_stale = controller_epoch < known_controller_epoch
        return ErrorCode.STALE_CONTROLLER_EPOCH if is_stale else ErrorCode.NONE

    return request_error


_PLACEMENT: Final = "tidelog.replication.commands:placement"
_ASK: Final = "tidelog.controller.elections.leaders:_ask_for_replicas"
_CUT_SHORT: Final = "tidelog.controller.elections.election:cut_short"
_EVERYTHING_BUT_HERE: Final = (Presence.HERE, Presence.OFFLINE)
#: The disk of the only member is replaced by an empty one; brokers restart; neither.
_REPLACED: Final = Bounds(late=(2,), controller_deaths=0, failures=0)
_RESTARTED: Final = Bounds(controller_deaths=0, failures=0, replacements=0, restarts=2)
_CUT_SHORT_ONLY: Final = Bounds(failures=0, replacements=0, restarts=0)
_REPEATED: Final = Bounds(
    late=(2,), controller_deaths=0, replacements=0, restarts=0, lost_answers=1
)
#: One of two replicas may lose its record, and the other one's directory fails (E6).
_RECOVERED: Final = Bounds(
    minimum=2, is_begun=True, controller_deaths=0, replacements=0, restarts=2, cuts=1
)
_CREATED: Final = ("MemberCreated", "LeaderHasAll")
_RECREATED: Final = ("RecreatedWhereNoneIs",)
#: Variants of `DirectoryModel`.
DIRECTORY_VARIANTS: Final = by_name(
    variant("missing_replica_always_created", _CREATED, "empty_replica_leads", bounds=_REPLACED),
    variant(
        "every_command_creates",
        _CREATED,
        ("tidelog.controller.command_builder:CommandBuilder._role", _always_new),
        bounds=_REPLACED,
    ),
    variant(
        "creating_command_believed_twice",
        _CREATED,
        (_PLACEMENT, _without(offline=None)),
        bounds=_REPEATED,
    ),
    variant(
        "creating_command_of_an_earlier_life",
        _CREATED,
        ("tidelog.replication.commands:request_error", _any_life),
        bounds=_REPLACED._replace(lost_answers=1),
    ),
    variant(
        "offline_log_counts_as_lost",
        ("LeaderHasAll",),
        (
            "tidelog.replication.commands:missing_log_error",
            lambda original: lambda **_: original(has_failed_directory=False),
        ),
        bounds=_RECOVERED,
    ),
    variant(
        "failed_directory_ignored",
        (*_RECREATED, "LeaderHasAll"),
        (_PLACEMENT, _without(has_failed_directory=False, offline=None)),
        bounds=Bounds(controller_deaths=0, failures=2, replacements=0, restarts=0),
    ),
    variant(
        "cut_short_ignores_bounces",
        ("LeaderServes",),
        (_CUT_SHORT, _bounces_ignored),
        bounds=_RESTARTED,
    ),
    variant(
        "cut_short_ignores_silence",
        _RECREATED,
        (_ASK, _asked(awaits_all=False, stops_at=_EVERYTHING_BUT_HERE)),
        bounds=_CUT_SHORT_ONLY,
    ),
    variant(
        "cut_short_ignores_offline",
        _RECREATED,
        (_ASK, _asked(awaits_all=True, stops_at=(Presence.HERE,))),
        bounds=_CUT_SHORT_ONLY._replace(failures=1),
    ),
    variant(
        "cut_short_ignores_replicas",
        _RECREATED,
        (_ASK, _asked(awaits_all=True, stops_at=())),
        bounds=_CUT_SHORT_ONLY,
    ),
    variant(
        "cut_short_unnoticed",
        ("NothingStuck",),
        (_CUT_SHORT, lambda _: lambda state, replicas, brokers: False),
        bounds=_CUT_SHORT_ONLY,
    ),
    variant(
        "presence_forgotten",
        ("LeaderServes",),
        ("tidelog.controller.image:Image.absent", _only_lost),
        bounds=Bounds(controller_deaths=0, replacements=0, restarts=0),
    ),
)
