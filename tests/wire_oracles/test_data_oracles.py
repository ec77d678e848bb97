"""Structs behind their version: our bytes are those of kio and of kafka-python."""

from __future__ import annotations

from importlib.util import find_spec
from random import Random

import pytest
from tests.support.draws import for_draws
from tests.support.wire import VERSIONED, DataCase, data_cases
from tests.wire_oracles import kafka_python_oracle, kio_oracle
from tests.wire_oracles.test_wire_oracles import same_struct, snake

from tidelog.wire.data.consumer_protocol import ASSIGNMENT, SUBSCRIPTION

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

CONSUMER_PROTOCOL = [case for case in data_cases() if case.versioned in (SUBSCRIPTION, ASSIGNMENT)]

#: Without an oracle: kio generates Kafka's client definitions only, and kafka-python reads no
#: internal topic. Their bytes are written out in tests/unit/wire/test_wire_data.py.
ALONE = {"OffsetCommitKey", "OffsetCommitValue", "GroupMetadataKey", "GroupMetadataValue"}


@pytest.mark.parametrize("case", CONSUMER_PROTOCOL, ids=str)
@pytest.mark.parametrize("oracle", ["kio", "kafka-python"])
def test_the_oracle_reads_and_writes_our_bytes(case: DataCase, oracle: str) -> None:
    versioned, version = case

    def check(draw: Random) -> None:
        sent = case.draw(draw)
        ours = versioned.encode(sent, version)
        if oracle == "kio":
            values, theirs = kio_oracle.examine_data(snake(versioned.name), version, ours)
        else:
            values, theirs = kafka_python_oracle.examine_data(versioned.name, version, ours)
        assert theirs == ours
        assert same_struct(sent, values, version)

    for_draws(25, f"{oracle} {case}", check)


def test_those_without_an_oracle_have_none_still() -> None:
    for versioned in VERSIONED:
        known = find_spec(f"kio.schema.{snake(versioned.name)}") is not None
        known = known or kafka_python_oracle.message_class(versioned.name) is not None
        assert known == (versioned.name not in ALONE), versioned.name
