"""The sandbox of simulated nodes: no real clock, randomness, files, sockets or threads.

While an event of a simulated node is executed, functions of the standard library that use real
resources raise SandboxError. The sandbox knows that such an event is executed by the asyncio loop
that runs in the current thread. The sandbox restricts neither other threads (a progress bar) nor
the run itself between events. An audit hook catches the calls that Python audits. The sandbox
replaces other functions in their modules. Code that imported a replaced function by name would
still call the original, so a test forbids these imports (`tests/tidy/test_forbidden_calls.py`). The
sandbox also records each forbidden call, because code under test may swallow the exception.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from tidelog.sim.loop import NodeLoop

#: By module: what nodes must use instead, and the names of functions that Python does not audit.
_NAMES: Final = {
    "time": (
        "the Clock port",
        "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time"
        " process_time_ns thread_time thread_time_ns clock_gettime clock_gettime_ns sleep"
        " localtime gmtime ctime",
    ),
    "random": (
        "the Random port",
        "random randrange randint randbytes choice choices sample shuffle uniform getrandbits"
        " gauss expovariate betavariate normalvariate triangular seed _urandom",
    ),
    "os": ("the Random port", "urandom getrandom"),
    "uuid": ("the Random port", "uuid1 uuid4"),
    "secrets": ("the Random port", "token_bytes token_hex token_urlsafe randbits randbelow choice"),
    "threading": ("a lane", "Timer _start_new_thread _start_joinable_thread"),
    "_thread": ("a lane", "start_new_thread start_joinable_thread"),
    "asyncio": ("core/tasks.py", "run new_event_loop set_event_loop to_thread Runner"),
}
#: By prefix of the audit events to forbid: what nodes must use instead.
_AUDITED: Final = {
    prefix: instead
    for instead, prefixes in {
        "the Files port": "open os. shutil. tempfile. glob. fcntl. mmap.",
        "the MetadataStore port": "sqlite3.",
        "the Network port": "socket. ssl.",
        "nothing: brokers start no processes": "subprocess. pty.",
        "the Clock port": "time.sleep",
        "a lane": "_thread.",
    }.items()
    for prefix in prefixes.split()
}
#: Modules that may read files: imports and tracebacks read source code.
_READERS: Final = ("importlib._bootstrap", "pkgutil", "linecache", "traceback")


#: Methods of an asyncio loop, except the methods for callbacks and tasks.
_LOOP_NAMES: Final = (
    "run_in_executor call_soon_threadsafe run_forever run_until_complete stop close"
    " create_connection create_server create_unix_connection create_unix_server"
    " create_datagram_endpoint connect_accepted_socket sendfile start_tls sock_recv sock_sendall"
    " sock_connect sock_accept add_reader add_writer add_signal_handler getaddrinfo getnameinfo"
    " subprocess_exec subprocess_shell connect_read_pipe connect_write_pipe"
)


class SandboxError(AssertionError):
    """The error for a simulated node that used a real resource.

    Code must not catch this error (rule 9 of DESIGN.md).
    """


class _Guard:
    """The sandbox's state: whether it is active, and the forbidden calls that happened so far."""

    def __init__(self) -> None:
        self.is_active = False
        self.is_hooked = False
        self.reached: list[str] = []

    def look(self, what: str, instead: str) -> None:
        """Raise SandboxError if an event of a node is being executed."""
        if self.is_active and isinstance(asyncio._get_running_loop(), NodeLoop):
            text = f"{what} was reached under simulation; use {instead}"
            self.reached.append(text)
            raise SandboxError(text)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Check an audited call; Python keeps this audit hook until the process ends."""
        if not self.is_active or not event.startswith(_PREFIXES) or _is_reading_code():
            return
        instead = next(one for prefix, one in _AUDITED.items() if event.startswith(prefix))
        shown = f" of {arguments[0]!r}" if arguments and isinstance(arguments[0], str) else ""
        self.look(f"{event}{shown}", instead)


_PREFIXES: Final = tuple(_AUDITED)
_GUARD: Final = _Guard()


@contextmanager
def sandboxed() -> Iterator[list[str]]:
    """Within the context, forbid nodes to use real resources; yield the list of forbidden calls, as
    it grows.
    """
    if _GUARD.is_active:
        yield _GUARD.reached
        return
    if not _GUARD.is_hooked:
        sys.addaudithook(_GUARD.audit)
        _GUARD.is_hooked = True
    replaced: list[tuple[Any, str, Any]] = []
    for module_name, (instead, names) in _NAMES.items():
        module = importlib.import_module(module_name)
        for name in names.split():
            original = getattr(module, name, None)
            if original is not None:
                replaced.append((module, name, original))
                setattr(module, name, _guarded(original, f"{module_name}.{name}", instead))
    for name in _LOOP_NAMES.split():
        original = getattr(NodeLoop, name)
        replaced.append((NodeLoop, name, original))
        setattr(NodeLoop, name, _guarded(original, f"loop.{name}", "core/tasks.py and ports"))
    _GUARD.reached = []
    _GUARD.is_active = True
    try:
        yield _GUARD.reached
    finally:
        _GUARD.is_active = False
        for module, name, original in replaced:
            setattr(module, name, original)


def _guarded(original: Callable[..., Any], what: str, instead: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        _GUARD.look(f"{what}()", instead)
        return original(*args, **kwargs)

    return guarded


def _is_reading_code() -> bool:
    """Return whether a module is being imported or a traceback formatted."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(_READERS):
            return True
        frame = frame.f_back
    return False
