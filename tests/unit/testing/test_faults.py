"""The language of faults: each word narrows, the last one puts the fault in force."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tidelog.broker.server.interception import Action, Rule
from tidelog.core.errors import ErrorCode
from tidelog.runtime.interception import InterceptionControl, InterceptionDirectory
from tidelog.testing import Fault, Requests, WaitTimeout
from tidelog.testing.faults import Unfinished
from tidelog.wire.registry import FETCH, OFFSET_COMMIT, OFFSET_FETCH


class Directory:
    """Where faults go."""

    def __init__(self, path: Path) -> None:
        self.control = InterceptionControl(str(path))
        self.broker = InterceptionDirectory(str(path))
        self.unfinished = Unfinished()

    def on_request(self, *names: str) -> Requests:
        return Requests.of(
            lambda rule, told: Fault(self.control, rule, told), names, self.unfinished
        )

    @property
    def rules(self) -> list[Rule]:
        return list(self.broker.rules())


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    return Directory(tmp_path)


def test_every_word_is_in_the_rule(directory: Directory) -> None:
    requests = directory.on_request("OffsetCommit", "OffsetFetch").on(1, 2)
    requests = requests.where(topic="t", client_id="c").where(partition=3)
    requests.where(group_id="g").from_brokers().nth(3).after().delay(0.25)
    assert directory.rules == [
        Rule(
            number=0,
            api_keys=(OFFSET_COMMIT, OFFSET_FETCH),
            action=Action.DELAY,
            brokers=(1, 2),
            topic="t",
            partition=3,
            client_id="c",
            group_id="g",
            from_brokers=True,
            first=3,
            times=1,
            after=True,
            delay_ms=250,
        )
    ]


@pytest.mark.parametrize(
    ("narrow", "struck"),
    [
        (lambda all_: all_, [1, 2, 3, 4]),
        (lambda all_: all_.once(), [1]),
        (lambda all_: all_.nth(2), [2]),
        (lambda all_: all_.times(3), [1, 2, 3]),
        (lambda all_: all_.every(2), [2, 4]),
        (lambda all_: all_.once().every(), [1, 2, 3, 4]),
    ],
)
def test_words_for_which_of_them(
    directory: Directory, narrow: Callable[[Requests], Requests], struck: list[int]
) -> None:
    narrow(directory.on_request("Produce")).drop()
    (rule,) = directory.rules
    assert [number for number in range(1, 5) if rule.strikes(number)] == struck


def test_words_for_what_happens(directory: Directory) -> None:
    produce = directory.on_request("Produce")
    for put in (produce.drop, produce.disconnect, lambda: produce.answer("NOT_ENOUGH_REPLICAS")):
        put().remove()
    with produce.answer(19):
        (rule,) = directory.rules
        assert (rule.action, rule.error) == (Action.ANSWER, ErrorCode.NOT_ENOUGH_REPLICAS)
    assert directory.rules == []


def test_a_response_of_the_tests_making_is_in_the_rule_as_json_has_it(directory: Directory) -> None:
    fault = directory.on_request("SyncGroup").answer(assignment=b"\x01\xff", throttle_time_ms=5)
    (rule,) = directory.rules
    assert rule.fields == {"assignment": "01ff", "throttle_time_ms": 5}
    assert "answer(assignment=b'\\x01\\xff', throttle_time_ms=5)" in repr(fault)


def test_a_watch_counts_and_strikes_nothing(directory: Directory) -> None:
    fault = directory.on_request("Produce").watch()
    (rule,) = directory.rules
    directory.broker.matched(rule)
    assert (fault.matched, fault.count, rule.strikes(1)) == (1, 0, False)


def test_a_fault_that_is_removed_twice_ends_once(directory: Directory) -> None:
    fault = directory.on_request("Produce").drop()
    fault.remove()
    directory.on_request("Fetch").drop()
    fault.remove()
    assert [rule.api_keys for rule in directory.rules] == [(FETCH,)]


def test_waiting_for_a_fault_tells_what_it_has_seen(directory: Directory) -> None:
    fault = directory.on_request("Produce").nth(2).drop()
    (rule,) = directory.rules
    directory.broker.matched(rule)
    told = r"not struck 1 times: <on_request\('Produce'\).nth\(2\).drop\(\): 0 of 1 requests>"
    with pytest.raises(WaitTimeout, match=told):
        fault.wait(timeout=0.01)
    directory.broker.struck(rule, "broker 1: Produce 7")
    fault.wait()
    assert fault.requests == ["broker 1: Produce 7"]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda d: d.on_request("Produse"), "no request 'Produse': Produce"),
        (lambda d: d.on_request(), "no API is named"),
        (lambda d: d.on_request("Fetch").nth(0), "0: an integer of at least 1"),
        (lambda d: d.on_request("Fetch").delay(0), "more than 0 seconds"),
        (lambda d: d.on_request("Fetch").answer("NOT_LEADER"), "NOT_LEADER_OR_FOLLOWER"),
        (lambda d: d.on_request("Fetch").answer("NONE"), "NONE is no error"),
        (lambda d: d.on_request("Fetch").on().drop(), r"on\(\) names no broker"),
        (lambda d: d.on_request("Fetch").where().drop(), r"where\(\) names nothing"),
        (
            lambda d: d.on_request("Produce").where(group_id="g").drop(),
            r"where\(group_id=...\) can never match: Produce requests name no group; those of"
            ".* Heartbeat, .*OffsetCommit.* do",
        ),
        (
            lambda d: d.on_request("Heartbeat").where(topic="t").drop(),
            "can never match: Heartbeat requests name no topic; those of .*Fetch.* Produce",
        ),
        (
            lambda d: d.on_request("Metadata").where(topic="t", partition=1).drop(),
            r"where\(partition=...\) can never match: Metadata requests name no partition; those"
            ".* Fetch, .*OffsetFetch, .*Produce.* do",
        ),
        (lambda d: d.on_request("Fetch").where(partition=1), "partition=1.* names no topic"),
        (lambda d: d.on_request("Fetch").answer(), "an error, or else the fields"),
        (lambda d: d.on_request("Fetch").answer(3, session_id=1), "an error, or else the fields"),
        (
            lambda d: d.on_request("Metadata").answer(brokers=[{"hots": "a"}]),
            r"answer\(\) to Metadata: brokers\[0\].hots: no field; Meta.*Broker has.* host",
        ),
        (
            lambda d: d.on_request("Fetch", "Heartbeat").answer(session_id=7),
            r"answer\(\) to Heartbeat: session_id: no field",
        ),
        (
            lambda d: d.on_request("LeaderAndIsr").drop(),
            r"can never match: only brokers send LeaderAndIsr; from_brokers\(\)",
        ),
    ],
)
def test_nonsense_is_named_and_puts_nothing_in_force(
    directory: Directory, wrong: Callable[[Directory], object], told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        wrong(directory)
    assert directory.rules == []


def test_steps_without_an_action_are_known_until_one_follows(directory: Directory) -> None:
    assert directory.unfinished.problem() is None
    produce = directory.on_request("Produce")
    third = produce.where(topic="t").nth(3)
    problem = directory.unfinished.problem() or ""
    assert problem.startswith("on_request('Produce').where(topic='t').nth(3) names no action")
    third.drop()
    assert directory.unfinished.problem() is None
    produce.nth(4).watch()
    assert directory.unfinished.problem() is None
    produce.nth(5)
    assert "nth(5)" in (directory.unfinished.problem() or "")
    directory.unfinished.clear()
    assert directory.unfinished.problem() is None
