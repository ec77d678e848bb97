"""Our bytes are those of kio and kafka-python, for every message and version that they know.

A message is drawn, encoded by us, read by the oracle: every field must have our value under Kafka's
name, and what the oracle writes for these values must be our bytes again. kio 0.5.0, the last with
the APIs between brokers, lives in a virtual environment of its own, made here when missing.
`oracle_table.txt` records which oracle speaks for which message and version; it may only grow.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.support.draws import for_draws
from tests.support.wire import Case, all_cases, decode, encode, message
from tests.wire_oracles import kafka_python_oracle, kio_oracle

from tidelog.wire import schema
from tidelog.wire.codec import encode_request, encode_response
from tidelog.wire.messages.api_versions import ApiVersionsResponse
from tidelog.wire.registry import API, FIRST_OWN_KEY, GET_REPLICA_LOG_INFO

HERE = Path(__file__).parent
TABLE = HERE / "oracle_table.txt"
OLD_KIO = "kio==0.5.0"
OLD_KIO_ENVIRONMENT = HERE.parent.parent / ".venv-kio05"

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

#: Must be in the table whatever it records: the APIs between brokers have no other oracle.
REQUIRED = {
    f"{message} {version} kio-0.5.0"
    for api, version in (("LeaderAndIsr", 7), ("StopReplica", 4), ("UpdateMetadata", 8))
    for message in (f"{api}Request", f"{api}Response")
}


def recorded() -> list[str]:
    """The lines of the recorded table: message, version, oracle."""
    lines = TABLE.read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def snake(name: str) -> str:
    """Kafka's camel case as kio's module names: LeaderAndIsr becomes leader_and_isr."""
    return "".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_")


class OldKio:
    """A process that runs kio_oracle.py under kio 0.5.0."""

    def __init__(self) -> None:
        python = self.environment()
        self.process = subprocess.Popen(
            [str(python), str(HERE / "kio_oracle.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def environment(self) -> Path:
        """The interpreter that has kio 0.5.0; makes its environment where there is none."""
        python = OLD_KIO_ENVIRONMENT / "bin" / "python"
        folder = os.open(HERE, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)  # one test run at a time makes it
            check = [str(python), "-c", "import kio.serial, kio.schema.leader_and_isr.v7.request"]
            if not python.exists() or subprocess.run(check, check=False).returncode != 0:
                make = [sys.executable, "-m", "venv", "--clear", str(OLD_KIO_ENVIRONMENT)]
                subprocess.run(make, check=True)
                install = [str(python), "-m", "pip", "install", "-q", OLD_KIO]
                subprocess.run(install, check=True)
        finally:
            os.close(folder)
        return python

    def ask(self, **question: Any) -> Any:
        pipe_in, pipe_out = self.process.stdin, self.process.stdout
        assert pipe_in is not None
        assert pipe_out is not None
        pipe_in.write(json.dumps(question) + "\n")
        pipe_in.flush()
        return json.loads(pipe_out.readline())

    @cache  # noqa: B019 - one instance per test run
    def known_versions(self, module: str) -> list[int]:
        known: list[int] = self.ask(known=module)
        return known

    def examine(
        self, module: str, version: int, direction: str, data: bytes
    ) -> tuple[dict[str, Any], bytes]:
        answer = self.ask(module=module, version=version, direction=direction, data=data.hex())
        assert "error" not in answer, answer["error"]
        return answer["values"], bytes.fromhex(answer["data"])

    def close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        self.process.wait(10)


@pytest.fixture(scope="module")
def old_kio() -> Iterator[OldKio]:
    oracle = OldKio()
    yield oracle
    oracle.close()


def is_own(spec: schema.FieldSpec) -> bool:
    """Whether a field is ours and not Kafka's: oracles fail at tags that they do not know."""
    return spec.tag is not None and spec.tag >= FIRST_OWN_KEY


def without_own_fields(value: Any) -> Any:
    """A message with our own fields at their defaults, so that they are not in its bytes."""
    for field in schema.fields_of(type(value)):
        inside = getattr(value, field.name)
        if is_own(field.spec):
            is_list = field.spec.kind == "array" and not field.spec.is_shared_empty
            default = [] if is_list else field.spec.default
            setattr(value, field.name, default)
        elif field.spec.kind == "array" and isinstance(field.spec.element, type):
            for each in inside or ():
                without_own_fields(each)
    return value


def known_to(oracle: str, case: Case, old_kio: OldKio) -> bool:
    """Whether the oracle has this message at this version."""
    module = snake(API[case.api_key].name)
    if oracle == "kio-0.5.0":
        return case.version in old_kio.known_versions(module)
    if oracle == "kio":
        return case.version in kio_oracle.known_versions(module)
    return case.version in kafka_python_oracle.known_versions(case.message.__name__)


def examine(oracle: str, case: Case, data: bytes, old_kio: OldKio) -> tuple[Any, bytes]:
    """The oracle's reading of our bytes, and its bytes for it."""
    module = snake(API[case.api_key].name)
    if oracle == "kio-0.5.0":
        return old_kio.examine(module, case.version, case.direction, data)
    if oracle == "kio":
        return kio_oracle.examine(module, case.version, case.direction, data)
    return kafka_python_oracle.examine(case.message.__name__, case.version, data)


def same(ours: Any, spec: schema.FieldSpec, theirs: Any, version: int) -> bool:
    """Whether an oracle's value is ours."""
    if ours is None:
        return theirs is None
    if spec.kind == "array":
        if len(ours) != len(theirs):
            return False
        pairs = zip(ours, theirs, strict=True)
        if isinstance(spec.element, type):
            return all(same_struct(a, b, version) for a, b in pairs)
        return all(a == b for a, b in pairs)
    if spec.kind == "struct":
        if theirs is None:  # kafka-python's way to say that a tagged struct is absent
            return bool(ours == spec.default)
        return same_struct(ours, theirs, version)
    if spec.kind in ("uuid", "bytes", "records"):
        absent = theirs is None and spec.kind == "uuid"
        return bytes(ours).hex() == ("00" * 16 if absent else theirs["hex"])
    if theirs is None:
        return bool(ours == -1)  # kio's way to say that there is no time
    return type(theirs) is type(ours) and bool(ours == theirs)


def same_struct(ours: Any, theirs: dict[str, Any], version: int) -> bool:
    """Whether the oracle read the same fields under the same names, and no others."""
    left = dict(theirs)
    for field in schema.fields_of(type(ours)):
        if version not in field.spec.versions or is_own(field.spec):
            continue
        plain = field.name.removesuffix("_ms")
        names = (
            field.name,
            plain,
            f"{plain}_",
            plain.replace("kraft", "k_raft"),
            plain.removeprefix("cluster_").removeprefix("topic_"),
        )
        name = next((each for each in names if each in left), None)
        assert name is not None, f"the oracle has no field {field.name}, only {sorted(left)}"
        value = getattr(ours, field.name)
        assert same(value, field.spec, left.pop(name), version), (
            f"{type(ours).__name__}.{field.name}: ours {value!r}, theirs {theirs[name]!r}"
        )
    assert not left, f"the oracle has more fields: {sorted(left)}"
    return True


#: Kafka 4.1 brought it, and no oracle knows it yet: tests/unit/wire has its bytes.
WITHOUT_ORACLE = (GET_REPLICA_LOG_INFO,)
CASES = {f"{case.message.__name__} {case.version}": case for case in all_cases()}


@pytest.mark.parametrize("line", recorded())
def test_the_oracle_reads_and_writes_our_bytes(line: str, old_kio: OldKio) -> None:
    name, version, oracle = line.split()
    case = CASES[f"{name} {version}"]

    def check(draw: Random) -> None:
        sent = without_own_fields(message(draw, case.message, case.version, tame=True))
        if oracle == "kafka-python" and case.message is ApiVersionsResponse:
            sent.error_code = 0  # it reads all others at version 0
        ours = encode(case, sent)
        values, theirs = examine(oracle, case, ours, old_kio)
        assert theirs == ours
        assert same_struct(sent, values, case.version)
        assert decode(case, theirs) == sent

    for_draws(12, line, check)


@pytest.mark.parametrize("line", [line for line in recorded() if line.endswith("kafka-python")])
def test_headers_and_frames_are_kafka_pythons(line: str) -> None:
    name, version, _ = line.split()
    case = CASES[f"{name} {version}"]
    sent = case.message()
    if case.direction == "request":
        theirs = kafka_python_oracle.framed(name, case.version, encode(case, sent), 7, "mé")
        parts = encode_request(case.api_key, case.version, 7, "mé", sent)
    else:
        theirs = kafka_python_oracle.framed(name, case.version, encode(case, sent), 7, "")
        parts = encode_response(case.api_key, case.version, 7, sent)
    assert b"".join(parts) == theirs


def test_the_table_does_not_shrink(old_kio: OldKio, capsys: pytest.CaptureFixture[str]) -> None:
    table = [
        f"{name} {oracle}"
        for name, case in CASES.items()
        for oracle in ("kio", "kio-0.5.0", "kafka-python")
        if known_to(oracle, case, old_kio)
    ]
    with capsys.disabled():
        print("\nmessage, version, oracle")  # noqa: T201
        for name in CASES:
            oracles = [line.split()[2] for line in table if line.startswith(name + " ")]
            print(f"  {name:36} {', '.join(oracles)}")  # noqa: T201
    missing = sorted(set(recorded()) - set(table))
    assert not missing, f"oracles lost: {missing}"
    unrecorded = sorted(set(table) - set(recorded()))
    assert not unrecorded, f"to be added to {TABLE.name}: {unrecorded}"
    assert set(table) >= REQUIRED
    alone = [
        name
        for name, case in CASES.items()
        if case.api_key < FIRST_OWN_KEY
        and case.api_key not in WITHOUT_ORACLE
        and not any(line.startswith(name + " ") for line in table)
    ]
    assert not alone, f"no oracle at all: {alone}"
