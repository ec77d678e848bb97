"""One ordered queue and connection from the controller to each registered broker (V17, V81).

A channel belongs to one registration; a later incarnation of the broker gets another channel.
Waiting commands for a broker are merged, so the queue stays bounded. A command fails if the
connection breaks, the timeout expires or the broker rejects the command. The channel resends a
failed command on the same queue until the registration ends. The controller sends a broker the
metadata of new leaders only after that broker has acknowledged its roles, so the broker does not
advertise its own leaderships before it leads. If a broker refuses a role because its disk is full,
the controller resends the role until the disk has room or a newer command replaces the role.
Correlation ids continue from one connection to the next, so a broker recognizes late requests of an
earlier connection (V30). Each response becomes an event of the controller. A broker that does not
respond delays no other broker; after controller.socket.timeout.ms the log names the broker, and a
metric counts it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.broker.controller.metrics import COMMANDS_DROPPED, COMMANDS_OVERDUE, COMMANDS_REPEATED
from tidelog.broker.peers import PeerConnection, api_name
from tidelog.controller.commands import BrokerRole, Commands, Outgoing, Part, Sender, endpoint_of
from tidelog.controller.elections.recoveries import LogEndsReported
from tidelog.controller.events import Event
from tidelog.controller.overdue import Overdue
from tidelog.controller.records import NO_LOG, UNREADABLE_LOG, LogEnd
from tidelog.controller.replica_answers import (
    CommandsDropped,
    LeaderAndIsrAnswered,
    StopReplicaAnswered,
)
from tidelog.core.errors import ErrorCode
from tidelog.core.tasks import Signal
from tidelog.core.types import BrokerInfo, TopicPartition
from tidelog.wire.messages.get_replica_log_info import GetReplicaLogInfoResponse, PartitionLogInfo
from tidelog.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from tidelog.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from tidelog.wire.peer import CorrelationIds

if TYPE_CHECKING:
    from tidelog.broker.controller.term_events import TermEvents
    from tidelog.broker.server.timers import Timeout
    from tidelog.broker.services import Services

#: Pause in milliseconds before a command is sent again (as in Kafka's RequestSendThread).
RETRY_MS = 100
#: Pause in milliseconds before the first retry of a command. The first pause is short, because a
#: broker that is starting will soon listen and know its epoch.
FIRST_RETRY_MS = 20
#: Pause in milliseconds before a role is sent again to a broker whose disk was full; the disk may
#: have room by then.
FULL_DISK_RETRY_MS = 1_000
#: Longest pause in milliseconds before a role is sent again. The pause doubles while the broker
#: refuses the same roles; a broker with a failed log directory refuses them until it restarts (D4).
LONGEST_RETRY_MS = 30_000

#: The parts of commands that the controller sends after the broker has acknowledged its roles.
_LATE = (Part.SHOWN, Part.LOG_ENDS)
#: Maximum number of different reasons for retries that the log reports before the broker has
#: acknowledged all commands.
_MAX_REPORTED = 20


class Channel:
    """The controller's queue of commands for one registration of a broker, and the connection to
    that broker.
    """

    def __init__(self, channels: Channels, info: BrokerInfo) -> None:
        self.info = info
        self._channels = channels
        self._services = channels.services
        self._connection: PeerConnection | None = None
        self._correlation_ids = CorrelationIds()
        self._waiting: Commands | None = None
        self._wake = Signal(self._services.ports.loop)
        self._failures = 0
        self._closed = False
        self._busy = False
        self._on_idle: dict[Callable[[], None], None] = {}
        self._overdue = Overdue(self._services.config.controller_socket_timeout_ms)
        #: The live brokers, as the newest commands list them.
        self._brokers: tuple[BrokerInfo, ...] = ()
        #: Roles that the broker refused (KAFKA_STORAGE_ERROR) and that no later command has
        #: replaced.
        self._refused: dict[TopicPartition, BrokerRole] = {}
        self._repetition: Timeout | None = None
        self._repetition_ms = FULL_DISK_RETRY_MS
        #: Roles that the controller last resent because the broker had refused them. If the broker
        #: refuses the same roles again, the pause doubles.
        self._refused_before: dict[TopicPartition, BrokerRole] = {}
        #: Reasons for retries that the log has reported since the broker last acknowledged all
        #: commands.
        self._reported: dict[str, None] = {}
        self._task = self._services.tasks.spawn(f"channel to broker {info.broker_id}", self._run())

    def add(self, commands: Commands) -> None:
        """Queue commands behind the waiting commands, and merge both."""
        self._busy = True
        self._overdue.queued(self._services.clock.monotonic_ms())
        self._brokers = commands.brokers
        if commands.full:
            self._refused.clear()
        for topic_partition in (*commands.roles, *commands.stops):
            self._refused.pop(topic_partition, None)
        if self._waiting is None:
            self._waiting = commands
        else:
            self._merge(self._waiting, commands)
        self._wake.set()

    def _merge(self, waiting: Commands, later: Commands) -> None:
        waiting.merge(later)
        if not waiting.has_outgrown:
            return
        waiting.drop_shown()
        self._services.metrics.add(COMMANDS_DROPPED, 1, self.info.broker_id)
        self._services.tracer.event("commands_dropped", to=self.info.broker_id)
        self._log(
            logging.WARNING,
            f"command backlog for broker {self.info.broker_id} exceeds the number of partitions;"
            " replacing it by the full state",
        )
        self._channels.offer(CommandsDropped(self.info.broker_id, self.info.broker_epoch))

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the broker has acknowledged all commands or the channel closes."""
        if self._busy:
            self._on_idle[callback] = None
        else:
            callback()

    def forget(self, callback: Callable[[], None]) -> None:
        """Remove a callback, so that callbacks for an unresponsive broker do not pile up."""
        self._on_idle.pop(callback, None)

    @property
    def is_idle(self) -> bool:
        """Whether the broker has acknowledged all its commands."""
        return not self._busy

    @property
    def behind_ms(self) -> int:
        """Milliseconds for which the broker has not acknowledged its oldest command."""
        return self._overdue.behind_ms(self._services.clock.monotonic_ms())

    def close(self) -> None:
        """Close the channel, and do not wait for the responses of requests in flight."""
        self._closed = True
        self._task.cancel()
        if self._repetition is not None:
            self._repetition.cancel()
        self._disconnect("the broker's registration, or the controller's term, is over")
        self._services.metrics.drop(COMMANDS_OVERDUE, self.info.broker_id)
        self._idle()

    def _idle(self) -> None:
        self._busy = False
        callbacks, self._on_idle = self._on_idle, {}
        for callback in callbacks:
            callback()

    async def _run(self) -> None:
        tasks, config = self._services.tasks, self._services.config
        while True:
            await self._wake.wait()
            if config.controller_propagation_linger_ms > 0:
                await tasks.sleep(config.controller_propagation_linger_ms)
            while self._waiting is not None:
                commands, self._waiting = self._waiting, None
                if await self._deliver(commands):
                    self._failures = 0
                    self._caught_up()
                    continue
                if self._waiting is not None:
                    self._merge(commands, self._waiting)
                self._waiting = commands
                self._failures += 1
                await tasks.sleep(FIRST_RETRY_MS if self._failures == 1 else RETRY_MS)
            self._idle()

    async def _deliver(self, commands: Commands) -> bool:
        """Send the commands; return False if the controller must send some of them again."""
        outgoing = commands.requests(self._channels.sender, self.info.broker_epoch)
        early = [request for request in outgoing if request.part not in _LATE]
        late = [request for request in outgoing if request.part in _LATE]
        return await self._exchange(commands, early) and await self._exchange(commands, late)

    async def _exchange(self, commands: Commands, outgoing: list[Outgoing]) -> bool:
        """Send requests one after the other without waiting, then wait for all responses."""
        if not outgoing:
            return True
        done: asyncio.Future[None] = self._services.ports.loop.create_future()
        connection = self._connected()
        pending = len(outgoing)
        succeeded = True

        def answered(request: Outgoing, answer: Any, error: Exception | None) -> None:
            nonlocal pending, succeeded
            pending -= 1
            if self._take_answer(commands, request, answer, error):
                if request.part is Part.ROLES:
                    self._roles_answered(commands, request.message, answer)
                commands.answered(request)
            else:
                succeeded = False
            if pending == 0 and not done.done():
                done.set_result(None)

        timeout_ms = self._services.config.controller_socket_timeout_ms
        for request in outgoing:
            connection.send(
                request.api_key,
                request.version,
                request.message,
                timeout_ms,
                partial(answered, request),
            )
        await done
        return succeeded

    def _connected(self) -> PeerConnection:
        if self._connection is None or not self._connection.is_open:
            endpoint = endpoint_of(self.info, self._channels.sender.listener)
            self._connection = self._services.peers.open(
                endpoint.host, endpoint.port, "controller", self._correlation_ids
            )
        return self._connection

    def _disconnect(self, reason: str) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close(reason)

    def _take_answer(
        self, commands: Commands, request: Outgoing, answer: Any, error: Exception | None
    ) -> bool:
        """Pass a response to the controller; return False if the request must be sent again."""
        if self._closed:
            return False
        if error is not None:
            self._report(request, str(error))
            self._disconnect(str(error))
            return False
        if request.part is Part.LOG_ENDS:
            return self._log_ends_reported(commands, request, answer)
        code = ErrorCode(answer.error_code)
        if code is not ErrorCode.NONE:
            self._report(request, code.name)
            if code is ErrorCode.STALE_CONTROLLER_EPOCH:
                self._channels.stale()
            return False
        if request.part is Part.STOPS:
            self._stops_answered(request.message, answer)
        return True

    def _report(self, request: Outgoing, reason: str) -> None:
        api = api_name(request.api_key)
        self._services.tracer.event(
            "command_repeated", to=self.info.broker_id, api=api, reason=reason
        )
        problem = f"{api} to broker {self.info.broker_id} will be repeated: {reason}"
        # Until a dead broker's session ends, retries come ten times a second. The log has each
        # reason for a retry once as a warning, and then only at debug level.
        self._log(logging.DEBUG if problem in self._reported else logging.WARNING, problem)
        if len(self._reported) < _MAX_REPORTED:
            self._reported[problem] = None
        self._services.metrics.add(COMMANDS_REPEATED, 1, self.info.broker_id)
        behind_ms = self._overdue.failed(self._services.clock.monotonic_ms())
        if behind_ms is None:
            return
        self._services.metrics.put(COMMANDS_OVERDUE, 1, self.info.broker_id)
        self._services.tracer.event("commands_overdue", to=self.info.broker_id, behind_ms=behind_ms)
        self._report_behind(behind_ms, is_over=False)
        self._log(
            logging.ERROR,
            f"broker {self.info.broker_id} has not acknowledged controller commands for"
            f" {behind_ms} ms; resending while it is registered, other brokers do not wait",
        )

    def _caught_up(self) -> None:
        self._reported.clear()
        now_ms = self._services.clock.monotonic_ms()
        behind_ms = self._overdue.answered(now_ms, more=self._waiting is not None)
        if behind_ms is None:
            return
        self._services.metrics.drop(COMMANDS_OVERDUE, self.info.broker_id)
        self._services.tracer.event("commands_taken", to=self.info.broker_id, behind_ms=behind_ms)
        self._report_behind(behind_ms, is_over=True)
        self._log(
            logging.INFO,
            f"broker {self.info.broker_id} acknowledged controller commands after {behind_ms} ms",
        )

    def _report_behind(self, behind_ms: int, *, is_over: bool) -> None:
        info = self.info
        self._channels.events.behind(info.broker_id, info.broker_epoch, behind_ms, is_over=is_over)

    def _log(self, level: int, message: str) -> None:
        self._services.tracer.log("controller", level, message)

    def _roles_answered(
        self, commands: Commands, request: LeaderAndIsrRequest, answer: LeaderAndIsrResponse
    ) -> None:
        names = {topic.topic_id: topic.topic_name for topic in request.topic_states}
        # A LeaderAndIsr entry without a leader epoch only lists a replica that the broker must
        # keep; the entry gives the replica no role (V35).
        kept = {
            (topic.topic_id, state.partition_index): None
            for topic in request.topic_states
            for state in topic.partition_states
            if state.leader_epoch < 0
        }
        outcomes = [
            (
                TopicPartition(names[topic.topic_id], partition.partition_index),
                ErrorCode(partition.error_code),
            )
            for topic in answer.topics
            if topic.topic_id in names
            for partition in topic.partition_errors
            if (topic.topic_id, partition.partition_index) not in kept
        ]
        self._report_errors("LeaderAndIsr", outcomes)
        self._channels.events.answered(self.info.broker_id, outcomes)
        self._keep_refused(commands, outcomes)
        self._channels.offer(
            LeaderAndIsrAnswered(self.info.broker_id, self.info.broker_epoch, outcomes)
        )

    def _keep_refused(
        self, commands: Commands, outcomes: list[tuple[TopicPartition, ErrorCode]]
    ) -> None:
        """Keep the roles that the broker refused (KAFKA_STORAGE_ERROR), to resend them later.

        A full disk may have room later. The controller does not resend a role that a waiting
        command replaces.
        """
        waiting = self._waiting
        for topic_partition, error in outcomes:
            role = commands.roles.get(topic_partition)
            if error is not ErrorCode.KAFKA_STORAGE_ERROR or role is None:
                continue
            if waiting is None or not (
                waiting.full or topic_partition in waiting.roles or topic_partition in waiting.stops
            ):
                self._refused[topic_partition] = role
        if self._refused and self._repetition is None:
            is_same = self._refused.keys() == self._refused_before.keys()
            pause_ms = min(self._repetition_ms * 2, LONGEST_RETRY_MS)
            self._repetition_ms = pause_ms if is_same else FULL_DISK_RETRY_MS
            self._repetition = self._services.timers.after(
                self._repetition_ms, self._repeat_refused
            )

    def _repeat_refused(self) -> None:
        self._repetition = None
        refused, self._refused = self._refused, {}
        self._refused_before = refused
        if refused and not self._closed:
            self.add(Commands(self._brokers, roles=refused))

    def _stops_answered(self, request: StopReplicaRequest, answer: StopReplicaResponse) -> None:
        stopped = [
            TopicPartition(topic.topic_name, partition.partition_index)
            for topic in request.topic_states
            for partition in topic.partition_states
            if partition.delete_partition
        ]
        self._report_errors(
            "StopReplica",
            [
                (
                    TopicPartition(partition.topic_name, partition.partition_index),
                    ErrorCode(partition.error_code),
                )
                for partition in answer.partition_errors
            ],
        )
        self._channels.offer(
            StopReplicaAnswered(self.info.broker_id, self.info.broker_epoch, stopped)
        )

    def _log_ends_reported(
        self, commands: Commands, request: Outgoing, answer: GetReplicaLogInfoResponse
    ) -> bool:
        """Pass a broker's log ends to the controller (E6); return False to ask the broker again.

        The controller must request the log ends again if the broker responded for another
        registration, or could not read some logs.
        """
        if answer.broker_epoch != self.info.broker_epoch:
            self._report(request, f"an answer of broker epoch {answer.broker_epoch}")
            return False
        logs: dict[TopicPartition, LogEnd] = {}
        failed: list[str] = []
        for topic in answer.topic_partition_log_info_list:
            for info in topic.partition_log_info:
                key = (topic.topic_id, info.partition)
                topic_partition = commands.log_ends.get(key)
                if topic_partition is None:
                    continue
                end = _log_end(info)
                if end is None:
                    failed.append(f"{topic_partition}: {ErrorCode(info.error_code).name}")
                else:
                    logs[topic_partition] = end
                    del commands.log_ends[key]
        self._channels.offer(LogEndsReported(self.info.broker_id, self.info.broker_epoch, logs))
        if failed:
            self._report(request, ", ".join(failed[:20]))
        return not failed

    def _report_errors(self, api: str, outcomes: list[tuple[TopicPartition, ErrorCode]]) -> None:
        known = self._refused_before
        failed = [
            f"{topic_partition}: {error.name}"
            for topic_partition, error in outcomes
            if error is not ErrorCode.NONE
            and (error is not ErrorCode.KAFKA_STORAGE_ERROR or topic_partition not in known)
        ]
        if failed:
            self._services.tracer.log(
                "controller",
                logging.WARNING,
                f"broker {self.info.broker_id} responded to {api} with {len(failed)} errors: "
                + ", ".join(failed[:20]),
            )


def _log_end(info: PartitionLogInfo) -> LogEnd | None:
    """Return the end of a log; None if the broker must be asked again."""
    match info.error_code:
        case ErrorCode.NONE:
            return LogEnd(
                info.last_written_leader_epoch, info.log_end_offset, info.log_start_offset
            )
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return NO_LOG
        case ErrorCode.KAFKA_STORAGE_ERROR:
            return UNREADABLE_LOG
        case _:
            return None


class Channels:
    """All channels of one controller term."""

    def __init__(
        self,
        services: Services,
        sender: Sender,
        offer: Callable[[Event], None],
        stale: Callable[[], None],
        events: TermEvents,
    ) -> None:
        self.services = services
        self.events = events
        self.sender = sender
        #: Called with each broker's response, as an event for the controller.
        self.offer = offer
        #: Called when a broker's response shows that it knows a newer controller.
        self.stale = stale
        self._channels: dict[int, Channel] = {}

    def follow(self, brokers: Mapping[int, BrokerInfo]) -> None:
        """Keep one channel for each current registration, and close all other channels."""
        for broker_id in list(self._channels):
            info = brokers.get(broker_id)
            channel = self._channels[broker_id]
            if info is None or info.broker_epoch != channel.info.broker_epoch:
                channel.close()
                del self._channels[broker_id]
            else:
                channel.info = info
        for broker_id, info in brokers.items():
            if broker_id not in self._channels:
                self._channels[broker_id] = Channel(self, info)

    def send(self, commands: Mapping[int, Commands]) -> None:
        """Queue commands for brokers, each of which has a channel."""
        for broker_id, queued in commands.items():
            self._channels[broker_id].add(queued)

    def is_idle(self, broker_id: int) -> bool:
        """Whether a broker is registered and has acknowledged all its commands."""
        channel = self._channels.get(broker_id)
        return channel is not None and channel.is_idle

    def when_acknowledged(self, callback: Callable[[], None], limit_ms: int) -> None:
        """Call `callback` once, when every broker has acknowledged the commands sent so far.

        If some broker does not acknowledge them, `callback` is called after `limit_ms` or at the
        end of the term. The controller does not wait for a broker that has not acknowledged a
        command for `limit_ms` already, so a hanging broker does not delay every client request.
        """
        awaited = [each for each in self._channels.values() if each.behind_ms < limit_ms]
        if len(awaited) < len(self._channels):
            self.services.tracer.mark("silent_broker_not_awaited")
        behind = len(awaited)
        called = False

        def call() -> None:
            nonlocal called
            if not called:
                called = True
                for channel in awaited:
                    channel.forget(is_idle)
                callback()

        def is_idle() -> None:
            nonlocal behind
            behind -= 1
            if behind <= 0:
                call()

        if behind == 0:
            call()
        for channel in awaited:
            channel.when_idle(is_idle)
        if not called:
            self.services.timers.after(limit_ms, call)

    def close(self) -> None:
        """Close all channels."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
