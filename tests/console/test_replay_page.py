"""The page of a simulated run in a real Chromium: steps, filters, two runs, a phone."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select
from tests.console.conftest import PHONE, Browser
from tests.console.test_pages import violations

from tidelog.cli.replay_page import replay_page
from tidelog.sim.job import Job
from tidelog.sim.story.timeline import TimelineRecorder

#: A run that violates, and the mutant that makes it so.
MUTANT, SEED = "tests.support.mutants:bounce_unnoticed", 0
HOSTILE = "<img src=x onerror=document.title='owned'></script><script>document.title='owned'"


def document(job: Job) -> dict[str, Any]:
    """The document of a run."""
    recorders: list[TimelineRecorder] = []
    result = job.run(lambda run: recorders.append(TimelineRecorder(run)))
    return recorders[0].document(result, job.command())


@pytest.fixture(scope="module")
def failing() -> dict[str, Any]:
    found = document(Job(SEED, mutant=MUTANT, profile=profile_of(MUTANT)))
    assert found["violation"]
    return found


def profile_of(mutant: str) -> str:
    from tidelog.sim.mutation import load

    return load(mutant).profile


@pytest.fixture
def page(driver: webdriver.Chrome, tmp_path: Path) -> Any:
    """Open the page of some runs as a file."""
    browser = Browser(driver, "")
    browser.complaints()

    def open_page(runs: list[dict[str, Any]], **how: Any) -> Browser:
        path = tmp_path / "run.html"
        path.write_text(replay_page(runs), encoding="utf-8")
        assert path.stat().st_size <= 5_000_000
        browser.address = path.as_uri()
        browser.open("", **how)
        return browser

    yield open_page
    assert browser.complaints() == []
    driver.get("about:blank")


def now(browser: Browser, number: int = 0) -> str:
    return browser.texts(".now")[number]


def step_of(browser: Browser, number: int = 0) -> tuple[int, int]:
    """The number of the step, and of how many."""
    words = now(browser, number).replace(",", "").split()
    return int(words[1]), int(words[3])


def table(browser: Browser) -> dict[str, list[str]]:
    """The cells of the replicas' table by partition."""
    script = """
        return JSON.stringify([...document.querySelectorAll(".run tbody tr")].map((row) =>
            [...row.children].map((cell) => cell.innerText)));
    """
    rows: list[list[str]] = json.loads(browser.driver.execute_script(script))
    return {name: cells for name, *cells in rows}


def test_a_failing_run_is_stepped_through_with_keys(page: Any, failing: dict[str, Any]) -> None:
    browser = page([failing])
    first, whole = step_of(browser)
    assert first == 1 and whole == len(failing["steps"])
    browser.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_LEFT)
    assert step_of(browser) == (2, whole)
    browser.press("v")
    assert step_of(browser) == (whole, whole)
    assert failing["violation"].partition("\n")[0].partition(" s: ")[2] in now(browser)
    assert browser.texts(".violated") != []
    final = table(browser)
    assert final, "the partitions stand there"
    browser.shoot("replay-violation")
    assert violations(browser) == []
    browser.press("F")
    assert "fault" in browser.texts(".steps li[aria-current] .kind")[0]
    browser.press(Keys.HOME)
    assert step_of(browser) == (1, whole) and table(browser) == {}
    browser.press(Keys.END)
    assert table(browser) == final, "the state is the same by every way to a step"


def test_the_state_of_each_step_is_that_of_the_run(page: Any, failing: dict[str, Any]) -> None:
    """The table at a step has what the changes up to it say, also after a jump."""
    browser = page([failing])
    keys = [tuple(each) for each in failing["keys"]]
    for index in (len(failing["steps"]) // 3, len(failing["steps"]) // 2):
        browser.driver.execute_script(
            "const field = document.querySelector('input[type=range]'); field.value = arguments[0];"
            "field.dispatchEvent(new Event('input'))",
            index,
        )
        state: dict[Any, Any] = {}
        for step in failing["steps"][: index + 1]:
            changes = step[5]
            state |= {
                keys[key]: value for key, value in zip(changes[::2], changes[1::2], strict=True)
            }
        shown = table(browser)
        partitions = {
            name: value for (kind, name, _), value in state.items() if kind == "partition" and value
        }
        assert partitions.keys() <= shown.keys() and partitions
        for name, (leader, epoch, isr, _) in partitions.items():
            assert shown[name][1:3] == [str(epoch), ", ".join(map(str, isr)) or "–"]
            assert leader < 0 or shown[name][0] == str(leader)
            for place, broker in enumerate(failing["brokers"]):
                replica = state.get(("replica", name, broker))
                end = "–" if replica is None else f"{replica[0]:,} / "
                assert shown[name][3 + place].startswith(end)


def test_filters_leave_the_steps_of_a_broker_a_partition_and_kinds(
    page: Any, failing: dict[str, Any]
) -> None:
    browser = page([failing])
    browser.driver.find_element(By.CSS_SELECTOR, "summary").click()
    whole = step_of(browser)[1]
    press_button(browser, "Without messages and operations")
    fewer = step_of(browser)[1]
    kinds = [failing["kinds"][step[1]] for step in failing["steps"]]
    assert fewer == sum(each not in ("message", "operation") for each in kinds) < whole
    broker, subject = (Select(each) for each in browser.all(".filters select"))
    broker.select_by_value("2")
    of_broker = step_of(browser)[1]
    assert 0 < of_broker < fewer
    subject.select_by_value(failing["subjects"][0])
    assert 0 < step_of(browser)[1] < of_broker
    assert {each.strip() for each in browser.texts(".steps .subject")} == {
        f"{failing['subjects'][0]}:"
    }
    browser.driver.find_element(By.CSS_SELECTOR, "input.words").send_keys("no such words")
    browser.until_text("No step has what the filters want.")


def press_button(browser: Browser, label: str) -> None:
    next(each for each in browser.all("button") if each.text == label).click()


def test_two_runs_step_by_time_together_or_alone(page: Any, failing: dict[str, Any]) -> None:
    passing = document(Job(SEED, profile=profile_of(MUTANT)))
    browser = page([failing, passing])
    assert len(browser.all("section.run")) == 2
    press_button(browser, "Last")
    end_us = failing["steps"][-1][0]
    beside = max(n for n, step in enumerate(passing["steps"]) if step[0] <= end_us)
    assert step_of(browser, 1)[0] == beside + 1
    browser.shoot("replay-beside")
    browser.driver.find_element(By.ID, "together").click()
    press_button(browser, "First")
    assert step_of(browser)[0] == 1 and step_of(browser, 1)[0] == beside + 1
    assert violations(browser) == []


def test_the_page_is_accessible_in_the_dark_and_on_a_phone(
    page: Any, failing: dict[str, Any]
) -> None:
    browser = page([failing], size=PHONE, dark=True)
    browser.press("f", "f")
    browser.driver.find_element(By.CSS_SELECTOR, "summary").click()
    browser.shoot("replay-phone-dark")
    assert violations(browser) == []
    script = "return document.documentElement.scrollWidth <= innerWidth"
    assert browser.driver.execute_script(script), "the page is as wide as the phone"


def test_a_text_of_a_run_cannot_be_executed_and_nothing_is_loaded(
    page: Any, failing: dict[str, Any]
) -> None:
    steps = [[*step[:4], HOSTILE, *step[5:]] for step in failing["steps"][:50]]
    browser = page([{**failing, "steps": steps, "violation": HOSTILE, "command": HOSTILE}])
    browser.until_text(HOSTILE)
    assert browser.driver.title == f"Simulated run of seed {SEED} with a mutant"
    assert not browser.all("main img, main script")
    loaded = "return performance.getEntriesByType('resource').length"
    assert browser.driver.execute_script(loaded) == 0
    text = replay_page([failing])
    assert "http://www.w3.org/2000/svg" in text
    assert text.replace("http://www.w3.org/2000/svg", "").count("://") == 0
    assert os.path.basename(__file__) not in text
