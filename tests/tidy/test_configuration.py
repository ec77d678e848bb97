"""A configuration key that is accepted without a warning has an effect somewhere."""

from __future__ import annotations

import dataclasses
import re

from tests.tidy.sources import python_sources

from tidelog.core import topic_config
from tidelog.core.config import BrokerConfig
from tidelog.core.topic_config import TopicConfig

#: Keys without a reader, and why they are accepted all the same.
WITHOUT_READER = {
    "metadata_store": "read by BrokerConfig.embedded_store_directory",
    "zookeeper_connect": "read by BrokerConfig, which refuses it where a store is needed",
    "compression_type": "has one supported value",
    "preallocate": "has one supported value",
    "remote_storage_enable": "has one supported value",
    "segment_jitter_ms": "has one supported value",
}


def attributes_read() -> list[str]:
    """Every `.name` in the package, the declarations of keys apart."""
    found: dict[str, None] = {}
    for source in python_sources(below="src/tidelog/"):
        if not source.path.endswith(("core/config.py", "core/topic_config.py")):
            found.update(dict.fromkeys(re.findall(r"\.([a-z_]+)\b", source.text)))
    return list(found)


def keys(config: type) -> list[str]:
    return [field.name for field in dataclasses.fields(config) if "key" in field.metadata]


def test_every_topic_key_has_a_reader() -> None:
    read = attributes_read()
    assert [key for key in keys(TopicConfig) if key not in read and key not in WITHOUT_READER] == []


def test_every_broker_key_has_a_reader_or_is_the_default_of_a_topic_key() -> None:
    read = [*attributes_read(), *topic_config._BROKER_DEFAULTS.values()]
    assert [
        key for key in keys(BrokerConfig) if key not in read and key not in WITHOUT_READER
    ] == []
