"""The console's pages in a real Chromium: what they show, keys, themes, phones, accessibility."""

from __future__ import annotations

import json
from importlib import resources
from urllib.parse import quote

import pytest
from selenium.webdriver.common.keys import Keys
from tests.console.conftest import (
    HOSTILE_GROUP,
    HOSTILE_VALUE,
    PHONE,
    TOPIC,
    Browser,
)

from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster
from tidelog.records.builder import NewRecord, build_batch
from tidelog.runtime.blocking import BlockingClient

#: Each page's address and a text that it must show.
PAGES = {
    "cluster": ("/", "Brokers"),
    "topics": ("/topics", TOPIC),
    "topic": (f"/topic?name={TOPIC}", "Partitions"),
    "partition": (
        f"/partition?topic={TOPIC}&partition=0",
        "The topic or the partition was created.",
    ),
    "groups": ("/groups", "billing"),
    "group": ("/group?name=billing", "480"),
    "moves": ("/moves", "No partition moves now."),
    "disks": ("/disks", "healthy"),
    "records": (f"/records?topic={TOPIC}&partition=0&from=earliest", "plain text"),
    "configuration": ("/configuration?of=broker&name=1&q=min.insync", "min.insync.replicas"),
    "events": ("/events", "created"),
    "failovers": ("/failovers", "Failovers"),
}
#: axe-core, as the package of its Python binding has it.
AXE = (resources.files("axe_selenium_python") / "node_modules/axe-core/axe.min.js").read_text()


def violations(browser: Browser) -> list[str]:
    """What axe-core finds on the page, as rule, impact and places.

    The bundled version knows no `div` in a `dl`, which HTML allows: its rule `dlitem` is off.
    """
    browser.driver.execute_script(AXE)
    script = """
        const done = arguments[0];
        const rules = {dlitem: {enabled: false}};
        axe.run(document, {rules}).then((found) =>
            done(JSON.stringify(found.violations.map((each) =>
                `${each.id} (${each.impact}): ${each.nodes.map((node) => node.html)}`))));
    """
    browser.driver.set_script_timeout(60)
    found: list[str] = json.loads(browser.driver.execute_async_script(script))
    return found


@pytest.mark.parametrize("name", PAGES)
def test_each_page_shows_the_cluster_and_is_accessible(browser: Browser, name: str) -> None:
    path, text = PAGES[name]
    browser.open(path)
    browser.until_text(text)
    browser.shoot(name)
    assert violations(browser) == []


@pytest.mark.parametrize("name", ["cluster", "partition", "records"])
def test_pages_are_accessible_in_the_dark_and_on_a_phone(browser: Browser, name: str) -> None:
    path, text = PAGES[name]
    browser.open(path, PHONE, dark=True)
    browser.until_text(text)
    browser.shoot(f"{name}-phone-dark")
    assert violations(browser) == []
    script = "return document.documentElement.scrollWidth <= innerWidth"
    assert browser.driver.execute_script(script), "the page is as wide as the phone"


def test_records_are_found_by_a_place_in_json(browser: Browser) -> None:
    browser.open(f"/records?topic={TOPIC}&partition=0&from=earliest")
    browser.until_text("plain text")
    browser.all("input[name=json]")[0].send_keys("$.delay >= 3", Keys.ENTER)
    browser.until(lambda: len(browser.texts("tr.record")) == 1, "the record with this delay")
    assert "JFK" in browser.text and "json=" in browser.driver.current_url
    browser.all("input[name=json]")[0].clear()
    browser.all("input[name=json]")[0].send_keys("$.delay is 3", Keys.ENTER)
    browser.until_text("a place and a condition expected")
    assert any("400" in each for each in browser.complaints())


def test_a_table_is_filtered_and_opened_with_keys_and_back_leads_back(browser: Browser) -> None:
    browser.open("/topics?internal=1")
    browser.until_text(TOPIC)
    browser.press("/")
    browser.press(*TOPIC[:4])
    browser.until(lambda: browser.texts("tbody tr a.row") == [TOPIC], "one topic is left")
    browser.until(lambda: f"q={TOPIC[:4]}" in browser.driver.current_url, "the filter is linked")
    browser.press(Keys.ESCAPE)
    browser.press("j")
    browser.press(Keys.ENTER)
    browser.until_text("min.insync.replicas")
    assert browser.driver.current_url.endswith(f"/topic?name={TOPIC}")
    browser.driver.back()
    browser.until(lambda: browser.texts("tbody tr a.row") == [TOPIC], "the filter is kept")
    browser.press("g", "g")
    browser.until_text("billing")


def test_a_column_is_sorted_by_its_button(browser: Browser) -> None:
    browser.open(f"/topic?name={TOPIC}")
    browser.until(lambda: len(browser.texts("tbody tr")) == 3, "three partitions")
    button = next(each for each in browser.all("th button") if "Partition" in each.text)
    button.click()
    browser.until(lambda: browser.texts("tbody tr a.row") == ["2", "1", "0"], "descending")
    assert browser.all("th[aria-sort=descending]")


def test_a_partition_moves_while_it_is_looked_at(browser: Browser, cluster: LocalCluster) -> None:
    browser.open(f"/partition?topic={TOPIC}&partition=2")
    browser.until(lambda: browser.texts(".lane-end") == ["0", "0", "0"], "three empty replicas")
    with BlockingClient(cluster.bootstrap) as client:
        records = [NewRecord(None, b"x", 1_800_000_000_000)] * 1_234
        client.produce(TopicPartition(TOPIC, 2), build_batch(records))
    browser.until(lambda: browser.texts(".lane-end") == ["1,234"] * 3, "three replicas have all")


def test_a_change_of_a_page_moves_meters_and_keeps_what_was_typed(browser: Browser) -> None:
    browser.open("/disks")
    browser.driver.set_script_timeout(60)
    script = """
        const done = arguments[0];
        import("/static/dom.js").then(({h, morph}) => {
            const made = (value) => h("p", null, h("meter", {value}), h("input", {value}));
            const old = made("0.25");
            old.children[1].value = "typed";
            morph(old, made("0.75"));
            done([...old.children].map((each) => String(each.value)));
        });
    """
    assert browser.driver.execute_async_script(script) == ["0.75", "typed"]


def test_ages_grow_although_no_reading_comes(browser: Browser, cluster: LocalCluster) -> None:
    # Brokers that were there before the controller have no event of their registration.
    with BlockingClient(cluster.bootstrap) as client:
        metadata = client.metadata([TOPIC])
    cluster.restart(next(each for each in metadata.brokers if each != metadata.controller_id))
    cluster.await_full_isrs()
    browser.open("/")
    browser.until(lambda: browser.texts("td time") != [], "the events of the sessions are read")
    old = browser.texts("td time")
    assert all(each.endswith("ago") for each in old)
    browser.until(lambda: browser.texts("td time") != old, "the sessions get older")


def test_names_and_records_that_are_html_stay_text(browser: Browser) -> None:
    browser.open(f"/group?name={quote(HOSTILE_GROUP, safe='')}")
    browser.until_text("Members")
    assert browser.texts("h1") == [HOSTILE_GROUP]
    browser.open(f"/records?topic={TOPIC}&partition=0&from=earliest")
    browser.until_text(HOSTILE_VALUE.decode())
    assert "ff fe 00 01" in browser.text and '"origin": "JFK"' in browser.text
    assert browser.driver.title != "owned" and not browser.all("main script, main img, main b")


def test_what_does_not_exist_is_a_sentence(browser: Browser) -> None:
    browser.open("/topic?name=no-such")
    browser.until_text("There is no topic 'no-such' in this cluster now.")
    browser.open(f"/records?topic={TOPIC}&partition=99")
    browser.until_text("There is no partition flights-99")


def test_a_broker_that_dies_while_viewed_is_explained(
    browser: Browser, cluster: LocalCluster
) -> None:
    """Last of this file: the broker comes back, but its leaderships have moved."""
    with BlockingClient(cluster.bootstrap) as client:
        metadata = client.metadata([TOPIC])
    # A controller cannot report its own death; the broker that dies is another one.
    number, leader = next(
        (each.partition, each.leader)
        for each in metadata.topics[TOPIC].partitions.values()
        if each.leader != metadata.controller_id
    )
    browser.open(f"/partition?topic={TOPIC}&partition={number}")
    browser.until_text("in sync")
    cluster.kill(leader)
    browser.until(lambda: "session loss" in " ".join(browser.texts(".because")), "the cause stands")
    browser.until_text("not registered")
    browser.shoot("partition-without-its-leader")
    browser.open("/failovers")
    browser.until_text(f"Death of broker {leader}")
    browser.shoot("failovers-after-a-kill")
    browser.open("/")
    browser.until_text("degraded")
    browser.shoot("cluster-degraded")
    assert violations(browser) == []
    cluster.start(leader)
    browser.until_text("healthy")
