"""A server.properties means to tidelog what it means to Kafka 3.9, but for the named differences.

Kafka's own loader and KafkaConfig judge the same generated files, in one JVM.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.clients.absent import Absent
from tests.support.clients.jars import HERE, compiled, jars_of_kafka
from tests.support.clients.server_properties import BASE, MALFORMED, files

from tidelog.core.config import BrokerConfig
from tidelog.core.config_entries import broker_entries
from tidelog.core.config_keys import keys_of
from tidelog.core.config_text import decode_properties, parse_properties
from tidelog.core.dynamic_config import DynamicConfigs
from tidelog.core.errors import ConfigError
from tidelog.core.kafka_differences import (
    NARROWER,
    NOT_IN_FILES,
    READ_ONLY_HERE,
    READ_OTHERWISE,
    REFUSED,
    TAKEN,
)
from tidelog.core.kafka_key_table import kafka_keys
from tidelog.core.types import Endpoint
from tidelog.runtime.config_files import load_config

VERSION = "3.9.2"
PATIENCE_S = 120.0
#: A number above it makes no broker useless: a range may not be narrower than that.
USEFUL = 1024
FILES = dict(files())


def oracle(*words: str) -> list[dict[str, Any]]:
    """Run Kafka's classes; returns what they print, or skips the test without them."""
    try:
        jars = jars_of_kafka(VERSION)
        classes = compiled(HERE / "PropertiesOracle.java", jars)
    except Absent as absent:
        pytest.skip(f"Kafka's loader of properties: {absent}")
    java = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
    ended = subprocess.run(
        [*java, "-cp", f"{classes}:{jars}/*", "PropertiesOracle", *words],
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr.decode()
    return [json.loads(line) for line in ended.stdout.decode().split("\n") if line]


@pytest.fixture(scope="session")
def judged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """The directory of the files, and Kafka's judgement of each."""
    directory = tmp_path_factory.mktemp("properties")
    for name, content in FILES.items():
        (directory / name).write_bytes(content)
    rows = oracle(str(directory))
    assert [row["file"] for row in rows] == sorted(FILES)
    return directory, rows


@pytest.fixture(scope="session")
def keys() -> dict[str, dict[str, Any]]:
    """Kafka's broker keys."""
    return {row["name"]: row for row in oracle("--keys")}


def test_a_broker_describes_every_key_that_kafka_describes(
    keys: dict[str, dict[str, Any]],
) -> None:
    static = BrokerConfig.from_properties({"broker.id": "1"})
    entries = {entry.name: entry for entry in broker_entries(static, DynamicConfigs())}
    listed = {name for name, row in keys.items() if not row["internal"]}
    assert len(listed) > 300 and sorted(listed - entries.keys()) == []
    assert [name for name in listed if entries[name].type.name != keys[name]["type"]] == []
    changeable = {name for name in listed if keys[name]["mode"] is not None}
    ours = {name for name in listed if not entries[name].is_read_only}
    assert (sorted(changeable - ours), ours - changeable) == (sorted(READ_ONLY_HERE), set())


def test_keys_without_effect_have_kafkas_type_default_and_range(
    keys: dict[str, dict[str, Any]],
) -> None:
    table = kafka_keys()
    declared = keys_of(BrokerConfig)
    assert table.keys() == keys.keys() - declared.keys()
    for name, key in table.items():
        row = keys[name]
        assert (key.type.name, key.default, key.is_internal) == (
            row["type"], row["default"], row["internal"],
        ), name  # fmt: skip
        mode = {"per-broker": "broker", "cluster-wide": "cluster", None: ""}[row["mode"]]
        assert key.changes == ("listener" if row["ofListener"] else mode), name
        found = re.fullmatch(r"\[([\d.]+),\.\.\.(?:,([\d.]+))?\]", row["validator"])
        if found is not None:
            assert key.range == f"{found[1]}..{found[2] or ''}", name
        elif key.range:
            assert row["validator"] == f"[{key.range.replace('|', ', ')}]", name


def test_files_are_parsed_as_java_parses_them(
    judged: tuple[Path, list[dict[str, Any]]],
) -> None:
    different = []
    for row in judged[1]:
        content = FILES[row["file"]]
        if "unreadable" in row:
            with pytest.raises(ConfigError, match="malformed escape"):
                parse_properties(decode_properties(content))
        elif parse_properties(decode_properties(content)) != row["properties"]:
            different.append(row["file"])
    utf_8 = ("encoding-utf-8", "encoding-utf-8-euro", "encoding-utf-8-mark", "encoding-utf-8-path")
    assert different == list(utf_8)
    assert sum("unreadable" in row for row in judged[1]) >= len(MALFORMED)


def test_a_broker_starts_with_what_kafka_starts_with_and_reads_the_same(
    judged: tuple[Path, list[dict[str, Any]]],
) -> None:
    directory, rows = judged
    assert len(rows) >= 2_000
    found: Counter[str] = Counter()
    unnamed = []
    for row in rows:
        try:
            config = load_config(str(directory / row["file"]), [])
        except ConfigError as error:
            if "values" in row:
                name = refused(row, str(error))
                found[name] += 1
                if name not in REFUSED:
                    unnamed.append((row["file"], FILES[row["file"]], str(error)))
            continue
        if "values" in row:
            for key, ours, kafkas in differing(config, row):
                name = read_otherwise(row, key, ours, kafkas)
                found[name] += 1
                if name not in READ_OTHERWISE:
                    unnamed.append((row["file"], FILES[row["file"]], f"{key}: {ours}, {kafkas}"))
        else:
            name = taken(row)
            found[name] += 1
            if name not in TAKEN and name not in READ_OTHERWISE:
                unnamed.append((row["file"], FILES[row["file"]], row.get("refused", "")))
    assert unnamed == []
    # Each named difference is one: none has been repaired meanwhile.
    assert [name for name in (*REFUSED, *READ_OTHERWISE, *TAKEN) if not found[name]] == []


def set_in(row: Mapping[str, Any]) -> dict[str, str]:
    """The properties of a file, beside those that each has."""
    base = parse_properties(BASE)
    return {key: value for key, value in row["properties"].items() if base.get(key) != value}


def refused(row: Mapping[str, Any], error: str) -> str:
    """The name of the difference by which tidelog refuses a file that Kafka starts with."""
    given = set_in(row)
    for key, value in given.items():
        if key in NOT_IN_FILES and key in error:
            return "later keys"
        if key in NARROWER and f"{key}=" in error and is_useless(value):
            return "ranges"
    if "not supported yet" in error and "listener" in error:
        return "protocols"
    if "is refused: " in error:
        return "features"
    by_text = {
        "broker.id='-1'": "broker.id",
        "names a directory twice": "directories",
        "lies inside": "directories",
        "replica.lag.time.max.ms": "fetch wait",
        "no member could join a group": "session timeouts",
        "inter.broker.protocol.version": "protocol version",
        "zookeeper.ssl.endpoint.identification.algorithm": "host names",
    }
    return next((name for text, name in by_text.items() if text in error), "")


def is_useless(value: str) -> bool:
    number = float(value.strip())
    return not USEFUL < number < float("inf") or number > 2**31 - 1


def differing(config: BrokerConfig, row: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """What tidelog and Kafka read differently of a file that both start with."""
    values = row["values"]
    ours: dict[str, Any] = {
        "listeners": endpoints(config.listeners),
        "advertised.listeners": endpoints(config.advertised_listeners),
        "inter.broker.listener.name": config.inter_broker_listener_name,
        "log.dirs": list(config.log_dirs),
    }
    for key, (attribute, _, _) in keys_of(BrokerConfig).items():
        is_folded = key in ("log.retention.ms", "log.roll.ms", "log.roll.jitter.ms")
        if key in values and (key in row["properties"] or is_folded):
            ours[key] = shown(getattr(config, attribute))
    return [(key, each, values[key]) for key, each in ours.items() if not same(each, values[key])]


def endpoints(found: tuple[Endpoint, ...]) -> list[str]:
    return [f"{each.listener}://{each.host}:{each.port}" for each in found]


def shown(value: object) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return list(value) if isinstance(value, tuple) else str(value)


def same(ours: Any, kafkas: Any) -> bool:
    if isinstance(ours, list) and isinstance(kafkas, list):
        # A slash at the end of a directory, and an element that is repeated, mean nothing.
        return list(dict.fromkeys(each.rstrip("/") for each in kafkas)) == ours
    if ours == kafkas:
        return True
    try:
        return float(ours) == float(kafkas)
    except (TypeError, ValueError):
        return False


def read_otherwise(row: Mapping[str, Any], key: str, ours: Any, kafkas: Any) -> str:
    if row["file"].startswith("encoding-utf-8"):
        return "encoding"
    if key == "advertised.listeners":
        pairs = list(zip(ours, kafkas, strict=True))
        if all(is_advertised(one, other) for one, other in pairs):
            return "advertised host"
    return ""


def is_advertised(ours: str, kafkas: str) -> bool:
    """Whether both name one host, but for a listener without any."""
    of_this_machine = (kafkas.replace("//:::", "//::1:"), kafkas.replace("//:", "//127.0.0.1:"))
    return ours == kafkas or ours in of_this_machine


def taken(row: Mapping[str, Any]) -> str:
    """The name of the difference by which tidelog starts with a file that Kafka refuses."""
    if row["file"].startswith("encoding-utf-8"):
        return "encoding"
    given, refusal = set_in(row), row["refused"]
    texts = (
        "listener.security.protocol.map", "advertised.listeners", "inter.broker.listener.name",
        "security.inter.broker.protocol", "log.dirs", "inter.broker.protocol.version",
    )  # fmt: skip
    if any(key in given and not given[key].strip() for key in texts):
        return "empty texts"
    if ",," in given.get("listener.security.protocol.map", ""):
        return "empty texts"
    if "must be a listener name defined in advertised.listeners" in refusal:
        return "only listener"
    if given.get("security.inter.broker.protocol", "").islower():
        return "case"
    by_text = {
        "reserved.broker.max.id": "reserved ids",
        "connections.max.idle.ms": "idle",
        "queued.max.request.bytes": "request budget",
        "dedupe.buffer.size must be": "cleaner",
    }
    for text, name in by_text.items():
        if text in refusal:
            return name
    effective = keys_of(BrokerConfig).keys() | {"listeners", "log.dir"}
    return "" if given.keys() & effective else "no effect"
