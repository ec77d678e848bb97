"""`subscribePattern`: a Java regular expression that Python's `re` reads in the same way.

Patterns that users have written for the connector have Java's syntax. Most of the syntax is common
to Java and Python and means the same for topic names, which are ASCII. Syntax that only Java or
only Python has, or that differs in meaning, is an error with its position, because a pattern with
another meaning would subscribe to other topics. Named groups are translated.

Rejected escapes are `\\p{...}`, `\\Q...\\E` and others that only Java has. In a character class,
nested classes and `&&` are rejected. Flags other than i, m, s and x, a `{` that is no repetition,
and Python's `(?P`, `(?(` and `(?#` are rejected, too.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn

from tidelog.spark.option_values import OptionError

#: Escapes of letters and digits that mean the same in Java and, with re.ASCII, in Python.
_ESCAPES: Final = frozenset("dDwWsSbBAtnrfa123456789")
_HEX_ESCAPES: Final = {"x": 2, "u": 4}
_REPETITION: Final = re.compile(r"\{[0-9]+(,[0-9]*)?\}")
#: Text that may follow `(?`: groups, look-around, atomic groups, flags of a group.
_GROUP: Final = re.compile(r":|=|!|>|<=|<!|<[A-Za-z][A-Za-z0-9]*>|[imsx]*(-[imsx]+)?:")
_FIRST_FLAGS: Final = re.compile(r"[imsx]+\)")


def compile_topic_pattern(text: str) -> re.Pattern[str]:
    """Return a compiled pattern; search it in topic names, as Spark's Kafka connector does.

    Raises OptionError for syntax that is not common to Java and Python.
    """
    pattern = text.strip()
    if not pattern:
        raise OptionError(
            f"option subscribePattern is {text!r}; expected a regular expression that is found in"
            " topic names"
        )
    translated = _Translation(pattern).run()
    try:
        return re.compile(translated, re.ASCII)
    except (re.error, OverflowError) as error:
        raise OptionError(f"option subscribePattern is {pattern!r}: {error}") from error


class _Translation:
    """One pass over a pattern, from left to right."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._out: list[str] = []

    def run(self) -> str:
        """Return the pattern in Python's syntax."""
        while self._at < len(self._pattern):
            symbol = self._pattern[self._at]
            if symbol == "\\":
                self._escape()
            elif symbol == "[":
                self._class()
            elif symbol == "(":
                self._group()
            elif symbol == "{":
                match = _REPETITION.match(self._pattern, self._at)
                if match is None:
                    self._refuse("{", "{ begins a repetition such as {2,3}; a brace itself is \\{")
                self._take(len(match[0]))
            else:
                self._take(1)
        return "".join(self._out)

    def _escape(self) -> None:
        following = self._pattern[self._at + 1 : self._at + 2]
        if following == "k":
            match = re.compile(r"\\k<([A-Za-z][A-Za-z0-9]*)>").match(self._pattern, self._at)
            if match is None:
                self._refuse("\\k", "a group is named as in \\k<name>")
            self._out.append(f"(?P={match[1]})")
            self._at += len(match[0])
            return
        if following in _HEX_ESCAPES:
            count = 2 + _HEX_ESCAPES[following]
            digits = self._pattern[self._at + 2 : self._at + count]
            if re.fullmatch(f"[0-9A-Fa-f]{{{count - 2}}}", digits) is None:
                self._refuse(f"\\{following}", f"expected {count - 2} hexadecimal digits")
            self._take(count)
            return
        if not following or (following.isalnum() and following not in _ESCAPES):
            self._refuse(f"\\{following}", "this escape is not read alike by Java and Python")
        self._take(2)

    def _class(self) -> None:
        """Copy a character class `[...]` of the pattern unchanged."""
        begins = self._at
        self._take(1)
        if self._pattern.startswith("^", self._at):
            self._take(1)
        if self._pattern.startswith("]", self._at):
            self._refuse("]", "an empty class; a bracket itself is \\]")
        while self._at < len(self._pattern):
            symbol = self._pattern[self._at]
            if symbol == "]":
                self._take(1)
                return
            if symbol == "\\":
                self._escape()
                continue
            if symbol == "[":
                self._refuse("[", "a class within a class is Java's alone; a bracket itself is \\[")
            if self._pattern.startswith("&&", self._at):
                self._refuse("&&", "an intersection of classes is Java's alone")
            self._take(1)
        self._at = begins
        self._refuse("[", "the class is not closed")

    def _group(self) -> None:
        if not self._pattern.startswith("(?", self._at):
            self._take(1)
            return
        match = _GROUP.match(self._pattern, self._at + 2)
        if match is None and self._at == 0:
            match = _FIRST_FLAGS.match(self._pattern, 2)
        if match is None:
            self._refuse(
                self._pattern[self._at : self._at + 3],
                "this group is not read alike by Java and Python (flags such as (?i) stand first)",
            )
        named = match[0].startswith("<") and match[0].endswith(">")
        self._out.append(f"(?P{match[0]}" if named else f"(?{match[0]}")
        self._at += 2 + len(match[0])

    def _take(self, count: int) -> None:
        self._out.append(self._pattern[self._at : self._at + count])
        self._at += count

    def _refuse(self, symbol: str, why: str) -> NoReturn:
        raise OptionError(
            f"option subscribePattern is {self._pattern!r}, which has {symbol} at position"
            f" {self._at}: {why}"
        )
