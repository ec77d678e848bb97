"""A coordinator of a kind of its own runs in the shell of all coordinators, beside groups.

It counts: a request adds one to a counter, and a counter that rests for a minute is removed. Its
topic is registered, and nothing else in the broker knows of it.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.broker.coordinator import answered, told
from tests.support.broker.counters import LOADING, NOT_HERE, P_OF_A, REST_MS, CounterBroker
from tests.support.broker.fakes import FakeClock, settle

from tidelog.broker import replicas
from tidelog.core.errors import ErrorCode
from tidelog.records.builder import NewRecord

NONE = ErrorCode.NONE


@told
async def test_it_loads_at_leadership_appends_is_unloaded_and_reloads_the_same_state() -> None:
    broker = CounterBroker(FakeClock())
    assert broker.bump() == (NOT_HERE, 0)
    await broker.lead(1, 0)
    assert [broker.bump() for _ in range(3)] == [(NONE, 1), (NONE, 2), (NONE, 3)]
    before = broker.values
    assert before == {"a": 3}
    await broker.lead(2, 1)
    assert broker.counters.led() == []
    assert broker.bump() == (NOT_HERE, 0)
    await broker.lead(1, 2)
    assert broker.values == before
    assert broker.bump() == (NONE, 4)
    loads = broker.tracer.named("counters_loaded")
    assert [(each["leader_epoch"], each["counters"]) for each in loads] == [(0, 0), (2, 1)]
    assert [each["leader_epoch"] for each in broker.tracer.named("counters_unloaded")] == [0]
    assert broker.groups.led() == [], "the coordinator of groups has another topic"


@told
async def test_the_appends_of_one_turn_of_the_loop_are_one_batch() -> None:
    broker = CounterBroker(FakeClock())
    await broker.lead(1, 0)
    waiting = [broker.send() for _ in range(10)]
    assert broker.counter_log.batches == []
    await settle()
    assert len(broker.counter_log.batches) == 1
    assert [answered(each) for each in waiting] == [(NONE, value) for value in range(1, 11)]


@told
async def test_a_request_is_answered_when_its_record_is_committed() -> None:
    broker = CounterBroker(FakeClock())
    await broker.lead(1, 0, isr=(1, 2))
    waiting = broker.bump()
    assert not waiting.done and broker.values == {}
    end = broker.counter_log.log_end_offset
    role = broker.partition(P_OF_A).role
    role.follower_fetched(2, 102, end, 0, broker.clock.now_ms)
    assert answered(waiting) == (NONE, 1)
    assert broker.values == {"a": 1}


@told
async def test_an_append_that_takes_too_long_still_counts() -> None:
    broker = CounterBroker(FakeClock())
    await broker.lead(1, 0, isr=(1, 2))
    waiting = broker.bump()
    await broker.clock.advance(720)
    assert answered(waiting) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    end = broker.counter_log.log_end_offset
    broker.partition(P_OF_A).role.follower_fetched(2, 102, end, 0, broker.clock.now_ms)
    assert broker.values == {"a": 1}


@told
async def test_whoever_waits_when_the_leadership_ends_is_sent_to_the_next_coordinator() -> None:
    broker = CounterBroker(FakeClock())
    await broker.lead(1, 0, isr=(1, 2))
    waiting = broker.bump()
    (led,) = broker.counters.led()
    assert list(led.timers) == ["a"]
    await broker.lead(2, 1)
    assert answered(waiting) == (NOT_HERE, 0)
    assert led.is_over and led.timers == {}
    await broker.clock.advance(2 * REST_MS)
    assert led.shard.next_number == 1, "no timer outlives the leadership"


@told
async def test_requests_wait_for_the_load_up_to_the_log_end() -> None:
    broker = CounterBroker(FakeClock())
    await broker.lead(2, 0)
    broker.counter_log.put(NewRecord(b"a", b"7", 0))
    await broker.lead(1, 1, isr=(1, 2))
    assert broker.bump() == (LOADING, 0)
    broker.partition(P_OF_A).role.follower_fetched(2, 102, 1, 0, broker.clock.now_ms)
    await broker.clock.advance(0)
    assert broker.values == {"a": 7}


@told
async def test_its_timers_run_over_the_log() -> None:
    broker = CounterBroker(FakeClock())
    await broker.lead(1, 0)
    assert broker.bump() == (NONE, 1)
    await broker.clock.advance(REST_MS - 100)
    assert broker.bump() == (NONE, 2)
    await broker.clock.advance(REST_MS - 100)
    assert broker.values == {"a": 2}
    await broker.clock.advance(200)
    assert broker.values == {}
    assert [record.value for record in broker.counter_log.stored] == [b"1", b"2", None]


@told
async def test_a_recreated_topic_counts_its_leader_epochs_from_the_start() -> None:
    broker = CounterBroker(FakeClock())
    await broker.lead(1, 9)
    assert broker.bump() == (NONE, 1)
    assert await broker.stop(P_OF_A) == 0
    assert broker.bump() == (NOT_HERE, 0)
    await broker.lead(1, 0)
    assert broker.bump() == (NONE, 1)


def test_the_replicas_of_a_broker_name_no_internal_topic() -> None:
    folder = Path(replicas.__file__).parent
    sources = {path.name: path.read_text() for path in folder.rglob("*.py")}
    assert len(sources) > 40
    words = ("CONSUMER_OFFSETS", "TRANSACTION_STATE", "__consumer_offsets", "__transaction_state")
    assert [name for name, text in sources.items() if any(word in text for word in words)] == []
