"""A configuration key that is accepted without a warning has an effect somewhere."""

from __future__ import annotations

import dataclasses
import re

from tests.tidy.sources import ROOT, python_sources

from tidelog.core import topic_config, unsupported
from tidelog.core.config import BrokerConfig, supported_keys
from tidelog.core.config_keys import keys_of
from tidelog.core.config_reference import reference
from tidelog.core.kafka_keys import REFUSED_KEYS, UNSUPPORTED_KEYS
from tidelog.core.topic_config import TopicConfig
from tidelog.core.unsupported import why

#: Keys without a reader, and why they are accepted all the same.
WITHOUT_READER = {
    "zookeeper_connect": "read by BrokerConfig, which makes metadata.store of it",
    "remote_storage_enable": "has one supported value",
    "remote_log_copy_disable": "has one supported value",
    "remote_log_delete_on_disable": "has one supported value",
}


DECLARATIONS = ("core/broker_keys.py", "core/config.py", "core/topic_config.py")


def attributes_read() -> list[str]:
    """Every `.name` in the package, the declarations of keys apart."""
    found: dict[str, None] = {}
    for source in python_sources(below="src/tidelog/"):
        if not source.path.endswith(DECLARATIONS):
            found.update(dict.fromkeys(re.findall(r"\.([a-z0-9_]+)\b", source.text)))
    return list(found)


def keys(config: type) -> list[str]:
    """The attributes of a configuration whose keys have an effect."""
    return [
        field.name
        for field in dataclasses.fields(config)
        if "key" in field.metadata and not field.metadata["key"].without_effect
    ]


def test_every_topic_key_has_a_reader() -> None:
    read = attributes_read()
    assert [key for key in keys(TopicConfig) if key not in read and key not in WITHOUT_READER] == []


def test_every_broker_key_has_a_reader_or_is_the_default_of_a_topic_key() -> None:
    read = [*attributes_read(), *topic_config._BROKER_DEFAULTS.values()]
    assert [
        key for key in keys(BrokerConfig) if key not in read and key not in WITHOUT_READER
    ] == []


def test_the_reference_is_what_the_declarations_say() -> None:
    """Make it again: `tidelog configs reference > docs/configuration.md`."""
    written = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert written == reference()


def test_the_reference_names_every_key() -> None:
    text = reference()
    known = [*supported_keys(), *keys_of(TopicConfig), *REFUSED_KEYS, *UNSUPPORTED_KEYS]
    assert [key for key in known if f"`{key}`" not in text] == []


def test_every_key_without_effect_says_why() -> None:
    assert [key for key in sorted(UNSUPPORTED_KEYS) if why(key) is None] == []


def test_no_reason_is_left_over() -> None:
    unused = [
        prefix
        for prefix, reason in unsupported._REASONS.items()
        if not any(key.startswith(prefix) and why(key) == reason for key in UNSUPPORTED_KEYS)
    ]
    assert unused in ([], ["listener.name."])
