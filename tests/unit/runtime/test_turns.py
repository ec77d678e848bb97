"""What is called back first in every turn of the real loop."""

from __future__ import annotations

import asyncio

from tidelog.runtime.turns import TurnSelector


def test_the_callback_comes_before_the_timers_and_events_of_its_turn() -> None:
    turns = TurnSelector()
    seen: list[str] = []

    async def story() -> None:
        loop = asyncio.get_running_loop()
        turns.on_turn(lambda: seen.append("turn"))
        done = loop.create_future()
        loop.call_later(0.01, lambda: seen.append("timer"))
        loop.call_later(0.02, done.set_result, None)
        await done

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(turns)) as runner:
        runner.run(story())
    assert seen[seen.index("timer") - 1] == "turn"
    assert seen[0] == "turn"
