"""Rules of missing and offline replicas broken, which `DirectoryModel` must find broken (D3, D4).

Each variant has the smallest bounds that let its defect show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.support.models.directory_states import Bounds
from tests.support.models.variants import Variant
from tests.support.mutants import MUTANTS, Mutant

from tidelog.controller.elections.leaders import RecreateReplicas
from tidelog.controller.orders import SendRoleAgain
from tidelog.controller.records import Presence
from tidelog.core.errors import ErrorCode


def _put(name: str, target: str, make: Callable[[Any], Any]) -> Mutant:
    return Mutant(name, "", "", (f"tidelog.{target}",), make)


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


_PLACEMENT: Final = "replication.commands:placement"
_ASK: Final = "controller.elections.leaders:_ask_for_replicas"
_CUT_SHORT: Final = "controller.elections.election:cut_short"
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
#: What is broken, and the bounds at which it shows.
DIRECTORY_VARIANTS: Final[Mapping[str, tuple[Variant, Bounds]]] = {
    variant.name: (variant, bounds)
    for variant, bounds in (
        (
            Variant(
                "missing_replica_always_created",
                (MUTANTS["empty_replica_leads"],),
                ("MemberCreated", "LeaderHasAll"),
            ),
            _REPLACED,
        ),
        (
            Variant(
                "every_command_creates",
                (_put("new", "controller.command_builder:CommandBuilder._role", _always_new),),
                ("MemberCreated", "LeaderHasAll"),
            ),
            _REPLACED,
        ),
        (
            Variant(
                "creating_command_believed_twice",
                (_put("twice", _PLACEMENT, _without(offline=None)),),
                ("MemberCreated", "LeaderHasAll"),
            ),
            _REPEATED,
        ),
        (
            Variant(
                "creating_command_of_an_earlier_life",
                (_put("any life", "replication.commands:request_error", _any_life),),
                ("MemberCreated", "LeaderHasAll"),
            ),
            _REPLACED._replace(lost_answers=1),
        ),
        (
            Variant(
                "offline_log_counts_as_lost",
                (
                    _put(
                        "lost",
                        "replication.commands:missing_log_error",
                        lambda original: lambda **_: original(has_failed_directory=False),
                    ),
                ),
                ("LeaderHasAll",),
            ),
            _RECOVERED,
        ),
        (
            Variant(
                "failed_directory_ignored",
                (_put("ignored", _PLACEMENT, _without(has_failed_directory=False, offline=None)),),
                ("RecreatedWhereNoneIs", "LeaderHasAll"),
            ),
            Bounds(controller_deaths=0, failures=2, replacements=0, restarts=0),
        ),
        (
            Variant(
                "cut_short_ignores_bounces",
                (_put("bounces", _CUT_SHORT, _bounces_ignored),),
                ("LeaderServes",),
            ),
            _RESTARTED,
        ),
        (
            Variant(
                "cut_short_ignores_silence",
                (_put("silent", _ASK, _asked(awaits_all=False, stops_at=_EVERYTHING_BUT_HERE)),),
                ("RecreatedWhereNoneIs",),
            ),
            _CUT_SHORT_ONLY,
        ),
        (
            Variant(
                "cut_short_ignores_offline",
                (_put("offline", _ASK, _asked(awaits_all=True, stops_at=(Presence.HERE,))),),
                ("RecreatedWhereNoneIs",),
            ),
            _CUT_SHORT_ONLY._replace(failures=1),
        ),
        (
            Variant(
                "cut_short_ignores_replicas",
                (_put("here", _ASK, _asked(awaits_all=True, stops_at=())),),
                ("RecreatedWhereNoneIs",),
            ),
            _CUT_SHORT_ONLY,
        ),
        (
            Variant(
                "cut_short_unnoticed",
                (_put("never", _CUT_SHORT, lambda _: lambda state, replicas, brokers: False),),
                ("NothingStuck",),
            ),
            _CUT_SHORT_ONLY,
        ),
        (
            Variant(
                "presence_forgotten",
                (_put("forgotten", "controller.image:Image.absent", _only_lost),),
                ("LeaderServes",),
            ),
            Bounds(controller_deaths=0, replacements=0, restarts=0),
        ),
    )
}  # fmt: skip
