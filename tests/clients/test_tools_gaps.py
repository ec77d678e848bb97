"""Kafka's command line tools for what brokers do not serve: they say so at once, with its name."""

from __future__ import annotations

import pytest
from tests.clients.java.tools import Tools

from tidelog.broker.apis import handlers

#: Of each tool: its words, the API that it would need, and how Kafka's clients call that.
GAPS = {
    "kafka-acls": (("--list",), 29, "DESCRIBE_ACLS"),
    "kafka-transactions": (("list",), 66, "LIST_TRANSACTIONS"),
    "kafka-delegation-tokens": (
        ("--describe", "--command-config", "/dev/null"),
        41,
        "DESCRIBE_DELEGATION_TOKEN",
    ),
    "kafka-metadata-quorum": (("describe", "--status"), 55, "DESCRIBE_QUORUM"),
    "kafka-configs": (("--describe", "--entity-type", "users"), 48, "DESCRIBE_CLIENT_QUOTAS"),
}


@pytest.mark.parametrize("tool", GAPS)
def test_a_tool_names_what_is_not_served(tools: Tools, server: tuple[str, str], tool: str) -> None:
    words, api_key, name = GAPS[tool]
    assert api_key not in handlers(), "it is served now: test what it does"
    assert f"does not support {name}" in tools.run(tool, *server, *words, fails=None)


def test_levels_of_loggers_are_refused_with_the_reason(
    tools: Tools, server: tuple[str, str]
) -> None:
    words = ("--describe", "--entity-type", "broker-loggers", "--entity-name", "1")
    told = tools.run("kafka-configs", *server, *words, fails=None)
    assert "levels of loggers are not" in told
