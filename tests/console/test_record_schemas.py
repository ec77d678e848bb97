"""Records with a schema on the page of records, in a real Chromium."""

from __future__ import annotations

import io
import struct

import fastavro
from selenium import webdriver
from tests.console.conftest import Browser, running_console
from tests.support.schema_registry import FakeRegistry

from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster
from tidelog.records.builder import NewRecord, build_batch
from tidelog.runtime.blocking import BlockingClient

TP = TopicPartition("with-schemas", 0)
FLIGHT = {
    "type": "record",
    "name": "Flight",
    "fields": [{"name": "carrier", "type": "string"}, {"name": "number", "type": "long"}],
}


def test_avro_is_decoded_with_a_registry_and_hex_without(
    driver: webdriver.Chrome, browser: Browser, cluster: LocalCluster
) -> None:
    stream = io.BytesIO()
    record = {"carrier": "<b>AA</b>", "number": 2**53 + 1}
    fastavro.schemaless_writer(stream, fastavro.parse_schema(FLIGHT), record)
    value = struct.pack(">bI", 0, 1) + stream.getvalue()
    unknown = struct.pack(">bI", 0, 9) + b"\x01"
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(TP.topic, 1, 1)
        client.await_topic(TP.topic)
        records = [NewRecord(None, each, 1_800_000_000_000) for each in (value, unknown)]
        client.produce(TP, build_batch(records))
    path = f"/records?topic={TP.topic}&partition=0&from=earliest"
    browser.open(path)
    browser.until_text("start the console with --schema-registry")
    assert value.hex(" ") in browser.text
    registry = FakeRegistry()
    try:
        registry.register("flights-value", FLIGHT)
        with running_console(cluster.bootstrap, "--schema-registry", registry.url) as address:
            decoding = Browser(driver, address)
            decoding.open(path)
            decoding.until_text('"carrier": "<b>AA</b>"')
            assert str(2**53 + 1) in decoding.text and "schema 1" in decoding.text.casefold()
            decoding.until_text("schemas/ids/9 answered 404")
            decoding.shoot("records-with-schemas")
            assert decoding.complaints() == []
    finally:
        registry.close()
