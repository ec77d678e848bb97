"""The process of a broker, from its configuration to its exit code.

This module builds the real ports, starts the broker on them, and stops it on a signal
(`runtime.signals`). A second signal ends the wait for other brokers to take over leaderships.
SIGHUP reloads the configuration. If the broker cannot start, it writes one line to standard error
and exits with code 1; a usage error exits with 2. This module imports none of the command line's
libraries (DESIGN.md, Layout).
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.broker.broker import Broker
from tidelog.core.config import BrokerConfig
from tidelog.core.dataclass import dataclass, generate
from tidelog.core.errors import ConfigError, TidelogError
from tidelog.core.listeners import admin_endpoint
from tidelog.core.log_dirs import check_apart
from tidelog.core.ports import Files, Lane, Ports
from tidelog.records.walk import is_compiled
from tidelog.runtime import extensions
from tidelog.runtime.banner import addresses, log_after_start, log_before_start
from tidelog.runtime.clock import SystemClock, system_random
from tidelog.runtime.config_files import load_config
from tidelog.runtime.lanes import open_lane
from tidelog.runtime.log_files import Rotation
from tidelog.runtime.logging import LogLevels, LogThread, LogTracer, start_logging
from tidelog.runtime.memory import MemoryAtRest, limit_arenas
from tidelog.runtime.network import SocketNetwork
from tidelog.runtime.parent import end_with_parent
from tidelog.runtime.signals import BrokerSignals, Phase, report_stacks
from tidelog.runtime.standard_streams import abandon_unwritten, open_closed, say_last
from tidelog.runtime.stores.opening import make_store
from tidelog.runtime.supervisor import ProcessSupervisor
from tidelog.runtime.turns import TurnSelector
from tidelog.runtime.watchdog import Watchdog

if TYPE_CHECKING:
    from tidelog.runtime.admin.admin_port import AdminPort

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
#: The exit code after a broken invariant, a failed directory or a hanging loop ended the process at
#: once.
EXIT_HALTED = 70

#: The interpreter's switch interval, short so that the threads of log directories and of the
#: metadata store continue soon after each of their many system calls.
_SWITCH_INTERVAL_S = 0.0005

_USAGE = (
    "usage: python -m tidelog.runtime.main --config FILE [--override KEY=VALUE ...]"
    " [--end-with-parent PID]"
)
#: Packages for whose dataclasses a broker generates methods at its start, so that its first
#: failover need not generate them.
_IN_A_FAILOVER = ("tidelog.controller.", "tidelog.replication.")
#: Thresholds that make garbage collections rare: a collection blocks the loop, and requests make no
#: reference cycles.
_GC_THRESHOLDS = (100_000, 50, 50)


@dataclass(frozen=True, slots=True)
class Start:
    """What a broker starts with: its configuration, a function to reload it, and signals."""

    config: BrokerConfig
    read_again: Callable[[], BrokerConfig]
    signals: BrokerSignals


def run_broker(start: Start) -> int:
    """Run a broker until a signal stops it; return the exit code."""
    if sys.flags.optimize:
        say_last("tidelog: python -O removes the checks that brokers rely on: refused")
        return EXIT_FAILED
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    limit_arenas()
    config = start.config
    rotation = Rotation(
        config.tidelog_logging_max_bytes,
        config.tidelog_logging_max_hours,
        config.tidelog_logging_files,
    )
    listener = start_logging(config.tidelog_logging_format, rotation, config.broker_id)
    try:
        code = _run_logged(start, listener)
    finally:
        start.signals.install()  # again, because the ended loop has removed its signal handlers
        listener.stop()
    if listener.is_blocked:
        os._exit(code)  # a normal exit would wait for a blocked standard error
    abandon_unwritten()
    return code


def _run_logged(start: Start, listener: LogThread) -> int:
    """Run a broker; return the exit code. A fatal error is the last log line."""
    config = start.config
    try:
        check_apart(
            f"log.dirs={','.join(config.log_dirs)!r}",
            {each: os.path.realpath(each) for each in config.log_dirs},
            config.log_dirs,
        )
        turns = TurnSelector()
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(turns)) as runner:
            return runner.run(_serve(start, turns, listener))
    except (TidelogError, OSError) as error:
        say_last(f"tidelog: broker {config.broker_id} cannot run: {error}")
        return EXIT_FAILED


async def _serve(start: Start, turns: TurnSelector, log_thread: LogThread) -> int:
    config, signals = start.config, start.signals
    supervisor = ProcessSupervisor(os.environ)
    loop = asyncio.get_running_loop()
    log = logging.getLogger("kafka.server")
    _log_start(log, config)
    tracer = LogTracer(config.broker_id)

    def halt(reason: str) -> None:
        say_last(f"tidelog: broker {config.broker_id} halts: {reason}")
        os._exit(EXIT_HALTED)

    clock = SystemClock(loop)
    watchdog = Watchdog(loop, config.metadata_session_timeout_ms, halt)

    loop.set_exception_handler(_callback_failed(log, halt))
    memory = MemoryAtRest(clock, log.info)
    files_of = faulty_files(config.tidelog_test_disk_faults)

    def open_watched_lane(directory: str) -> Lane:
        lane = open_lane(directory, loop, clock, files_of(directory))
        memory.add(lane.release_buffers)
        return lane

    network = SocketNetwork(loop, lambda where, error: halt(f"{where}: {error!r}"))
    memory.add(network.release_buffers)
    ports = Ports(
        loop=loop,
        clock=clock,
        random=system_random(),
        network=network,
        tracer=tracer,
        on_turn=turns.on_turn,
        open_lane=open_watched_lane,
        halt=halt,
        loggers=LogLevels(),
    )
    store = make_store(config, loop, lambda message: tracer.log("store", logging.WARNING, message))
    broker = Broker(config, ports, store)
    intercept(broker, config.tidelog_test_interception_directory)
    admin = await open_admin_port(broker, turns)
    starting = loop.create_task(broker.start(signals.directories_open))
    signals.attach(
        loop,
        give_up_start=starting.cancel,
        hurry=broker.controlled_shutdown.give_up,
        reload=_Reloading(start, broker, log_thread).request,
        end_at_once=halt,
    )
    if not await _has_started(starting):
        await broker.session.close()
        signals.phase = Phase.STOPPED
        log.info("broker %d stopped before it opened a log directory", config.broker_id)
        return EXIT_OK
    watchdog.start()
    generate(_IN_A_FAILOVER)
    _collect_rarely()
    memory.start()
    log_after_start(log, broker)
    supervisor.started(f"broker {config.broker_id} on {addresses(broker.advertised_endpoints())}")
    if admin is not None:
        admin.started()
    signals.started()
    await signals.stopping.wait()
    supervisor.stopping(f"broker {config.broker_id} lets other brokers lead, and closes its logs")
    await _stop(broker, watchdog, admin)
    signals.phase = Phase.STOPPED
    log.info("broker %d stopped", config.broker_id)
    return EXIT_OK


async def _stop(broker: Broker, watchdog: Watchdog, admin: AdminPort | None) -> None:
    await broker.controlled_shutdown.run()
    watchdog.stop()
    await broker.stop()
    if admin is not None:
        await admin.close()


def _callback_failed(
    log: logging.Logger, halt: Callable[[str], None]
) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """Return the loop's handler for unhandled errors."""

    def failed(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, Exception) and not isinstance(error, OSError):
            # State may be inconsistent after an unhandled error, so the broker must end.
            text = "".join(traceback.format_exception(error))
            halt(f"{context['message']}: {text}")
        log.error("%s: %s", context["message"], error)

    return failed


def _collect_rarely() -> None:
    """Exclude the objects that exist after the start from garbage collections, and make collections
    rare.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


async def _has_started(starting: asyncio.Task[None]) -> bool:
    """Wait until the broker has started; return False if a signal cancelled the start."""
    try:
        await starting
    except asyncio.CancelledError:
        if not starting.cancelled():
            raise
        return False
    return True


class _Reloading:
    """The reload of a broker's configuration on a thread, with the reopening of its log file."""

    def __init__(self, start: Start, broker: Broker, log_thread: LogThread) -> None:
        self._start = start
        self._broker = broker
        self._log_thread = log_thread
        self._task: asyncio.Task[None] | None = None
        self._again = False

    def request(self) -> None:
        """Reopen the log file and reload the configuration, once a reload under way has ended."""
        self._log_thread.reopen()
        self._again = True
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while self._again:
            self._again = False
            try:
                offered = await asyncio.to_thread(self._start.read_again)
                self._broker.live_configs.reload(offered)
            except ConfigError as error:
                logging.getLogger("kafka.server").error(
                    "configuration not reloaded, the earlier one stays in force: %s", error
                )


def _log_start(log: logging.Logger, config: BrokerConfig) -> None:
    """Log the first facts about this process for the operator."""
    log_before_start(log, config)
    for warning in config.warnings:
        log.warning("%s", warning)
    log.info("descriptor limit %d", _raise_descriptor_limit())
    if not is_compiled():
        log.warning("%s", extensions.missing_text([extensions.WALK]))


async def open_admin_port(broker: Broker, turns: TurnSelector) -> AdminPort | None:
    """Open the admin port of a broker, if it has one; raise ConfigError if the port is taken."""
    endpoint = admin_endpoint(broker.config.admin_listener)
    if endpoint is None:
        return None
    # Imported here, because a broker without an admin port needs no HTTP server.
    from tidelog.runtime.admin.admin_port import AdminPort

    admin = AdminPort(broker, turns)
    await admin.open(endpoint)
    return admin


def intercept(broker: Broker, directory: str) -> None:
    """Let a broker apply the rules that a test writes to `directory`; do nothing if it is ""."""
    if not directory:
        return
    # Imported here, because only a broker under test needs the module.
    from tidelog.broker.server.interception import Interceptor
    from tidelog.runtime.interception import InterceptionDirectory

    interceptor = Interceptor(broker.intercepted(), InterceptionDirectory(directory))
    broker.put_around_handlers(interceptor.around)


def faulty_files(path: str) -> Callable[[str], Files | None]:
    """Return a function that returns the `Files` of a log directory, or None for the real files.

    The file at `path`, unless `path` is empty, has the faults that a test injects.
    """
    if not path:
        return lambda directory: None
    # Imported here, because only a broker under test needs the module.
    from tidelog.runtime.disk_faults import DiskFaults, FaultyFiles

    faults = DiskFaults(path)
    return lambda directory: FaultyFiles(directory, faults)


def _raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard limit; return the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the options of a spawned broker, by default the process's own, and run the broker."""
    open_closed()
    report_stacks()
    signals = BrokerSignals()
    signals.install()
    path = parent = ""
    overrides: list[str] = []
    rest = list(sys.argv[1:] if arguments is None else arguments)
    while rest:
        option = rest.pop(0)
        if option in ("--config", "--override", "--end-with-parent") and rest:
            value = rest.pop(0)
            if option == "--config":
                path = value
            elif option == "--override":
                overrides.append(value)
            else:
                parent = value
        else:
            say_last(_USAGE)
            return EXIT_USAGE
    if not path or not (parent == "" or parent.isdecimal()):
        say_last(_USAGE)
        return EXIT_USAGE
    try:
        if parent:
            end_with_parent(int(parent))
        config = load_config(path, overrides)
    except (TidelogError, OSError) as error:
        say_last(f"tidelog: {error}")
        return EXIT_FAILED
    signals.broker_id = config.broker_id
    return run_broker(Start(config, partial(load_config, path, overrides), signals))


if __name__ == "__main__":
    sys.exit(main())
