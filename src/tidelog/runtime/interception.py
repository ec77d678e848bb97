"""Rules of interception in a directory: a test writes them, the brokers of its cluster read them.

    rules.jsonl   one line per change: a rule, or the number of one that ends
    N.matched     a byte for every request that fitted rule N, at whichever broker
    N.struck      a line for every request that it struck

Only appended to, in single writes: a broker that is paused, killed or restarted misses nothing,
and a request that is begun after `add` has returned meets the rule. The place where an appended
byte landed is the number of its request; nothing is locked. No port, no listener: who may write
the directory may intercept.
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
        """Those in force; costs one system call where nothing has changed."""
        size = os.fstat(self._file).st_size
        if size != self._read_bytes:
            self._read(size)
        return self._in_force

    def matched(self, rule: Rule) -> int:
        """Count a request that fits."""
        descriptor = os.open(f"{self._directory}/{rule.number}.matched", _APPEND, 0o600)
        try:
            os.write(descriptor, b".")
            # After an append the position is the end of what was appended, whoever follows.
            return os.lseek(descriptor, 0, os.SEEK_CUR)
        finally:
            os.close(descriptor)

    def struck(self, rule: Rule, told: str) -> None:
        """Tell of a request that was struck."""
        _append(f"{self._directory}/{rule.number}.struck", told)

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
    """A test's side."""

    def __init__(self, directory: str) -> None:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        self._directory = directory

    def add(self, rule: Rule) -> None:
        """From now on requests meet the rule."""
        _append(f"{self._directory}/{_RULES}", json.dumps({"rule": rule.to_json()}))

    def end(self, number: int) -> None:
        """From now on no request meets it."""
        _append(f"{self._directory}/{_RULES}", json.dumps({"ended": number}))

    def matched(self, number: int) -> int:
        """How many requests fitted."""
        try:
            return os.stat(f"{self._directory}/{number}.matched").st_size
        except FileNotFoundError:
            return 0

    def struck(self, number: int) -> list[str]:
        """The requests that were struck, a line for each."""
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
