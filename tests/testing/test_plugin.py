"""The plugin as pytest's users meet it: options, failures, interruptions, parallel workers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tidelog.local.processes import ProcessIdentity

pytest_plugins = ["pytester"]

#: A run of pytest inside of a test, brokers and all.
PATIENCE_S = 120.0


@pytest.fixture(autouse=True)
def no_caches(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\naddopts = -p no:cacheprovider --strict-markers\n")


def run(pytester: pytest.Pytester, *words: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess(*words, timeout=PATIENCE_S)


def test_nothing_is_loaded_before_a_cluster_is_asked_for() -> None:
    listing = (
        "import sys, tidelog.testing.plugin;"
        " print([name for name in sys.modules if name.startswith('tidelog')])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", listing], check=True, capture_output=True, text=True
    ).stdout
    assert loaded == "['tidelog', 'tidelog.testing', 'tidelog.testing.plugin']\n"


def test_fixtures_and_marker_are_listed(pytester: pytest.Pytester) -> None:
    fixtures = run(pytester, "--fixtures", "-v").stdout.str()
    for name in ("", "_module", "_session", "_factory"):
        assert f"tidelog_cluster{name}" in fixtures
    assert "kafka_bootstrap" in fixtures
    assert "@pytest.mark.tidelog(brokers=3, config={}" in run(pytester, "--markers").stdout.str()


def test_ini_options_say_what_cluster_it_is_and_how_long_it_lives(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeini(
        """
        [pytest]
        tidelog_scope = session
        tidelog_brokers = 1
        tidelog_config =
            num.partitions=5
            auto.create.topics.enable=false
        """
    )
    pytester.makepyfile(
        """
        seen = []

        def test_first(tidelog_cluster, kafka_bootstrap):
            seen.append(kafka_bootstrap)
            assert tidelog_cluster.spec.config["num.partitions"] == "5"
            tidelog_cluster.kill(1)

        def test_second(kafka_bootstrap, tidelog_cluster, tidelog_cluster_module):
            assert seen == [kafka_bootstrap]
            assert tidelog_cluster.controller() == 1
            assert tidelog_cluster_module.bootstrap != kafka_bootstrap
        """
    )
    run(pytester).assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("ini", "told"),
    [
        ("tidelog_scope = forever", "*one of function, class, module, package, session expected*"),
        ("tidelog_workers = all", "*tidelog_workers = all: own or shared expected*"),
        ("tidelog_environment = A", "*tidelog_environment needs tidelog_scope = session*"),
        ("tidelog_brokers = many", "*tidelog_brokers = many: an integer of at least 1 expected*"),
        ("tidelog_config = nonsense", "*tidelog_config: 'nonsense': key=value expected*"),
    ],
)
def test_an_ini_option_that_means_nothing_is_named(
    pytester: pytest.Pytester, ini: str, told: str
) -> None:
    pytester.makeini(f"[pytest]\n{ini}\n")
    pytester.makepyfile("def test_it(tidelog_cluster): pass")
    result = run(pytester)
    assert result.ret != 0
    at_start = any(word in ini for word in ("scope", "workers", "environment"))
    (result.stderr if at_start else result.stdout).fnmatch_lines([told])


def test_a_marker_that_means_nothing_is_named(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.tidelog(borkers=3)
        def test_misspelt(tidelog_cluster): pass

        @pytest.mark.tidelog(3)
        def test_without_a_name(tidelog_cluster): pass
        """
    )
    result = run(pytester)
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(["*'borkers' is none of brokers, config, log_dirs, store, port*"])
    result.stdout.fnmatch_lines(["*keywords expected: tidelog(brokers=3,*"])


def test_a_marker_that_comes_too_late_is_an_error(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ntidelog_scope = session\ntidelog_brokers = 1\n")
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.tidelog(brokers=1)
        def test_as_it_is(tidelog_cluster): pass

        @pytest.mark.tidelog(brokers=3)
        def test_otherwise(tidelog_cluster): pass
        """
    )
    result = run(pytester)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(
        ["*on test_otherwise has no effect: its cluster, tidelog_cluster, is shared*"]
    )


def test_a_marker_on_a_test_of_a_shared_fixture_is_an_error(pytester: pytest.Pytester) -> None:
    """Of a function or class for a module's cluster, of a module for the session's."""
    pytester.makeini("[pytest]\ntidelog_brokers = 1\n")
    pytester.makepyfile(
        """
        import pytest

        ran = []

        @pytest.mark.tidelog(brokers=2)
        def test_of_the_module(tidelog_cluster_module): ran.append("module")

        @pytest.mark.tidelog(config={"num.partitions": 3})
        class TestOfAll:
            def test_it(self, tidelog_cluster_session): ran.append("session")

        @pytest.mark.tidelog(brokers=2)
        def test_that_has_its_own(tidelog_cluster, tidelog_cluster_session):
            assert tidelog_cluster.brokers == (1, 2)
            assert tidelog_cluster_session.brokers == (1,)

        def test_that_nothing_else_ran(): assert ran == []
        """
    )
    result = run(pytester)
    result.assert_outcomes(passed=2, errors=2)
    result.stdout.fnmatch_lines_random(
        [
            "*on test_of_the_module has no effect: its cluster, tidelog_cluster_module, is*",
            "*on test_it has no effect: its cluster, tidelog_cluster_session, is shared*",
        ]
    )


def test_a_misspelt_key_is_an_error_wherever_it_is_given(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from tidelog.testing import Cluster

        @pytest.mark.tidelog(config={"num.partitons": 3})
        def test_marker(tidelog_cluster): pass

        key = {"retention.ms": 1}

        @pytest.mark.parametrize("tidelog_cluster", [{"config": key}], indirect=True)
        def test_parameter(tidelog_cluster): pass

        def test_factory(tidelog_cluster_factory):
            tidelog_cluster_factory(brokers=1, config={"autocreate.topics.enable": True})

        def test_without_a_fixture(tmp_path):
            with pytest.raises(ValueError, match="did you mean min.insync.replicas?"):
                Cluster(str(tmp_path), 1, config={"min.insync.replica": 1})
        """
    )
    result = run(pytester)
    result.assert_outcomes(passed=1, failed=1, errors=2)
    result.stdout.fnmatch_lines_random(
        [
            "*config has 'num.partitons', which is no key of*; did you mean num.partitions[?]",
            "*config has 'retention.ms', which is no key*; did you mean log.retention.ms[?]",
            "*config has 'autocreate.topics.enable'*; did you mean auto.create.topics.enable[?]",
        ]
    )


def test_requests_without_an_action_fail_the_test(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ntidelog_brokers = 1\n")
    pytester.makepyfile(
        """
        def test_nothing_behind(tidelog_cluster_session):
            tidelog_cluster_session.on_request("Produce").nth(3)

        def test_one_of_two(tidelog_cluster_session):
            produces = tidelog_cluster_session.on_request("Produce").where(topic="t")
            produces.nth(3).drop()
            produces.nth(4)

        def test_all_have_one(tidelog_cluster_session):
            produces = tidelog_cluster_session.on_request("Produce").where(topic="t")
            produces.nth(3).drop()
            produces.nth(4).after().disconnect()
        """
    )
    result = run(pytester)
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines_random(
        [
            "on_request('Produce').nth(3) names no action for its requests*",
            "on_request('Produce').where(topic='t').nth(4) names no action*",
        ]
    )


def test_a_failure_shows_the_cluster_and_what_the_test_printed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.tidelog(brokers=2)
        def test_it(tidelog_cluster):
            print("said by the test")
            tidelog_cluster.create_topic("orders")
            tidelog_cluster.on_request("Produce").nth(2).drop()
            tidelog_cluster.kill(2)
            assert tidelog_cluster.brokers == ()

        def test_that_uses_no_cluster():
            assert False
        """
    )
    result = run(pytester)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines_random(
        [
            "*- tidelog cluster 127.0.0.1:*,127.0.0.1:* -*",
            "brokers: 1 running*, 2 stopped*",
            "  orders-0: leader *",
            "fault: <on_request('Produce').nth(2).drop(): 0 of 0 requests>",
            "broker 1, last * lines:",
            "said by the test",
        ]
    )
    assert result.stdout.str().count("- tidelog cluster") == 1


def test_failures_end_where_the_test_called(pytester: pytest.Pytester) -> None:
    """No frame of the kit is shown, unless the error is the kit's own."""
    pytester.makeini("[pytest]\ntidelog_brokers = 1\ntidelog_scope = session\n")
    pytester.makepyfile(
        """
        def test_timeout(tidelog_cluster):
            tidelog_cluster.wait_for(under_replicated=9, timeout=0)

        def test_refused(tidelog_cluster):
            tidelog_cluster.on_request("Produse")

        def test_of_the_cluster(tidelog_cluster):
            tidelog_cluster.create_topic("t")
            tidelog_cluster.create_topic("t")

        def test_own_function(tidelog_cluster):
            tidelog_cluster.wait_for(lambda status: status.nonsense)

        def test_a_fault_of_the_kit(tidelog_cluster, monkeypatch):
            monkeypatch.setattr(tidelog_cluster.local, "_children", None)
            tidelog_cluster.kill(1)
        """
    )
    result = run(pytester, "--tb=short", "-p", "no:randomly", "-rN")
    result.assert_outcomes(failed=5)
    *shown, of_the_kit = re.split(r"_+ test_\w+ _+", result.stdout.str())[1:]
    named = re.compile(r"^(\S+\.py):\d+: in ", re.MULTILINE)
    assert [len(named.findall(text)) for text in shown] == [1, 1, 1, 2]
    assert "tidelog/" not in "".join(path for text in shown for path in named.findall(text))
    assert any(path.endswith("local/cluster.py") for path in named.findall(of_the_kit))


def test_workers_have_a_cluster_each(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ntidelog_brokers = 1\n")
    pytester.makepyfile(
        """
        import os, pathlib

        def use(cluster):
            worker = os.environ["PYTEST_XDIST_WORKER"]
            pathlib.Path(f"{worker}.txt").write_text(cluster.bootstrap)
            assert worker == "gw0", "shown"

        def test_a(tidelog_cluster_session): use(tidelog_cluster_session)
        def test_b(tidelog_cluster_session): use(tidelog_cluster_session)
        """
    )
    result = run(pytester, "-n", "2", "--dist", "each")
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["*- tidelog cluster 127.0.0.1:*"])
    used = [(pytester.path / f"gw{number}.txt").read_text() for number in range(2)]
    assert used[0] != used[1]


def test_workers_share_a_cluster_when_asked(pytester: pytest.Pytester) -> None:
    pytester.makeini(
        "[pytest]\ntidelog_brokers = 1\ntidelog_scope = session\ntidelog_workers = shared\n"
        "tidelog_environment = KAFKA_OF_ALL\n"
    )
    pytester.makepyfile(
        """
        import os, pathlib, pytest
        from confluent_kafka.admin import AdminClient
        from tidelog.local import LocalClusterError

        def test_it(tidelog_cluster, tidelog_cluster_session, tidelog_cluster_factory):
            cluster = tidelog_cluster
            assert cluster is tidelog_cluster_session
            assert cluster.bootstrap == os.environ["KAFKA_OF_ALL"]
            worker = os.environ["PYTEST_XDIST_WORKER"]
            pathlib.Path(f"{worker}.txt").write_text(cluster.bootstrap)
            topic = cluster.topic()
            own = cluster.on_request("Metadata").where(topic=topic).once().delay(0.01)
            AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(topic, timeout=30)
            assert own.count == 1
            with pytest.raises(LocalClusterError, match=r"share this cluster.*kill\\(1\\) would"):
                cluster.kill(1)
            with pytest.raises(LocalClusterError, match="share this cluster.*or group_id must"):
                cluster.on_request("Produce").drop()
            with tidelog_cluster_factory(brokers=1) as own:
                own.kill(1)
            assert worker == "gw0", "shown"
        """
    )
    result = run(pytester, "-n", "2", "--dist", "each")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["E*shown*", "*- tidelog cluster 127.0.0.1:*"])
    used = [(pytester.path / f"gw{number}.txt").read_text() for number in range(2)]
    assert used[0] == used[1]


def test_variables_have_the_address_before_anything_is_imported(pytester: pytest.Pytester) -> None:
    pytester.makeini(
        "[pytest]\ntidelog_brokers = 2\ntidelog_scope = session\ntidelog_environment = A\n  B\n"
    )
    pytester.makeconftest("import os; SETTING = os.environ['A']")
    pytester.makepyfile(
        """
        import os, conftest

        def test_it(kafka_bootstrap):
            assert [conftest.SETTING, os.environ["B"]] == [kafka_bootstrap] * 2
        """
    )
    run(pytester).assert_outcomes(passed=1)


HANGING = """
    import json, os, pathlib, time

    def test_it(tidelog_cluster):
        pids = [broker.pid for broker in tidelog_cluster.status().brokers]
        tidelog_cluster.pause(2)
        pathlib.Path("pids.tmp").write_text(json.dumps(pids))
        os.rename("pids.tmp", "pids")
        while True:
            time.sleep(0.1)
"""


def await_file(path: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert time.monotonic() < deadline, f"no {path}"
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_runs_on_when_the_tests_are_ended(
    pytester: pytest.Pytester, number: signal.Signals
) -> None:
    """Not even a broker that is paused, nor when pytest has no time to clean up."""
    pytester.makepyfile(HANGING)
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
        cwd=pytester.path,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTEST_DEBUG_TEMPROOT": str(pytester.path)},
        # Programs in the background of a shell begin with it ignored, and pass that on.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    try:
        await_file(pytester.path / "pids")
        pids = json.loads((pytester.path / "pids").read_text())
        brokers = [ProcessIdentity.of(pid) for pid in pids]
        process.send_signal(number)
        assert process.wait(PATIENCE_S) != 0
        assert len(brokers) == 3
        assert [each is None or each.await_end(PATIENCE_S) for each in brokers] == [True] * 3
    finally:
        process.kill()
        process.wait()


def test_nothing_runs_on_when_the_first_failure_ends_the_tests(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import json, pathlib

        def test_it(tidelog_cluster_session):
            pids = [broker.pid for broker in tidelog_cluster_session.status().brokers]
            pathlib.Path("pids").write_text(json.dumps(pids))
            assert False

        def test_that_is_not_reached():
            assert False
        """
    )
    run(pytester, "-x").assert_outcomes(failed=1)
    pids = json.loads((pytester.path / "pids").read_text())
    assert [ProcessIdentity.of(pid) for pid in pids] == [None] * 3
