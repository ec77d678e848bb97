"""Files of properties that look like what people have, for a comparison with Kafka's own loader.

Three kinds: the syntax of the file (separators, escapes, continuations, encodings), one key with
one value after the other, and the families of keys that are read together. All are made from one
seed, so that a difference has a name that stays.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from tidelog.core.config import BrokerConfig
from tidelog.core.config_keys import ConfigType, keys_of

#: Makes a file that a broker starts with.
BASE: Final = "broker.id=1\nzookeeper.connect=h:2181\n"

_KEYS: Final = ("num.partitions", "broker.rack", "log.dirs", "message.max.bytes", "an.unknown.key")
_SEPARATORS: Final = ("=", ":", " ", " = ", "\t=\t", "=  ", " : ", "\f=", "==", "=:", "  ", "\t")
_LINE_ENDS: Final = ("\n", "\r\n", "\r")
#: Pieces of text between which a parser may lose its way.
_PIECES: Final = (
    "a", "/d", "1", "7", " ", "\\ ", "\\t", "\\n", "\\r", "\\f", "\\\\", "\\=", "\\:", "\\#", "\\!",
    "=", ":", "#", "!", "\\u00fc", "\\u0041", "\\u20AC", "\\uD83D\\uDE00", "\\q", "\\0", "\u00e9",
    "\t", "\f", ",", "$", "'", '"', "\\'", "\u0085", "\u00a0", "\x1c", "\x0b",
)  # fmt: skip
_ODD_LINES: Final = (
    "", "   ", "# a comment", "! a comment", "  # a comment", "#comment \\", "=", "=value", ":",
    "key", "key=", "\\", "  \\", "# x=1", "!num.partitions=9", "\\#key=1", "key\\ with=1", "\\=k=1",
)  # fmt: skip
MALFORMED: Final = ("\\u00g1", "\\u12", "\\u", "\\uzzzz", "\\u 041")
_BY_TYPE: Final = {
    ConfigType.BOOLEAN: ("true", "false", "TRUE", "False", " true ", "yes", "1", "", "t\\u0072ue"),
    ConfigType.INT: (
        "1", "0", "-1", "+5", "007", " 12 ", "", "1e3", "1.0", "0x10", "1_000", "2147483647",
        "2147483648", "-2147483649", "1000", "12L", "1,000", "\\u0661", "10MB", "5s", "100000",
    ),
    ConfigType.LONG: (
        "1", "0", "-1", "+5", "007", " 12 ", "", "1e3", "9223372036854775807",
        "9223372036854775808",
        "-2", "12L", "1_000", "\\u0661\\u0662", "100000000000", "7d",
    ),
    ConfigType.SHORT: ("1", "3", "32767", "32768", "0", "-1", "+2", "", " 2 ", "1.0", "\\u0663"),
    ConfigType.DOUBLE: (
        "0.5", "1", ".5", "5.", "1e-1", "1E3", "0x1p-1", "0.5d", "0.5f", "NaN", "Infinity", "inf",
        "nan", "-Infinity", "+0.7", "", " 0.25 ", "1_0.0", "0,5", "1e400", "0.5D", "2", "-0.0",
        "infinity", "0x.8p0",
    ),
    ConfigType.LIST: ("", "a", "a,b", " a , b ", "a,,b", ",", "a,a", "delete", "compact,delete",
        "delete , compact", "compact,compact", "DELETE", "delete,", "/x", "*"),
    ConfigType.STRING: (
        "", "a", " a b ", "producer", "PRODUCER", "gzip", "zstd", "Gzip", "none", "uncompressed",
        "CreateTime", "createtime", "LogAppendTime", "3.9", "3.9-IV0", "3.0", "2.8-IV1", "0.10.2",
        "9.9", "HTTPS", "https", "null", "PLAINTEXT", "a\\tb",
    ),
}  # fmt: skip
_HOSTS: Final = ("", "h", "localhost", "127.0.0.1", "0.0.0.0", "[::1]", "[::]", "::1",
    "[fe80::1%eth0]", "a_b", "a-b.c", "10.0.0.1", "[2001:db8::1]", "h ost")  # fmt: skip
_PORTS: Final = ("9092", "9093", "0", "65535", "65536", "-1", "99999999999", "")
_NAMES: Final = ("PLAINTEXT", "plaintext", "CLIENTS", "clients", "SSL", "A_B", "A.B", "A-B", "")
_MAPS: Final = (
    None, "PLAINTEXT:PLAINTEXT,CLIENTS:PLAINTEXT,A_B:PLAINTEXT,A.B:PLAINTEXT,A-B:PLAINTEXT",
    "plaintext:PLAINTEXT , clients:PLAINTEXT", "CLIENTS:plaintext,PLAINTEXT:PLAINTEXT",
    "CLIENTS:PLAINTEXT,CLIENTS:PLAINTEXT,PLAINTEXT:PLAINTEXT", "CLIENTS:NONE", "CLIENTS", "",
    "PLAINTEXT:PLAINTEXT,CLIENTS:SSL", "PLAINTEXT:PLAINTEXT,,CLIENTS:PLAINTEXT,",
)  # fmt: skip
_TOGETHER: Final = (
    "log.dirs=/a,/b\nlog.dir=/c", "log.dirs=\nlog.dir=/c", "log.dir=/c", "log.dirs=,", "log.dir=",
    "log.dirs= /a , /b ,", "log.dirs=/a,/a", "log.dirs=/a,/a/b", "log.dirs=/a/", "log.dirs=a",
    "log.retention.ms=5\nlog.retention.hours=1", "log.retention.minutes=3\nlog.retention.hours=1",
    "log.retention.hours=2", "log.retention.hours=-1", "log.retention.hours=0",
    "log.retention.minutes=0", "log.retention.ms=0", "log.retention.ms=-5",
    "log.retention.ms=\nlog.retention.hours=3", "log.retention.hours=3000000000",
    "log.retention.hours=2147483647", "log.retention.minutes=+7",
    "log.roll.hours=3", "log.roll.hours=0", "log.roll.ms=0\nlog.roll.hours=3", "log.roll.hours=-1",
    "log.roll.jitter.hours=2", "log.roll.jitter.hours=-1", "log.roll.jitter.ms=4",
    "node.id=1", "node.id=2", "zookeeper.session.timeout.ms=6000",
    "zookeeper.connection.timeout.ms=7000\nzookeeper.session.timeout.ms=6000",
    "replica.fetch.wait.max.ms=40000", "replica.fetch.wait.max.ms=30000",
    "replica.lag.time.max.ms=400", "replica.lag.time.max.ms=500", "replica.socket.timeout.ms=400",
    "queued.max.request.bytes=1", "queued.max.request.bytes=104857600",
    "queued.max.request.bytes=0",
    "queued.max.request.bytes=268435456\nsocket.request.max.bytes=300000000",
    "group.min.session.timeout.ms=9\ngroup.max.session.timeout.ms=8",
    "connections.max.idle.ms=100", "connections.max.idle.ms=101", "connections.max.idle.ms=-1",
    "connections.max.idle.ms=0", "connections.max.idle.ms=-2",
    "max.connections.per.ip=0", "max.connections.per.ip=5\nmax.connections.per.ip.overrides=a:1",
    "log.cleaner.dedupe.buffer.size=1048576", "log.cleaner.dedupe.buffer.size=1048577",
    "log.cleaner.dedupe.buffer.size=4194304\nlog.cleaner.threads=4",
    "inter.broker.protocol.version=2.0\nlog.message.format.version=3.0",
    "inter.broker.listener.name=PLAINTEXT\nsecurity.inter.broker.protocol=PLAINTEXT",
    "security.inter.broker.protocol=plaintext", "security.inter.broker.protocol=SSL",
    "security.inter.broker.protocol=", "security.inter.broker.protocol=NONE",
    "inter.broker.listener.name=", "inter.broker.listener.name=NOWHERE",
    "controller.listener.names=C", "control.plane.listener.name=C", "authorizer.class.name=",
    "authorizer.class.name=kafka.security.authorizer.AclAuthorizer", "process.roles=",
    "process.roles=broker", "early.start.listeners=X", "early.start.listeners=",
    "num.partitions=3\nnum.partitions=4", "num.partitions=3\n num.partitions : 5",
    "NUM.PARTITIONS=7", "num.partitions =8", "log.cleaner.enable=false",
    "compression.type=none", "offsets.topic.compression.codec=5", "min.insync.replicas=0",
    "config.providers=", "config.providers=file",
    "config.providers=env\n"
    "config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
    "broker.rack=${env:PATH}",
    "broker.rack=${env:PATH}", "broker.rack=${file:/x:y}", "metadata.log.dir=",
    "zookeeper.connect=",
    "broker.id=", "broker.id=-1", "broker.id=1001", "broker.id=1000", "broker.id=-2",
    "broker.id.generation.enable=false\nbroker.id=2000", "reserved.broker.max.id=5\nbroker.id=6",
    "broker.id.generation.enable=false\nbroker.id=-1", "socket.send.buffer.bytes=-1",
    "num.network.threads=0", "num.io.threads=x", "background.threads=0", "log.cleaner.threads=-1",
    "metric.reporters=nope.Nope", "principal.builder.class=nope", "sasl.enabled.mechanisms=",
    "group.coordinator.rebalance.protocols=consumer", "transaction.state.log.min.isr=0",
    "ssl.client.auth=maybe", "password.encoder.iterations=1", "telemetry.max.bytes=0",
)  # fmt: skip


def files(seed: int = 3_9) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents, in an order that does not change."""
    draw = random.Random(seed)
    for number in range(220):
        yield f"syntax-{number:03}", _syntax(draw)
    for number, escape in enumerate(MALFORMED):
        yield f"malformed-{number}", f"{BASE}broker.rack=x{escape}y\n".encode("latin-1")
    for name, content in _encodings():
        yield f"encoding-{name}", content
    for key, (_, declared, _) in keys_of(BrokerConfig).items():
        if not declared.ours and key not in ("broker.id", "zookeeper.connect"):
            for number, value in enumerate(_BY_TYPE[declared.type]):
                yield f"value-{key}-{number:02}", f"{BASE}{key}={value}\n".encode("latin-1")
    for number, lines in enumerate(_TOGETHER):
        yield f"together-{number:03}", f"{BASE}{lines}\n".encode("latin-1")
    for number in range(400):
        yield f"listeners-{number:03}", (BASE + _listeners(draw)).encode("latin-1")


def _syntax(draw: random.Random) -> bytes:
    lines = [*BASE.splitlines()]
    for _ in range(draw.randrange(1, 7)):
        if draw.random() < 0.3:
            lines.append(draw.choice(_ODD_LINES))
            continue
        key = draw.choice(_KEYS)
        if draw.random() < 0.2:
            key = "".join(draw.choices(_PIECES, k=draw.randrange(1, 4)))
        value = "".join(draw.choices(_PIECES, k=draw.randrange(0, 6)))
        if key == "num.partitions" and draw.random() < 0.8:
            value = draw.choice(("3", " 4 ", "5\\u0020", "\\u0036"))
        line = draw.choice(("", "", " ", "\t", "\f")) + key + draw.choice(_SEPARATORS) + value
        if draw.random() < 0.3:
            at = draw.randrange(len(line) + 1)
            line = (
                line[:at]
                + "\\"
                + draw.choice(_LINE_ENDS)
                + draw.choice(("", "  ", "\t#"))
                + line[at:]
            )
        lines.append(line)
    ends = draw.choice(_LINE_ENDS)
    text = ends.join(lines) + draw.choice(("", ends, "\\", ends + "\\"))
    return text.encode("latin-1")


def _encodings() -> Iterator[tuple[str, bytes]]:
    line = "broker.rack=Z\u00fcrich\n"
    yield "latin-1", (BASE + line).encode("latin-1")
    yield "utf-8", (BASE + line).encode()
    yield "utf-8-euro", (BASE + "broker.rack=\u20ac\n").encode()
    yield "utf-8-mark", b"\xef\xbb\xbf" + BASE.encode()
    yield "utf-16", (BASE + line).encode("utf-16")
    yield "utf-8-comment", (BASE + "# gr\u00fc\u00dfe\nbroker.rack=a\n").encode()
    yield "latin-1-comment", (BASE + "# gr\u00fc\u00dfe\nbroker.rack=a\n").encode("latin-1")
    yield "nul", BASE.encode() + b"broker.rack=a\0b\n"
    yield "empty", b""
    yield "utf-8-path", (BASE + "log.dirs=/d/\u00fc\n").encode()


def _listeners(draw: random.Random) -> str:
    lines = []
    if draw.random() < 0.9:
        lines.append("listeners=" + _endpoints(draw))
    if draw.random() < 0.4:
        lines.append("advertised.listeners=" + _endpoints(draw))
    mapping = draw.choice(_MAPS)
    if mapping is not None:
        lines.append(f"listener.security.protocol.map={mapping}")
    if draw.random() < 0.3:
        lines.append(f"inter.broker.listener.name={draw.choice(_NAMES)}")
    return "\n".join(lines) + "\n"


def _endpoints(draw: random.Random) -> str:
    count = draw.choice((0, 1, 1, 2, 2, 2, 3))
    likely = draw.random() < 0.75
    found = []
    for _ in range(count):
        name = draw.choice(_NAMES[:4] if likely else _NAMES)
        host = draw.choice(_HOSTS[:7] if likely else _HOSTS)
        found.append(f"{name}://{host}:{draw.choice(_PORTS[:2] if likely else _PORTS)}")
    return draw.choice((",", " , ", ",,", ", ")).join(found) + draw.choice(("", "", "", ",", " "))
