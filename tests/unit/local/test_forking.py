"""Processes that a server forks: real ones, with streams, signals and exit codes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.local.errors import LocalClusterError
from tidelog.local.forking import ForkedProcess, ForkServer, Program
from tidelog.local.processes import ProcessIdentity

PROGRAMS = """
import os, signal, sys, time

def tell():
    print(sys.argv[1:], os.getcwd(), os.environ["WORD"], sys.stdin.read(), flush=True)
    print("an error", file=sys.stderr)
    return 7

def wait():
    os.write(1, b"waits\\n")
    while True:  # a signal right before a longer wait would not end it
        time.sleep(0.01)

def interrupted():
    # A shell's background job, as these tests may be, has interrupts ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        wait()
    except KeyboardInterrupt:
        return 3

def raises():
    raise ValueError("of the program")

def session():
    print(os.getsid(0) == os.getpid(), os.getppid())
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkServer]:
    (tmp_path / "programs.py").write_text(PROGRAMS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    made = ForkServer("programs")
    yield made
    made.close()


class Started:
    """A forked process with pipes in place of its standard streams."""

    def __init__(
        self, server: ForkServer, entry: str, *arguments: str, sent: bytes = b"", own: bool = False
    ) -> None:
        ours_in, to_write = os.pipe()
        self.out, theirs_out = os.pipe()
        self.err, theirs_err = os.pipe()
        environment = {**os.environ, "WORD": "given"}
        program = Program(f"programs:{entry}", arguments, environment, ["shown", *arguments], own)
        root = os.open("/", os.O_PATH)
        try:
            streams = (ours_in, theirs_out, theirs_err)
            self.process: ForkedProcess = server.start(program, streams, root)
        finally:
            for each in (ours_in, theirs_out, theirs_err, root):
                os.close(each)
        with open(to_write, "wb") as writer:
            writer.write(sent)

    def read(self) -> tuple[str, str]:
        """All that it writes to its end."""
        with open(self.out, encoding="utf-8") as out, open(self.err, encoding="utf-8") as err:
            return out.read(), err.read()


def test_streams_arguments_directory_environment_and_exit_code_are_its_own(
    server: ForkServer,
) -> None:
    started = Started(server, "tell", "one", "two words", sent=b"typed")
    assert started.read() == ("['one', 'two words'] / given typed\n", "an error\n")
    assert started.process.wait() == started.process.poll() == 7


def test_a_signal_ends_it_and_is_its_exit_code(server: ForkServer) -> None:
    started = Started(server, "wait")
    assert os.read(started.out, 6) == b"waits\n"
    assert started.process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        started.process.wait(0.01)
    os.kill(started.process.pid, signal.SIGUSR1)
    assert started.process.wait(60) == -signal.SIGUSR1


def test_an_interrupt_of_the_programs_group_reaches_no_server(server: ForkServer) -> None:
    started = Started(server, "interrupted")
    assert os.read(started.out, 6) == b"waits\n"
    assert os.getsid(server.pid) == server.pid
    os.kill(started.process.pid, signal.SIGINT)
    assert started.process.wait(60) == 3


def test_an_error_of_the_program_is_told_and_exits_with_1(server: ForkServer) -> None:
    started = Started(server, "raises")
    assert "ValueError: of the program" in started.read()[1]
    assert started.process.wait() == 1


def test_its_parent_is_the_server_and_a_session_is_its_own_if_asked(server: ForkServer) -> None:
    assert Started(server, "session").read()[0] == f"False {server.pid}\n"
    assert Started(server, "session", own=True).read()[0] == f"True {server.pid}\n"


def test_ps_shows_its_own_command_line(server: ForkServer) -> None:
    started = Started(server, "wait", "word")
    assert os.read(started.out, 6) == b"waits\n"
    shown = Path(f"/proc/{started.process.pid}/cmdline").read_bytes()
    assert shown.rstrip(b"\0") == b"shown\0word"
    os.kill(started.process.pid, signal.SIGKILL)


def test_a_command_line_that_is_too_long_leaves_the_servers(server: ForkServer) -> None:
    started = Started(server, "tell", "x" * 5000)
    assert started.process.wait(60) == 7
    assert "x" * 5000 in started.read()[0]


def test_threads_share_a_server(server: ForkServer) -> None:
    codes: list[int] = []

    def run() -> None:
        codes.append(Started(server, "tell").process.wait(60))

    threads = [threading.Thread(target=run) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert codes == [7] * 8


def test_a_killed_server_is_followed_by_another_and_its_processes_count_as_killed(
    server: ForkServer,
) -> None:
    started = Started(server, "wait")
    assert os.read(started.out, 6) == b"waits\n"
    before = server.pid
    os.kill(before, signal.SIGKILL)
    killed = ProcessIdentity.of(before)
    assert killed is None or killed.await_end(60)
    assert Started(server, "tell").process.wait(60) == 7
    assert server.pid != before
    assert started.process.poll() is None
    os.kill(started.process.pid, signal.SIGKILL)
    assert started.process.wait(60) == -signal.SIGKILL


def test_a_server_that_ends_while_it_is_asked_is_an_error(server: ForkServer) -> None:
    pid = server.pid
    os.kill(pid, signal.SIGSTOP)
    killing = threading.Timer(0.2, os.kill, (pid, signal.SIGKILL))
    killing.start()
    with pytest.raises(LocalClusterError, match="forks processes does not respond"):
        Started(server, "tell")
    killing.join()
    assert Started(server, "tell").process.wait(60) == 7


def test_a_stopped_server_is_given_up_at_the_limit(
    server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.kill(server.pid, signal.SIGSTOP)
    with monkeypatch.context() as patch:
        patch.setattr("tidelog.local.forking._LIMIT_S", 0.1)
        with pytest.raises(LocalClusterError, match="does not respond: timed out"):
            Started(server, "tell")
    assert Started(server, "tell").process.wait(60) == 7


def test_an_interrupted_start_leaves_no_process_and_no_answer_behind(
    server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    pid = server.pid
    with monkeypatch.context() as patch:
        patch.setattr("tidelog.local.forking.receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            Started(server, "wait")
    assert Started(server, "tell").process.wait(60) == 7
    assert server.pid == pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for child in map(ProcessIdentity.of, map(int, children)):
        assert child is None or child.await_end(60)


def test_a_process_that_does_not_start_alike_is_known(server: ForkServer) -> None:
    assert not server.starts_alike({**os.environ, "PYTHONHASHSEED": "7"}), "before its start, too"
    assert server.pid
    assert server.starts_alike({**os.environ, "WORD": "else"})
    assert not server.starts_alike({**os.environ, "PYTHONHASHSEED": "7"})
    before = os.umask(0o127)
    try:
        assert not server.starts_alike(os.environ)
    finally:
        os.umask(before)
    assert server.starts_alike(os.environ)


def test_it_starts_in_a_directory_that_was_removed(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert server.pid
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with open(os.devnull, "r+b") as nothing:
        program = Program("programs:session", (), os.environ, ["shown"])
        process = server.start(program, [nothing.fileno()] * 3)
    assert process.wait(60) == 0


def test_a_program_without_standard_streams_has_a_server(tmp_path: Path) -> None:
    """Its sockets get the numbers of the closed streams."""
    (tmp_path / "programs.py").write_text(PROGRAMS)
    program = f"""
import os, sys
for number in range(3):
    os.close(number)
from tidelog.local.forking import ForkServer, Program
server = ForkServer("programs")
with open({str(tmp_path / "out")!r}, "w+b") as out:
    environment = {{**os.environ, "WORD": "given"}}
    made = Program("programs:tell", ["one"], environment, ["told"])
    code = server.start(made, [out.fileno()] * 3).wait(60)
os._exit(code)
"""
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", program], env=environment, check=False)
    assert ended.returncode == 7
    told = (tmp_path / "out").read_text()
    assert "['one']" in told and "an error" in told


def test_exit_codes_are_known_to_a_program_that_ignores_the_ends_of_children(
    server: ForkServer,
) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert Started(server, "tell").process.wait(60) == 7
        assert Started(server, "tell").process.wait(60) == 7
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_module_that_cannot_be_imported_is_an_error() -> None:
    server = ForkServer("no_such_module")
    with pytest.raises(LocalClusterError, match="forks processes does not respond"):
        Started(server, "tell")
    server.close()


def test_modules_that_start_threads_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    text = (
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    (tmp_path / "threaded.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    server = ForkServer("threaded")
    with pytest.raises(LocalClusterError, match="forks processes does not respond"):
        Started(server, "tell")
    assert "imported modules have started 1 threads: no fork is safe" in capfd.readouterr().err


def test_a_program_that_was_forked_starts_a_server_of_its_own(server: ForkServer) -> None:
    theirs = server.pid
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            own = server.pid
            code = Started(server, "tell").process.wait(60)
            os.write(writing, f"{own} {code}".encode())
            server.close()
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as told:
        own, code = map(int, told.read().split())
    os.waitpid(child, 0)
    assert own != theirs and code == 7
    assert Started(server, "tell").process.wait(60) == 7


def test_the_server_ends_with_its_program_and_processes_go_on(tmp_path: Path) -> None:
    (tmp_path / "programs.py").write_text(PROGRAMS)
    program = """
import os
from tidelog.local.forking import ForkServer, Program
server = ForkServer("programs")
with open(os.devnull, "r+b") as nothing:
    made = Program("programs:wait", [], os.environ, ["waits"])
    print(server.pid, server.start(made, [nothing.fileno()] * 3).pid, flush=True)
os._exit(0)
"""
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    words = [sys.executable, "-c", program]
    told = subprocess.run(words, env=environment, check=True, capture_output=True, text=True)
    server_pid, process_pid = map(int, told.stdout.split())
    server, process = map(ProcessIdentity.of, (server_pid, process_pid))
    assert server is None or server.await_end(60)
    assert process is not None and process.is_alive
    assert process.send(signal.SIGKILL) and process.await_end(60)


def test_a_broker_that_is_not_forked_by_the_program_is_not_forked_by_tests_either() -> None:
    """As one that is started after an interrupt was allowed that the program had ignored."""
    words = [sys.executable, "-m", "tidelog.runtime.main", "--config", "/no/such/file"]
    ended = subprocess.run(
        [*words, "--end-with-parent", str(os.getpid())],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "/no/such/file" in ended.stderr
    assert "parent" not in ended.stderr
