"""A console in this process whose readings a test makes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from selenium import webdriver
from tests.console.conftest import PATIENCE_S, Browser

from tidelog.console.app import ConsoleApp, ConsoleSettings, MakePoller
from tidelog.console.security import RequestAccess
from tidelog.console.server import address_of, bound


@contextmanager
def served(driver: webdriver.Chrome, make_poller: MakePoller) -> Iterator[Browser]:
    """Yield a browser at a console that shows the readings of a poller."""
    listener = bound("127.0.0.1", 0)
    app = ConsoleApp(ConsoleSettings("127.0.0.1:1", RequestAccess()), make_poller)
    config = uvicorn.Config(app.asgi(), log_level="warning", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    browser = Browser(driver, address_of(listener).rstrip("/"))
    browser.complaints()
    yield browser
    driver.get("about:blank")
    app.hub.end()
    server.should_exit = True
    thread.join(PATIENCE_S)
