"""What an operator asks on a bad day, answered by the pages of the console alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium import webdriver
from tests.console import bad_day
from tests.console.bad_day import BadDay
from tests.console.conftest import Browser, running_console


@pytest.fixture(scope="module")
def day(
    driver: webdriver.Chrome, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[BadDay, Browser]]:
    with (
        bad_day.bad_day(tmp_path_factory.mktemp("bad-day")) as made,
        running_console(made.cluster.bootstrap) as address,
    ):
        browser = Browser(driver, address)
        browser.complaints()
        yield made, browser
        driver.get("about:blank")


def _is_out(row: str) -> bool:
    """Whether a row of the table of replicas says why and since when the follower is out."""
    return row.startswith(f"{bad_day.LAGGARD}\t") and "no fetch" in row and " ago\t" in row


def test_who_leads_partition_3(day: tuple[BadDay, Browser]) -> None:
    _, browser = day
    browser.open(f"/topic?name={bad_day.ORDERS}")
    browser.until(lambda: len(browser.texts("tbody tr")) == 4, "four partitions")
    cells = [each.split("\t") for each in browser.texts("tbody tr")]
    assert [row[2].split()[0] for row in cells if row[0] == "3"] == [str(bad_day.LEADER_OF_THREE)]


def test_why_a_broker_is_out_of_an_isr_and_since_when(day: tuple[BadDay, Browser]) -> None:
    _, browser = day
    browser.open(f"/partition?topic={bad_day.ORDERS}&partition=0")
    browser.until_text("out of sync")
    browser.until(lambda: any(_is_out(row) for row in browser.texts("tr")), "the cause and its age")
    browser.shoot("question-isr")


def test_how_long_the_last_failover_took_and_where_the_time_went(
    day: tuple[BadDay, Browser],
) -> None:
    _, browser = day
    browser.open("/failovers")
    browser.until_text(f"Death of broker {bad_day.DEAD}")
    (text,) = [each for each in browser.texts("article") if f"broker {bad_day.DEAD} " in each]
    assert "led again in" in text and "decide" in text and "The slowest new leader" in text
    assert "detect" in text or "Nothing shows when it died" in text
    browser.shoot("question-failover")


def test_which_group_lags_and_who_holds_it_back(day: tuple[BadDay, Browser]) -> None:
    _, browser = day
    browser.open("/groups")
    browser.until(lambda: browser.texts("tbody tr"), "the groups")
    assert bad_day.GROUP in browser.texts("tbody tr")[0]
    browser.open(f"/group?name={bad_day.GROUP}")
    browser.until_text(f"Held back: {bad_day.ORDERS}-{bad_day.HELD_BACK} has")
    assert bad_day.WORKER in browser.text
    browser.shoot("question-group")


def test_which_disk_is_full_and_what_to_do(day: tuple[BadDay, Browser]) -> None:
    made, browser = day
    browser.open("/disks")
    browser.until_text("full, reads only")
    browser.until_text("make room on the disk")
    assert f"log directory {made.full_directory} of broker {bad_day.FULL} is full" in browser.text
    browser.shoot("question-disk")


def test_which_move_is_stuck(day: tuple[BadDay, Browser]) -> None:
    _, browser = day
    browser.open("/moves")
    browser.until_text(f"the move of {bad_day.ARCHIVE}-0 cannot end: broker {bad_day.GONE} is")
    assert "tidelog reassign cancel" in browser.text
    browser.shoot("question-move")
