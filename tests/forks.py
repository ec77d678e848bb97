"""Starts of `tidelog` in tests, as forks of a process that has imported it.

A test of the command line starts dozens of processes, and each would spend most of its time on the
same imports. `install` replaces `subprocess.Popen` by one that has a server fork them
(`tidelog.local.forking`): real processes with their own signals, streams and exit codes. Only a
start that depends on nothing but words, streams, environment and directory is forked. A program
that a shell or a script starts has an interpreter of its own, as has one with a terminal or with
variables that an interpreter reads at its start.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, Final

from tidelog.local.forking import ForkedProcess, ForkServer, Program

#: What `python -m` runs, as `module:function`.
_ENTRIES: Final = {
    "tidelog": "tidelog.cli:main",
    "tidelog.runtime.main": "tidelog.runtime.main:main",
}
SERVER: Final = ForkServer("tests.preloaded")
_PLAIN: Any = subprocess.Popen


class Popen(_PLAIN):  # type: ignore[misc]  # typed as Any
    """`subprocess.Popen`, which forks where that makes no difference but time."""

    _forked: ForkedProcess | None = None

    def _execute_child(
        self,
        args: Any,
        executable: Any,
        preexec_fn: Any,
        close_fds: Any,
        pass_fds: Any,
        cwd: Any,
        env: Any,
        startupinfo: Any,
        creationflags: Any,
        shell: Any,
        *streams_and_rest: Any,
    ) -> None:
        p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite, *rest = streams_and_rest
        restore_signals, *user_and_umask, new_session, process_group = rest
        streams = [
            own if own != -1 else number for number, own in enumerate((p2cread, c2pwrite, errwrite))
        ]
        environment = os.environ if env is None else env
        is_special = executable or preexec_fn or pass_fds or shell or not close_fds
        is_special = is_special or process_group != -1 or not restore_signals
        if (
            is_special
            or user_and_umask != [None, None, None, -1]
            or not _is_ours(args)
            or "--end-with-parent" in args  # the parent of a fork is the server
            or (cwd is not None and not os.path.isdir(cwd))
            or not SERVER.starts_alike(environment)
            or any(map(os.isatty, streams))
        ):
            super()._execute_child(
                args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo,
                creationflags, shell, *streams_and_rest,
            )  # fmt: skip
            return
        words = [os.fspath(each) for each in args]
        program = Program(
            _ENTRIES[words[2]], words[3:], environment, words, new_session=bool(new_session)
        )
        directory = None if cwd is None else os.open(cwd, os.O_PATH)
        try:
            self._forked = SERVER.start(program, streams, directory)
        finally:
            if directory is not None:
                os.close(directory)
        self.pid = self._forked.pid
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)

    def _internal_poll(self, *arguments: Any, **options: Any) -> int | None:
        if self._forked is None:
            code: int | None = super()._internal_poll(*arguments, **options)
            return code
        self.returncode = self._forked.poll()
        return self.returncode

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        """What waitpid returns: a process id, 0 for one that runs, and a status."""
        if self._forked is None:
            ended: tuple[int, int] = super()._try_wait(wait_flags)
            return ended
        code = self._forked.poll() if wait_flags & os.WNOHANG else self._forked.wait()
        if code is None:
            return 0, 0
        return self.pid, -code if code < 0 else code << 8


def install() -> None:
    """Let `subprocess` fork starts of tidelog on the Python whose Popen is known here."""
    if sys.version_info[:2] == (3, 11):
        subprocess.Popen = Popen  # type: ignore[misc]  # a class for a class


def _is_ours(words: Any) -> bool:
    is_list = isinstance(words, Sequence) and not isinstance(words, str | bytes)
    return (
        is_list
        and len(words) > 2
        and words[0] == sys.executable
        and words[1] == "-m"
        and (words[2] in _ENTRIES)
    )
