"""Options of Kafka's tools and of kcat, with the equal options of tidelog's commands.

Commands accept these options, but help pages do not list them. If an option has another meaning
here, or none, the command ends with a usage error that names tidelog's option. The tables have one
row for each option; `docs/reference/cli.md` shows them.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import TidelogError

_PLACEHOLDER = re.compile(r"[A-Z]+$")
#: Placeholders that stand only for certain texts, each with the pattern of these texts. `CONTEXTS`
#: stands for a list of librdkafka's debug contexts.
_FORMS = {
    "CONTEXTS": re.compile(
        r"(,?(all|generic|broker|topic|metadata|feature|queue|msg|protocol|cgrp|security|fetch"
        r"|interceptor|plugin|consumer|admin|eos|mock|assignor|conf)\b)+"
    )
}
_CONSOLE_CONSUMER = "kafka-console-consumer"
_CONSOLE_PRODUCER = "kafka-console-producer"
_TOPICS = "kafka-topics"
_GROUPS = "kafka-consumer-groups"
_KCAT = "kcat"


class DifferentOptionError(TidelogError):
    """The usage error of another tool's option that tidelog lacks; it suggests a replacement."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """An option of another tool: `--max-messages N`, `--property print.key=true`, `-u`.

    A word in upper case at the end stands for any text. If a value has text before the placeholder,
    that text must be equal.
    """

    tool: str
    theirs: str
    #: Words that replace the option; a word in upper case stands for the placeholder's text. Empty
    #: if the option has no effect.
    ours: str = ""
    #: Whether the words precede all other words: a topic, or a default that later words replace.
    is_first: bool = False
    #: The text of the usage error if tidelog does not accept the option.
    hint: str = ""

    @property
    def name(self) -> str:
        """Return the option without its value."""
        return self.theirs.partition(" ")[0]

    @property
    def has_value(self) -> bool:
        """Return whether the option takes a value."""
        return " " in self.theirs

    def words(self, value: str) -> list[str] | None:
        """Return the words for the option with this value; None if the value does not fit."""
        theirs = self.theirs.partition(" ")[2]
        place = _PLACEHOLDER.search(theirs)
        fixed = theirs if place is None else theirs[: place.start()]
        if not (value.startswith(fixed) if place else value == fixed):
            return None
        text = value[len(fixed) :]
        if place and place[0] in _FORMS and not _FORMS[place[0]].fullmatch(text):
            return None
        return [
            text if place and word == place[0] else word for word in self.ours.split(" ") if word
        ]


def _accepted(tool: str, *rows: str) -> Iterator[Spelling]:
    """Yield spellings of rows `theirs -> ours`; with `->>`, `ours` precedes all words."""
    for row in rows:
        theirs, _, ours = row.partition("->")
        first = ours.startswith(">")
        yield Spelling(tool, theirs.strip(), ours.removeprefix(">").strip(), first)


def _refused(tool: str, *rows: str) -> Iterator[Spelling]:
    """Yield spellings from rows `theirs: hint`; commas separate several options of a row."""
    for row in rows:
        theirs, _, hint = row.partition(": ")
        yield from (Spelling(tool, each, hint=hint) for each in theirs.split(", "))


def _without_effect(tool: str, options: str) -> Iterator[Spelling]:
    return (Spelling(tool, each) for each in options.split(", "))


_NO_FILE = "commands read no file of client properties; --help lists their options"
_NO_PROPERTY = "tidelog's client has options in place of properties; --help lists them"
_BYTES = "keys and values are written as they are; --json shows bytes that are no text as base64"
_DEBUG = "-d is the directory of a local cluster here; there are no debug contexts"
_STRINGS = "org.apache.kafka.common.serialization.StringDeserializer"


def _consumer_properties(tool: str, option: str) -> Iterator[Spelling]:
    yield from _accepted(
        tool,
        f"{option} group.id=GROUP -> --group GROUP",
        f"{option} auto.offset.reset=OFFSET -> --offset OFFSET",
        f"{option} isolation.level=LEVEL -> --isolation-level LEVEL",
    )
    yield from _refused(tool, f"{option} PROPERTY: {_NO_PROPERTY}")


def _producer_properties(tool: str, option: str, codec: str) -> Iterator[Spelling]:
    yield from _accepted(
        tool,
        f"{option} acks=ACKS -> --acks ACKS",
        f"{option} enable.idempotence=true -> --idempotent",
        f"{option} enable.idempotence=false -> --no-idempotent",
        f"{option} {codec}=CODEC -> --compression CODEC",
    )
    yield from _refused(tool, f"{option} PROPERTY: {_NO_PROPERTY}")


def _printed(option: str) -> Iterator[Spelling]:
    """Yield the spellings of the properties with which kafka-console-consumer formats records."""
    yield from _accepted(
        _CONSOLE_CONSUMER,
        f"{option} print.key=true ->> --key-delimiter \\t",
        f"{option} print.key=false",
        f"{option} print.value=true",
        f"{option} key.separator=TEXT -> --key-delimiter TEXT",
        f"{option} line.separator=TEXT -> --delimiter TEXT",
    )
    yield from _refused(
        _CONSOLE_CONSUMER,
        f"{option} null.literal=TEXT: --null writes NULL where there is no key or value",
        f"{option} PROPERTY: write a --format, such as '%T %p %o %h %k %s\\n', or --json",
    )


_CONSUME = (
    *_accepted(
        _CONSOLE_CONSUMER,
        "--topic TOPIC ->> TOPIC",
        "--from-beginning -> --offset beginning",
        "--max-messages N -> --count N",
        f"--key-deserializer {_STRINGS}",
        f"--value-deserializer {_STRINGS}",
        "--skip-message-on-error",
    ),
    *_printed("--property"),
    *_printed("--formatter-property"),
    *_consumer_properties(_CONSOLE_CONSUMER, "--consumer-property"),
    *_consumer_properties(_CONSOLE_CONSUMER, "--command-property"),
    *_refused(
        _CONSOLE_CONSUMER,
        "--timeout-ms N: --exit ends the command when all present records are written",
        "--include REGEX, --whitelist REGEX: name the topics; tidelog topics list has them",
        f"--formatter CLASS, --formatter-config FILE: {_BYTES}",
        f"--key-deserializer CLASS, --value-deserializer CLASS: {_BYTES}",
        f"--consumer.config FILE, --command-config FILE: {_NO_FILE}",
        "--enable-systest-events: tidelog events tail shows what happens in the cluster",
    ),
    *_accepted(_KCAT, "-t TOPIC ->> TOPIC", "-G GROUP -> --group GROUP"),
    *_without_effect(_KCAT, "-C, -u, -q, -E"),
    *_consumer_properties(_KCAT, "-X"),
    *_refused(
        _KCAT,
        "-O: write a --format, such as '%o %s\\n'",
        "-m SECONDS: --timeout has the seconds to wait for the cluster",
        f"-s SERDES, -r URL: {_BYTES}",
        f"-F FILE: {_NO_FILE}",
        f"-d CONTEXTS: {_DEBUG}",
        "-v: there is no verbosity; errors say what failed and where",
        "-P: tidelog produce writes records",
        "-L: tidelog topics describe and tidelog status show metadata",
    ),
)
_READER_HINT = (
    "a record has a key (--key-delimiter) and headers (--header name=value on all records)"
)
_PRODUCE = (
    *_accepted(
        _CONSOLE_PRODUCER,
        "--topic TOPIC ->> TOPIC",
        "--broker-list SERVERS -> --bootstrap-server SERVERS",
        "--compression-codec CODEC -> --compression CODEC",
        "--request-required-acks ACKS -> --acks ACKS",
    ),
    *(
        row
        for option in ("--property", "--reader-property")
        for row in (
            *_accepted(
                _CONSOLE_PRODUCER,
                f"{option} parse.key=true ->> --key-delimiter \\t",
                f"{option} parse.key=false",
                f"{option} parse.headers=false",
                f"{option} key.separator=TEXT -> --key-delimiter TEXT",
            ),
            *_refused(_CONSOLE_PRODUCER, f"{option} PROPERTY: {_READER_HINT}"),
        )
    ),
    *_producer_properties(_CONSOLE_PRODUCER, "--producer-property", "compression.type"),
    *_producer_properties(_CONSOLE_PRODUCER, "--command-property", "compression.type"),
    *_without_effect(
        _CONSOLE_PRODUCER,
        "--sync, --batch-size N, --message-send-max-retries N, --retry-backoff-ms N,"
        " --request-timeout-ms N, --metadata-expiry-ms N, --max-block-ms N, --max-memory-bytes N,"
        " --max-partition-memory-bytes N, --socket-buffer-size N",
    ),
    *_refused(
        _CONSOLE_PRODUCER,
        f"--line-reader CLASS, --reader-config FILE: {_READER_HINT}",
        f"--producer.config FILE, --command-config FILE: {_NO_FILE}",
    ),
    *_accepted(_KCAT, "-t TOPIC ->> TOPIC", "-p -1"),
    *_without_effect(_KCAT, "-P, -q, -E"),
    *_producer_properties(_KCAT, "-X", "compression.codec"),
    *_refused(
        _KCAT,
        "-c N: head -n N in front of the command counts records",
        "-T: tee in front of the command shows the records",
        "-m SECONDS: --timeout has the seconds to wait for the cluster",
        f"-F FILE: {_NO_FILE}",
        f"-d CONTEXTS: {_DEBUG}",
        "-v: there is no verbosity; errors say what failed and where",
        "-C: tidelog consume reads records",
    ),
)
_TOPIC = (
    *_accepted(_TOPICS, "--topic TOPIC ->> TOPIC"),
    *_refused(_TOPICS, f"--command-config FILE: {_NO_FILE}"),
)
_GROUP = (
    *_accepted(_GROUPS, "--group GROUP ->> GROUP"),
    *_refused(_GROUPS, f"--command-config FILE: {_NO_FILE}"),
)
_HEALTH = "tidelog health names such partitions, with the cause"

#: Spellings by the command that accepts them.
SPELLINGS: Mapping[str, tuple[Spelling, ...]] = {
    "consume": _CONSUME,
    "produce": _PRODUCE,
    "topics": tuple(
        _accepted(
            _TOPICS,
            "--create ->> create",
            "--list ->> list",
            "--describe ->> describe",
            "--alter ->> alter",
            "--delete ->> delete",
        )
    ),
    "topics create": (
        *_TOPIC,
        *_refused(
            _TOPICS,
            "--if-not-exists: a topic that exists is an error with the exit code 1",
            "--replica-assignment IDS: brokers place replicas; tidelog reassign moves them",
        ),
    ),
    "topics list": tuple(
        _refused(
            _TOPICS,
            "--topic TOPIC: tidelog topics describe TOPIC shows one topic",
            "--exclude-internal: names of internal topics begin with __ (grep -v ^__)",
            f"--command-config FILE: {_NO_FILE}",
        )
    ),
    "topics describe": (
        *_TOPIC,
        *_refused(
            _TOPICS,
            "--under-replicated-partitions, --unavailable-partitions, --under-min-isr-partitions,"
            f" --at-min-isr-partitions: {_HEALTH}",
            "--topics-with-overrides: tidelog configs describe --topic TOPIC --changed shows them",
            "--topic-id ID: the line of a topic shows its id; name the topic",
        ),
    ),
    "topics alter": (
        *_TOPIC,
        *_refused(
            _TOPICS,
            "--partitions N: tidelog topics add-partitions TOPIC --to N adds partitions",
            "--replica-assignment IDS: brokers place replicas; tidelog reassign moves them",
        ),
    ),
    "topics delete": (
        *_TOPIC,
        *_refused(_TOPICS, "--if-exists: a missing topic is an error with the exit code 1"),
    ),
    "groups": tuple(
        _accepted(
            _GROUPS,
            "--list ->> list",
            "--describe ->> describe",
            "--reset-offsets ->> reset",
            "--delete ->> delete",
        )
    ),
    "groups describe": _GROUP,
    "groups reset": (*_GROUP, *_without_effect(_GROUPS, "--dry-run")),
    "groups delete": _GROUP,
    "": tuple(
        _refused(
            _KCAT,
            "-C: tidelog consume TOPIC reads records",
            "-G GROUP: tidelog consume TOPIC --group GROUP reads records as a member",
            "-P: tidelog produce TOPIC writes records",
            "-L: tidelog topics describe and tidelog status show metadata",
            "-Q: tidelog consume TOPIC -o s@TIME -c 1 -f '%o\\n' finds an offset by its time",
            "-M N: tidelog up -n N starts brokers that keep what they get",
        )
    ),
}


def translated(
    words: Sequence[str], own: Mapping[str, bool], spellings: Sequence[Spelling]
) -> list[str]:
    """Return the words of a command in tidelog's spellings.

    `own` maps the command's options to whether each takes a value. Words that are neither in `own`
    nor in `spellings` stay unchanged. Raises DifferentOptionError for an option of another tool
    that tidelog lacks.
    """
    first: list[str] = []
    rest: list[str] = []
    queue = deque(words)
    while queue:
        word = queue.popleft()
        if word == "--":
            rest += [word, *queue]
            break
        name, value = _split(word)
        rows = [each for each in spellings if each.name == name]
        takes_value = rows[0].has_value if rows else own.get(name)
        typed = [word]
        if takes_value and value is None and queue:
            value = queue.popleft()
            typed.append(value)
        elif takes_value is False and value is not None and not name.startswith("--"):
            queue.appendleft(f"-{value}")  # `-Je`: the letters behind a flag are options as well
            value, typed = None, [name]
        row, ours = _matching(rows, value)
        if row is None:
            rest += typed
        elif row.hint:
            raise DifferentOptionError(f"{row.theirs} of {row.tool} has no equal here; {row.hint}")
        else:
            (first if row.is_first else rest).extend(ours)
    return first + rest


def _split(word: str) -> tuple[str, str | None]:
    """Return an option's name, and the value in the same word; else the whole word."""
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        return name, value if equals else None
    if word.startswith("-") and len(word) > 2:
        return word[:2], word[2:]
    return word, None


def _matching(rows: Sequence[Spelling], value: str | None) -> tuple[Spelling | None, list[str]]:
    """Return the first row that fits a value, and its words; None if no row fits."""
    for row in rows:
        if row.has_value and value is None:
            raise DifferentOptionError(f"{row.name} needs a value, as in {row.theirs}")
        ours = row.words(value or "")
        if ours is not None:
            return row, ours
    return None, []
