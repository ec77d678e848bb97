"""What commands say is true: addresses, keys without effect, events that are enabled, hints."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.cli import run
from tests.support.client.fake_logs import FakeLogs
from tests.unit.cli.test_commands import Shell

from tidelog.cli.output import compact_json
from tidelog.core.errors import ConfigError
from tidelog.local import layout
from tidelog.runtime.config_files import load_config
from tidelog.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from tidelog.wire.registry import INCREMENTAL_ALTER_CONFIGS


@pytest.fixture
def logs() -> Iterator[FakeLogs]:
    made = FakeLogs()
    made.create("flights", 1)
    yield made
    made.close()


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capfd: Any, logs: FakeLogs) -> Shell:
    return Shell(monkeypatch, capfd, logs.bootstrap)


class TestAddresses:
    def test_one_variable_of_the_environment_names_the_cluster(
        self, logs: FakeLogs, monkeypatch: pytest.MonkeyPatch, capfd: Any
    ) -> None:
        monkeypatch.setenv("TIDELOG_BOOTSTRAP", logs.bootstrap)
        assert run(monkeypatch, "topics", "list", "--timeout", "5") == 0
        assert "flights" in capfd.readouterr().out

    def test_options_count_before_the_environment(
        self, shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capfd: Any
    ) -> None:
        monkeypatch.setenv("TIDELOG_BOOTSTRAP", "127.0.0.1:1")
        assert "flights" in shell("topics", "list")
        monkeypatch.setenv("TIDELOG_BOOTSTRAP", "127.0.0.1:1")
        assert run(monkeypatch, "topics", "list", "--dir", str(tmp_path / "none")) == 1
        assert "none" in capfd.readouterr().err

    @pytest.mark.parametrize("by_variable", [False, True])
    def test_an_address_without_a_port_is_wrong_usage(
        self, monkeypatch: pytest.MonkeyPatch, capfd: Any, by_variable: bool
    ) -> None:
        words = ["topics", "list"]
        if by_variable:
            monkeypatch.setenv("TIDELOG_BOOTSTRAP", "localhost")
        else:
            words += ["-b", "localhost"]
        assert run(monkeypatch, *words) == 2
        said = capfd.readouterr().err
        assert "'localhost' lacks a host or a port; expected host:port" in said
        assert ("TIDELOG_BOOTSTRAP in the environment" in said) is by_variable

    def test_an_address_of_the_environment_is_blamed_where_nothing_answers(
        self, monkeypatch: pytest.MonkeyPatch, capfd: Any, tmp_path: Any
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("TIDELOG_BOOTSTRAP", "127.0.0.1:1")
        assert run(monkeypatch, "topics", "list", "--timeout", "0.2") == 3
        assert capfd.readouterr().err.endswith("; the address is from TIDELOG_BOOTSTRAP\n")
        assert run(monkeypatch, "health", "--timeout", "0.2") == 3
        assert "start the brokers, or correct TIDELOG_BOOTSTRAP" in capfd.readouterr().out
        assert run(monkeypatch, "topics", "list", "--timeout", "0.2", "-b", "127.0.0.1:1") == 3
        assert "TIDELOG_BOOTSTRAP" not in capfd.readouterr().err

    def test_a_message_says_that_the_environment_names_another_cluster(
        self, logs: FakeLogs, monkeypatch: pytest.MonkeyPatch, capfd: Any, tmp_path: Any
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("TIDELOG_BOOTSTRAP", logs.bootstrap)
        words = ("topics", "list", "--timeout", "5")
        assert run(monkeypatch, *words) == 0
        assert capfd.readouterr().err == "", "there is no other cluster"
        here = layout.create(str(tmp_path / "tidelog-cluster"), 1, {}, 1)[1]
        assert run(monkeypatch, *words) == 0
        assert (
            f"this is the cluster at {logs.bootstrap}, which TIDELOG_BOOTSTRAP names, not the one"
            " in tidelog-cluster" in capfd.readouterr().err
        )
        assert run(monkeypatch, *words, "-b", logs.bootstrap) == 0
        assert capfd.readouterr().err == "", "the command names it itself"
        assert run(monkeypatch, "down") == 0
        assert (
            f"TIDELOG_BOOTSTRAP={logs.bootstrap} names another one, and does not count here"
            in capfd.readouterr().err
        )
        monkeypatch.setenv("TIDELOG_BOOTSTRAP", f"localhost:{here.port}")
        assert run(monkeypatch, "down") == 0
        assert "TIDELOG_BOOTSTRAP" not in capfd.readouterr().err


class TestConfigs:
    @pytest.fixture(autouse=True)
    def accepted(self, logs: FakeLogs) -> None:
        def done(request: Any) -> IncrementalAlterConfigsResponse:
            return IncrementalAlterConfigsResponse(
                responses=[
                    AlterConfigsResourceResponse(0, None, each.resource_type, each.resource_name)
                    for each in request.resources
                ]
            )

        logs[1].on(INCREMENTAL_ALTER_CONFIGS, done)

    def test_a_key_without_effect_is_stored_and_not_done(self, shell: Shell) -> None:
        shell("configs", "alter", "--brokers", "--config", "num.network.threads=4")
        assert shell.err == (
            "stored: num.network.threads set to 4 for all brokers; brokers of tidelog store it"
            " without effect\n"
        )
        shell("configs", "alter", "--brokers", "--config", "log.retention.ms=4000")
        assert shell.err == "done: log.retention.ms set to 4000 for all brokers\n"

    def test_the_reason_is_said_of_a_topics_key(self, shell: Shell) -> None:
        shell("configs", "alter", "--topic", "flights", "--config", "preallocate=true")
        assert shell.err == (
            "stored: preallocate set to true for topic 'flights'; preallocate=true has no effect"
            " here: files grow as they are written\n"
        )

    def test_an_empty_value_is_no_hole_in_the_sentence(self, shell: Shell) -> None:
        shell("configs", "alter", "--broker", "1", "--config", "cordoned.log.dirs=")
        assert shell.err == "done: cordoned.log.dirs emptied for broker 1\n"


class TestEvents:
    def test_it_does_not_ask_to_enable_what_is_enabled(self, shell: Shell, logs: FakeLogs) -> None:
        shell("events", "tail", "--exit", code=1)
        assert "tidelog configs alter --brokers -c cluster.events.enable=true" in shell.err
        logs.configs[4, "1"] = {"cluster.events.enable": ("true", 4)}
        shell("events", "tail", "--exit", code=1)
        assert "although cluster.events.enable is true on brokers 1" in shell.err
        assert "configs alter" not in shell.err


class TestSources:
    """A value that cannot be used is blamed on where it was set."""

    @pytest.fixture
    def path(self, tmp_path: Any) -> str:
        made = tmp_path / "server.properties"
        made.write_text("broker.id=1\nmetadata.store=embedded:/m\nlog.retention.ms=5\n")
        return str(made)

    def test_the_environment(self, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TIDELOG_NUM_PARTITIONS", "many")
        with pytest.raises(ConfigError) as raised:
            load_config(path, [])
        assert str(raised.value).startswith(
            "TIDELOG_NUM_PARTITIONS in the environment: num.partitions='many'"
        )

    def test_an_override(self, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TIDELOG_NUM_PARTITIONS", "3")
        with pytest.raises(ConfigError) as raised:
            load_config(path, ["num.partitions=many"])
        assert str(raised.value).startswith("--override num.partitions: num.partitions='many'")

    def test_the_file(self, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TIDELOG_NUM_PARTITIONS", "3")
        made = tmp_path / "server.properties"
        made.write_text("broker.id=1\nlog.retention.ms=soon\n")
        with pytest.raises(ConfigError) as raised:
            load_config(str(made), [])
        assert str(raised.value).startswith(f"{made}: log.retention.ms='soon'")


class TestCompactJson:
    @pytest.fixture(autouse=True)
    def not_compact_for_others(self) -> Iterator[None]:
        yield
        compact_json(False)

    def test_a_document_is_one_line(self, shell: Shell) -> None:
        printed = shell("topics", "list", "-o", "json", "--compact")
        assert printed.count("\n") == 1 and '": ' not in printed
        assert json.loads(printed) == ["flights"]
        assert shell("topics", "list", "-o", "json").count("\n") > 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["sim", "run", "--profile", "defalt", "--seeds", "0"],
            "no profile 'defalt'. Did you mean default or direct? `tidelog sim profiles` lists all",
        ),
        (
            ["sim", "run", "--faults", "crash_leeder", "--seeds", "0"],
            "no fault 'crash_leeder'. Did you mean crash_leader",
        ),
    ],
)
def test_a_mistyped_name_gets_a_hint_and_not_every_name(
    words: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.setattr(sys, "argv", ["tidelog", *words])
    assert run(monkeypatch, *words) == 2
    told = " ".join(capfd.readouterr().err.replace("│", " ").split())
    assert said in told
    assert len(told) < 600
