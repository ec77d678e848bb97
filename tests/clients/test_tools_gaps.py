"""Kafka's command line tools for what brokers do not have: they say so at once.

Most APIs are answered as by a Kafka 3.9 broker without an authorizer and with PLAINTEXT listeners.
"""

from __future__ import annotations

import pytest
from tests.support.clients.kafka_tools import Tools

from tidelog.broker.apis import cards

_ALTER_USERS = ("--alter", "--entity-type", "users")
#: The words of each tool, and what it prints.
ANSWERED = {
    "list acls": ("kafka-acls", ("--list",), "SecurityDisabledException"),
    "add acl": (
        "kafka-acls",
        ("--add", "--allow-principal", "User:a", "--operation", "Read", "--topic", "t"),
        "SecurityDisabledException",
    ),
    "describe transaction": (
        "kafka-transactions",
        ("describe", "--transactional-id", "nobody"),
        "authorization failure",
    ),
    "list delegation tokens": (
        "kafka-delegation-tokens",
        ("--describe", "--command-config", "/dev/null"),
        "DelegationTokenDisabledException|Delegation Token requests are not allowed",
    ),
    "set quota": (
        "kafka-configs",
        (*_ALTER_USERS, "--entity-default", "--add-config", "producer_byte_rate=1024"),
        "brokers enforce no quotas",
    ),
    "set scram": (
        "kafka-configs",
        (*_ALTER_USERS, "--entity-name", "a", "--add-config", "SCRAM-SHA-256=[password=secret]"),
        "the listener is PLAINTEXT",
    ),
}
#: What is not there is listed as nothing, without an error.
EMPTY = {
    "list transactions": ("kafka-transactions", ("list",)),
    "describe quotas and scram": ("kafka-configs", ("--describe", "--entity-type", "users")),
}


@pytest.mark.parametrize("case", ANSWERED)
def test_a_tool_shows_the_brokers_refusal(tools: Tools, server: tuple[str, str], case: str) -> None:
    tool, words, expected = ANSWERED[case]
    told = tools.run(tool, *server, *words, fails=None)
    assert any(text in told for text in expected.split("|")), told


@pytest.mark.parametrize("case", EMPTY)
def test_a_tool_lists_nothing(tools: Tools, server: tuple[str, str], case: str) -> None:
    tool, words = EMPTY[case]
    told = tools.run(tool, *server, *words)
    assert "Exception" not in told


def test_a_tool_names_what_is_not_served(tools: Tools, server: tuple[str, str]) -> None:
    """Controllers of KRaft alone answer DescribeQuorum."""
    assert 55 not in cards()
    told = tools.run("kafka-metadata-quorum", *server, "describe", "--status", fails=None)
    assert "does not support DESCRIBE_QUORUM" in told


def test_levels_of_loggers_are_shown_and_set(tools: Tools, server: tuple[str, str]) -> None:
    loggers = ("--entity-type", "broker-loggers", "--entity-name", "1")
    words = ("--alter", "--add-config", "kafka.request.logger=WARN")
    tools.run("kafka-configs", *server, *words, *loggers)
    assert "kafka.request.logger=WARN" in tools.run(
        "kafka-configs", *server, "--describe", *loggers
    )
