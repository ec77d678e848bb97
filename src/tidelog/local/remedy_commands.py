"""The commands in the remedies of findings, which a reader copies into a shell.

Clients choose the names of groups and topics, so a name may contain anything that a shell would
execute, and may begin with `-` as an option does.
"""

from __future__ import annotations

import shlex


def quoted(name: str) -> str:
    """Return a client-chosen name quoted for a shell, which reads it as one harmless word.

    Control characters get the form `$'\\n'` of bash, so that the command stays on one line.
    """
    if name.isprintable():
        return shlex.quote(name)
    return "$'" + "".join(map(_in_quotes, name)) + "'"


def _in_quotes(character: str) -> str:
    if character in ("'", "\\"):
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08x}"


def command_on(command: str, name: str, options: str = "") -> str:
    """Return a command with a client-chosen name as its argument.

    `options` begin with a space. A name that begins with `-` stands behind `--`, because the
    command would take the name for an option otherwise.
    """
    word = quoted(name)
    if name.startswith("-"):
        return f"{command}{options} -- {word}"
    return f"{command} {word}{options}"
