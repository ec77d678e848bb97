"""Rules of interception in a directory: a test writes them, the brokers of its cluster read them.

    rules.jsonl   a line per change: a rule, or the number of an ended one

    N.matched     a byte for every request that matched rule N, at any broker
    N.struck      a line for every request that it struck

Files are only appended to, in single writes. A broker that is paused, killed or restarted misses
nothing, and a request that begins after `add` has returned meets the rule. The position of an
appended byte is the number of its request; nothing is locked. There is no port and no listener:
a process that may write the directory may intercept.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from tidelog.broker.server.interception import Rule

_RULES = "rules.jsonl"
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


class InterceptionDirectory:
    """A broker's side: `tidelog.broker.server.interception.Interceptions`."""

    def __init__(self, directory: str) -> None:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        self._directory = directory
        flags = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(f"{directory}/{_RULES}", flags, 0o600)
        self._read_bytes = 0
        self._rules: dict[int, Rule] = {}
        self._in_force: tuple[Rule, ...] = ()

    def rules(self) -> Sequence[Rule]:
        """Return the rules in force; costs one system call where nothing has changed."""
        size = os.fstat(self._file).st_size
        if size != self._read_bytes:
            self._read(size)
        return self._in_force

    def matched(self, rule: Rule) -> int:
        """Count a request that matches; return its number."""
        descriptor = os.open(f"{self._directory}/{rule.number}.matched", _APPEND, 0o600)
        try:
            os.write(descriptor, b".")
            # After an append the position is the end of its own bytes, whatever others append
            # later.
            return os.lseek(descriptor, 0, os.SEEK_CUR)
        finally:
            os.close(descriptor)

    def struck(self, rule: Rule, description: str) -> None:
        """Log a request that was struck."""
        _append(f"{self._directory}/{rule.number}.struck", description)

    def _read(self, size: int) -> None:
        text = os.pread(self._file, size - self._read_bytes, self._read_bytes)
        whole = text[: text.rfind(b"\n") + 1]
        for line in whole.splitlines():
            change = json.loads(line)
            if "ended" in change:
                self._rules.pop(change["ended"], None)
            else:
                rule = Rule.from_json(change["rule"])
                self._rules[rule.number] = rule
        self._read_bytes += len(whole)
        self._in_force = tuple(self._rules.values())


class InterceptionControl:
    """The test's side: rules added and ended, and counts of requests."""

    def __init__(self, directory: str) -> None:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        self._directory = directory

    def add(self, rule: Rule) -> None:
        """Add a rule: from now on requests meet it."""
        _append(f"{self._directory}/{_RULES}", json.dumps({"rule": rule.to_json()}))

    def end(self, number: int) -> None:
        """End a rule: from now on no request meets it."""
        _append(f"{self._directory}/{_RULES}", json.dumps({"ended": number}))

    def matched(self, number: int) -> int:
        """Return how many requests matched."""
        try:
            return os.stat(f"{self._directory}/{number}.matched").st_size
        except FileNotFoundError:
            return 0

    def struck(self, number: int) -> list[str]:
        """Return the requests that were struck, a line for each."""
        try:
            with open(f"{self._directory}/{number}.struck", encoding="utf-8") as file:
                return file.read().splitlines()
        except FileNotFoundError:
            return []


def _append(path: str, line: str) -> None:
    descriptor = os.open(path, _APPEND, 0o600)
    try:
        os.write(descriptor, line.encode() + b"\n")
    finally:
        os.close(descriptor)
