"""Interception rules in a directory, which a test writes and its cluster's brokers read.

A rule makes a broker drop or delay the requests that match the rule, respond to these requests with
an error, or close their connections.

`rules.jsonl` has a line per change: a rule, or the number of a rule that ended. `N.matched` has a
byte for every request that matched rule N, on any broker. `N.struck` has a line for every matching
request on which rule N acted.

Each change of the rules is one appending write. A broker that is paused, killed or restarted misses
no rule, and a rule applies to every request that begins after `add` has returned. The position of
the byte that a request appends to `N.matched` is the request's number, so no locks are needed.
There is no port and no listener: any process that may write to the directory may intercept
requests.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from tidelog.broker.server.interception import Rule

_RULES = "rules.jsonl"
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


class InterceptionDirectory:
    """The broker's access to the rules in a directory, which implements `Interceptions`."""

    def __init__(self, directory: str) -> None:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        self._directory = directory
        flags = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(f"{directory}/{_RULES}", flags, 0o600)
        self._read_bytes = 0
        self._rules: dict[int, Rule] = {}
        self._in_force: tuple[Rule, ...] = ()

    def rules(self) -> Sequence[Rule]:
        """Return the current rules, with one system call if no rule has changed."""
        size = os.fstat(self._file).st_size
        if size != self._read_bytes:
            self._read(size)
        return self._in_force

    def matched(self, rule: Rule) -> int:
        """Count a request that matches a rule; return the request's number."""
        descriptor = os.open(f"{self._directory}/{rule.number}.matched", _APPEND, 0o600)
        try:
            os.write(descriptor, b".")
            # After an append, the file position is the end of the appended byte, even if other
            # processes append later.
            return os.lseek(descriptor, 0, os.SEEK_CUR)
        finally:
            os.close(descriptor)

    def struck(self, rule: Rule, description: str) -> None:
        """Record a request on which a rule acts."""
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
    """A test's access to the rules, to add and end rules and to count matching requests."""

    def __init__(self, directory: str) -> None:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        self._directory = directory

    def add(self, rule: Rule) -> None:
        """Add a rule, which applies to requests from now on."""
        _append(f"{self._directory}/{_RULES}", json.dumps({"rule": rule.to_json()}))

    def end(self, number: int) -> None:
        """End a rule, which applies to no request from now on."""
        _append(f"{self._directory}/{_RULES}", json.dumps({"ended": number}))

    def matched(self, number: int) -> int:
        """Return the number of requests that matched a rule."""
        try:
            return os.stat(f"{self._directory}/{number}.matched").st_size
        except FileNotFoundError:
            return 0

    def struck(self, number: int) -> list[str]:
        """Return a line for each request on which a rule acted."""
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
