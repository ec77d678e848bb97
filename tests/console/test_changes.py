"""Changes in a real Chromium: locked without the token, shown before they are done."""

from __future__ import annotations

from tests.console.conftest import TOKEN, Browser

from tidelog.client.groups import FetchedOffset
from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster
from tidelog.records.builder import NewRecord, build_batch
from tidelog.runtime.blocking import BlockingClient

TP = TopicPartition("changed", 0)
GROUP = "to-reset"


def press(browser: Browser, label: str) -> None:
    """Press the button of the topmost dialog, or of the page."""
    script = """
        const place = [...document.querySelectorAll("dialog[open]")].at(-1) ?? document;
        const buttons = [...place.querySelectorAll("button")];
        const found = buttons.find((each) => each.innerText === arguments[0]);
        found?.click();
        return Boolean(found);
    """
    browser.until(lambda: browser.driver.execute_script(script, label), f"a button {label!r}")


def until_dialog(browser: Browser, text: str) -> None:
    browser.until(lambda: any(text in each for each in browser.texts("dialog[open]")), text)


def test_changes_need_the_token_and_are_shown_before_they_are_done(
    browser: Browser, cluster: LocalCluster
) -> None:
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(TP.topic, 1, 3)
        client.await_topic(TP.topic)
        client.produce(TP, build_batch([NewRecord(None, b"first", 1_800_000_000_000)] * 7))
        client.commit(GROUP, {TP: FetchedOffset(5)})

        browser.open(f"/group?name={GROUP}")
        browser.until_text("Members")
        assert "Reset offsets" not in browser.text
        browser.open(f"/group?name={GROUP}#token={TOKEN}")
        press(browser, "Reset offsets")
        assert TOKEN not in browser.driver.current_url
        until_dialog(browser, "The group must have no members")
        browser.shoot("reset-offsets")
        press(browser, "Show what would be done")
        until_dialog(browser, f"{TP}: 5 to 0")
        assert client.committed(GROUP)[TP].offset == 5
        press(browser, "Reset offsets")
        until_dialog(browser, "Done")
        assert client.committed(GROUP)[TP].offset == 0
        assert "token" not in browser.driver.current_url

        browser.open(f"/partition?topic={TP.topic}&partition=0")
        press(browser, "Write a record")
        until_dialog(browser, "Value")
        script = "document.querySelector('dialog textarea').value = arguments[0]"
        browser.driver.execute_script(script, "by hand")
        press(browser, "Show what would be done")
        until_dialog(browser, "7 bytes would be written")
        press(browser, "Write a record")
        until_dialog(browser, "offset 7")
        assert bytes(client.fetch(TP, 7).records).endswith(b"by hand\x00")


def test_a_wrong_token_changes_nothing(browser: Browser, cluster: LocalCluster) -> None:
    browser.open("/configuration?of=broker&name=1#token=wrong-token-of-this-test")
    browser.driver.refresh()
    press(browser, "Change a key")
    until_dialog(browser, "Without a value")
    script = "document.querySelector('dialog input[name=key]').value = 'log.retention.ms'"
    browser.driver.execute_script(script)
    press(browser, "Show what would be done")
    until_dialog(browser, "the token is not the one")
    assert any("401" in each for each in browser.complaints())
    browser.driver.execute_script("sessionStorage.clear()")


def test_a_plan_of_moves_begins_as_it_was_shown(browser: Browser, cluster: LocalCluster) -> None:
    tp = TopicPartition("planned", 0)
    with BlockingClient(cluster.bootstrap) as client:
        client.create_topic(tp.topic, 1, 1)
        client.await_topic(tp.topic)
        placed = client.metadata([tp.topic]).partition(tp)
        assert placed is not None
        before = placed.replicas
        target = next(each for each in (1, 2, 3) if each not in before)
        browser.open(f"/moves#token={TOKEN}")
        browser.until_text("No partition moves now.")
        press(browser, "Plan moves")
        until_dialog(browser, "The plan is shown before anything moves.")
        script = "document.querySelector(`dialog [name=${arguments[0]}]`).value = arguments[1]"
        for name, value in {"kind": "topic", "brokers": str(target), "topic": tp.topic}.items():
            browser.driver.execute_script(script, name, value)
        browser.shoot("plan-moves")
        press(browser, "Show what would be done")
        until_dialog(browser, f"{tp}: [{before[0]}] to [{target}]")
        unmoved = client.metadata([tp.topic]).partition(tp)
        assert unmoved is not None and unmoved.replicas == before
        press(browser, "Plan moves")
        until_dialog(browser, "1 move began.")

        def has_moved() -> bool:
            found = client.metadata([tp.topic]).partition(tp)
            return found is not None and found.replicas == (target,)

        browser.until(has_moved, "the replica is on the other broker")
