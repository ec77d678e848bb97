"""A cluster, its console, and a real Chromium that looks at it; one of each for all tests here.

Chromium and its driver come from the system (Debian's `chromium` and `chromium-driver`). Where they
are missing, the tests are skipped with the reason. With TIDELOG_SCREENSHOTS=DIRECTORY, the pages
that tests have opened are left there as PNG files.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import JavascriptException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tidelog.client.groups import FetchedOffset
from tidelog.core.types import TopicPartition
from tidelog.local import LocalCluster
from tidelog.records.builder import NewRecord, build_batch
from tidelog.runtime.blocking import BlockingClient

PATIENCE_S = 60
WIDE, PHONE = (1280, 900), (390, 844)
TOKEN = "a-token-of-these-tests"
TOPIC = "flights"
#: A group and a record that are HTML, and a record that is no text.
HOSTILE_GROUP = "<img src=x onerror=document.title='owned'>/../?&#%"
HOSTILE_VALUE = b"<script>document.title='owned'</script><b>bold</b>"
BINARY_VALUE = b"\xff\xfe\x00\x01"
_OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)


@dataclass
class Browser:
    """A Chromium with a console's address."""

    driver: Any
    address: str

    def open(self, path: str, size: tuple[int, int] = WIDE, *, dark: bool = False) -> None:
        """Open a page and wait until it shows a reading."""
        width, height = size
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.command("Emulation.setEmulatedMedia", features=scheme)
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=size == PHONE,
        )
        self.driver.get(self.address + path)
        self.until(lambda: self.all("main h1"), f"{path} shows its title")

    def command(self, name: str, **parameters: object) -> None:
        self.driver.execute_cdp_cmd(name, parameters)

    def until(self, holds: Callable[[], object], what: str) -> Any:
        """Wait until something holds; return it."""

        def attempt(_driver: object) -> object:
            try:
                return holds()
            except JavascriptException:
                return None

        return WebDriverWait(self.driver, PATIENCE_S, 0.1).until(attempt, what)

    def until_text(self, text: str) -> None:
        self.until(lambda: text in self.text, f"{text!r} stands on the page")

    @property
    def text(self) -> str:
        """What a reader sees of the page."""
        return str(self.driver.execute_script("return document.querySelector('main').innerText"))

    def all(self, selector: str) -> list[WebElement]:
        found: list[WebElement] = self.driver.find_elements(By.CSS_SELECTOR, selector)
        return found

    def press(self, *keys: str) -> None:
        """Press keys where the focus is."""
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def texts(self, selector: str) -> list[str]:
        """The texts of elements, read at once, as the page changes while it is looked at."""
        script = "return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText)"
        return [str(each) for each in self.driver.execute_script(script, selector)]

    def complaints(self) -> list[str]:
        """Errors that the browser has logged since the last call: scripts, policy, network."""
        return [str(each["message"]) for each in self.driver.get_log("browser")]

    def shoot(self, name: str) -> None:
        """Leave a screenshot, if the environment asks for them."""
        directory = os.environ.get("TIDELOG_SCREENSHOTS")
        if directory:
            Path(directory).mkdir(parents=True, exist_ok=True)
            self.driver.save_screenshot(str(Path(directory) / f"{name}.png"))


def chromium(profile: Path) -> webdriver.Chrome:
    """A headless Chromium; skips where there is none."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("no Chromium: install Debian's packages chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for word in (*_OPTIONS, f"--user-data-dir={profile}"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(driver))


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    made = chromium(tmp_path_factory.mktemp("chromium"))
    yield made
    made.quit()


@pytest.fixture(scope="session")
def cluster(
    driver: webdriver.Chrome, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    """Three brokers with events, a topic with records, and two groups."""
    directory = tmp_path_factory.mktemp("console") / "cluster"
    config = {"cluster.events.enable": "true", "min.insync.replicas": "2"}
    made = LocalCluster(str(directory), 3, config=config)
    try:
        made.up()
        with BlockingClient(made.bootstrap) as client:
            client.create_topic(TOPIC, 3, 3)
            client.await_topic(TOPIC)
            fill(client)
        yield made
    finally:
        made.down(timeout_s=5.0)


def fill(client: BlockingClient) -> None:
    """Produce records of every form, and commit the offsets of two groups."""
    tp = TopicPartition(TOPIC, 0)
    values = [b'{"origin": "JFK", "delay": 3}', b"plain text", HOSTILE_VALUE, BINARY_VALUE, None]
    for number, value in enumerate(values):
        client.produce(tp, build_batch([NewRecord(b"key-%d" % number, value, 1_800_000_000_000)]))
    many = [NewRecord(None, b"record %d" % number, 1_800_000_000_000) for number in range(500)]
    client.produce(TopicPartition(TOPIC, 1), build_batch(many))
    client.commit("billing", {tp: FetchedOffset(5), TopicPartition(TOPIC, 1): FetchedOffset(20)})
    client.commit(HOSTILE_GROUP, {tp: FetchedOffset(1)})


@contextmanager
def running_console(bootstrap: str, *options: str) -> Iterator[str]:
    """Run a console of a cluster; yield its address."""
    words = [sys.executable, "-m", "tidelog", "console", "-b", bootstrap, "--port", "0"]
    process = subprocess.Popen(
        [*words, *options],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TIDELOG_CONSOLE_TOKEN": TOKEN},
    )
    alarm = threading.Timer(PATIENCE_S, process.kill)
    alarm.start()
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        alarm.cancel()
        assert line.startswith("console: http://127.0.0.1:")
        assert (f"#token={TOKEN}" in line) is ("--allow-changes" in options)
        yield line.removeprefix("console: ").partition("#")[0].strip().rstrip("/")
    finally:
        alarm.cancel()
        process.terminate()
        process.communicate(timeout=PATIENCE_S)


@pytest.fixture(scope="session")
def console(cluster: LocalCluster) -> Iterator[str]:
    """The address of a console that allows changes."""
    with running_console(cluster.bootstrap, "--allow-changes") as address:
        yield address


@pytest.fixture
def browser(driver: webdriver.Chrome, console: str) -> Iterator[Browser]:
    """A browser without complaints: scripts, policies and the network raised none in the test."""
    made = Browser(driver, console)
    made.complaints()
    yield made
    assert made.complaints() == []
