"""The table of names in docs/guide/errors.md is what the clients' own libraries say."""

from __future__ import annotations

import re
import shutil
import subprocess

import aiokafka.errors
import kafka.errors
import pytest
from confluent_kafka import KafkaError
from tests.guide.documents import ROOT
from tests.support.clients import kafkajs_packages
from tests.support.clients.absent import Absent
from tests.support.clients.jars import KAFKA, jars_of_kafka

from tidelog.core.errors import ErrorCode

GUIDE = (ROOT / "docs" / "guide" / "errors.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in GUIDE.partition("## One error")[2].splitlines()
    if re.match(r"\| -?\d+ \|", line)
]
CODES = [int(row[0]) for row in ROWS]
JAVA = """
import org.apache.kafka.common.protocol.Errors;
public class Names {
    public static void main(String[] codes) {
        for (String code : codes)
            System.out.println(
                Errors.forCode(Short.parseShort(code)).exception().getClass().getSimpleName());
    }
}
"""
KAFKAJS = """
const { errorCodes } = require('kafkajs/src/protocol/error.js')
for (const { code, type } of errorCodes) console.log(code, type)
"""


def column(number: int) -> list[str]:
    return [row[number] for row in ROWS]


def test_kafkas_names_are_those_of_the_explanations() -> None:
    names = [name.partition(" ")[0] for name in column(1)]
    assert len(names) > 50
    assert names == [ErrorCode(code).name for code in CODES]
    explained = GUIDE.partition("## One error")[0]
    assert [name for name in names if not re.search(rf"\b{name}\b", explained)] == []


def test_librdkafkas() -> None:
    found = [KafkaError(code) for code in CODES]
    told = [f"{each.name()}: {each.str().removeprefix('Broker: ')}" for each in found]
    assert column(2) == told


def test_librdkafkas_own() -> None:
    own = re.findall(r"`(_[A-Z_]+)`", GUIDE)
    assert len(own) > 4
    assert [name for name in own if not hasattr(KafkaError, name)] == []


def test_kafka_pythons_and_aiokafkas() -> None:
    assert column(4) == [kafka.errors.for_code(code).__name__ for code in CODES]
    assert column(5) == [aiokafka.errors.for_code(code).__name__ for code in CODES]


def test_javas(tmp_path_factory: pytest.TempPathFactory) -> None:
    try:
        jars = jars_of_kafka(KAFKA[0])
    except Absent as absent:
        pytest.skip(f"Java: {absent}")
    program = tmp_path_factory.mktemp("names") / "Names.java"
    program.write_text(JAVA, encoding="utf-8")
    words = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", str(program)]
    told = subprocess.run(
        [*words, *map(str, CODES)], capture_output=True, text=True, timeout=120, check=True
    )
    assert column(3) == told.stdout.split()


def test_kafkajss() -> None:
    try:
        packages = kafkajs_packages.packages()
    except Absent as absent:
        pytest.skip(f"kafkajs: {absent}")
    node = shutil.which("node")
    assert node is not None
    told = subprocess.run(
        [node, "-e", KAFKAJS], cwd=packages.parent, capture_output=True, timeout=60, check=True
    )
    types = dict(line.split() for line in told.stdout.decode().splitlines())
    for code, cell in zip(CODES, column(1), strict=True):
        name, _, other = cell.partition(" ")
        assert types.get(str(code), name) == (other.strip("()") or name)
