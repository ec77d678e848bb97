"""All targets by name, and how many mutants of each `make test` runs."""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz.broker_targets import Broker, Groups
from tests.fuzz.fuzzer import Target
from tests.fuzz.log_targets import LogFiles, SmallFiles
from tests.fuzz.record_targets import Batches, Compression, Producers
from tests.fuzz.wire_targets import GroupRecords, Requests, Responses, Stream

#: A target may keep a broker: each fuzzer makes its own.
TARGETS: dict[str, Callable[[], Target]] = {
    "requests": Requests,
    "responses": Responses,
    "stream": Stream,
    "group-records": GroupRecords,
    "batches": Batches,
    "compression": Compression,
    "producers": Producers,
    "log-files": LogFiles,
    "small-files": SmallFiles,
    "broker": Broker,
    "groups": Groups,
}
#: Five to ten seconds each.
EXECUTIONS = {
    "requests": 20_000,
    "responses": 20_000,
    "stream": 15_000,
    "group-records": 15_000,
    "batches": 15_000,
    "compression": 15_000,
    "producers": 10_000,
    "log-files": 1_250,
    "small-files": 25_000,
    "broker": 1_500,
    "groups": 1_500,
}
