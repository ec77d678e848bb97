"""Requests to the console: who is refused, what answers carry, what bad addresses are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from starlette.types import ASGIApp
from tests.support.console_readings import metadata, partition, reading, request

from tidelog.console.app import ConsoleApp, ConsoleSettings
from tidelog.console.assets import load_assets
from tidelog.console.poller import Poller
from tidelog.console.security import HEADERS, RequestAccess
from tidelog.runtime.blocking import BlockingClient

TOKEN = "a-token-of-this-test"
OWN = {"origin": "http://127.0.0.1:9080", "content-type": "application/json"}


def console(access: RequestAccess | None = None) -> ConsoleApp:
    """A console whose poller is not started: its reading is what the test gives it."""
    app = ConsoleApp(ConsoleSettings("127.0.0.1:1", access or RequestAccess()), poller)
    app.hub.reading = reading(metadata=metadata({"flights": [partition(0, 1, [1, 2, 3])]}))
    app.hub.use(poller(app.hub.publish))
    return app


def poller(publish: Callable[..., None]) -> Poller:
    return Poller(BlockingClient("127.0.0.1:1"), publish)


@pytest.fixture
def app() -> ASGIApp:
    return console().asgi()


@pytest.mark.parametrize(
    "host", ["127.0.0.1:9080", "localhost:1", "[::1]:9080", "127.8.9.1", "LOCALHOST", "localhost."]
)
def test_loopback_names_are_its_own(app: ASGIApp, host: str) -> None:
    assert request(app, "GET", "/api/session", {"host": host}).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "localhost@evil", "[::1", "10.0.0.1:80"]
)
def test_other_names_are_refused_as_dns_may_point_them_here(app: ASGIApp, host: str) -> None:
    answer = request(app, "GET", "/api/session", {"host": host})
    assert answer.status == 421
    assert "--allowed-host" in answer.document["error"]


def test_a_proxys_name_may_be_allowed() -> None:
    app = console(RequestAccess(hosts=("console.example",))).asgi()
    assert request(app, "GET", "/", {"host": "console.example"}).status == 200
    assert request(app, "GET", "/", {"host": "xconsole.example"}).status == 421


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("console.example", "https://console.example", 404),
        ("console.example:8443", "https://console.example:8443", 404),
        ("console.example", "http://console.example", 404),
        ("console.example", "https://evil.example", 403),
        ("console.example", "https://console.example:8443", 403),
        ("127.0.0.1:9080", "https://127.0.0.1:9080", 403),
    ],
)
def test_a_proxy_with_tls_may_pass_changes(host: str, origin: str, status: int) -> None:
    app = console(RequestAccess(token=TOKEN, hosts=("console.example",))).asgi()
    headers = {**OWN, "x-tidelog-token": TOKEN, "host": host, "origin": origin}
    assert request(app, "POST", "/api/actions/none", headers, b"{}").status == status


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_pages_of_other_sites_read_nothing(app: ASGIApp, site: str) -> None:
    headers = {"sec-fetch-site": site, "sec-fetch-mode": "no-cors"}
    assert request(app, "GET", "/api/view/cluster", headers).status == 403
    link = {"sec-fetch-site": site, "sec-fetch-mode": "navigate"}
    assert request(app, "GET", "/topics", link).status == 200


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({}, 404),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:9081"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": ""}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": ""}, 415),
        ({"x-tidelog-token": "wrong"}, 401),
        ({"x-tidelog-token": ""}, 401),
        ({"x-tidelog-token": TOKEN + "x"}, 401),
        ({"x-tidelog-token": "ä"}, 401),
        ({"sec-fetch-site": "cross-site"}, 403),
    ],
)
def test_a_change_needs_its_own_origin_json_and_the_token(
    changed: Mapping[str, str], status: int
) -> None:
    app = console(RequestAccess(token=TOKEN)).asgi()
    headers = {**OWN, "x-tidelog-token": TOKEN, **changed}
    answer = request(app, "POST", "/api/actions/none", headers, b"{}")
    assert answer.status == status
    assert answer.document["error"]


def test_without_allow_changes_no_token_helps(app: ASGIApp) -> None:
    headers = {**OWN, "x-tidelog-token": TOKEN}
    answer = request(app, "POST", "/api/actions/none", headers, b"{}")
    assert answer.status == 403
    assert "--allow-changes" in answer.document["error"]


@pytest.mark.parametrize("path", ["/", "/topics", "/api/session", "/static/main.js", "/no/such"])
def test_every_answer_has_the_security_headers(app: ASGIApp, path: str) -> None:
    answer = request(app, "GET", path)
    assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
    refused = request(app, "GET", path, {"host": "evil.example"})
    assert {name: refused.headers.get(name) for name in HEADERS} == HEADERS
    assert "'unsafe" not in HEADERS["content-security-policy"]


@pytest.mark.parametrize(
    ("path", "status", "word"),
    [
        ("/api/view/nothing", 400, "cluster, broker, topics"),
        ("/api/view/topics?limit=0", 400, "from 1 to 5000"),
        ("/api/view/topics?limit=many", 400, "a whole number"),
        ("/api/view/partition?topic=flights&partition=x", 400, "a whole number"),
        ("/api/view/partition?partition=1", 400, "topic is missing"),
        ("/api/view/topic", 400, "name is missing"),
        ("/api/live/partition?topic=flights&partition=x", 400, "a whole number"),
        ("/nothing", 404, "/nothing"),
        ("/static/../app.py", 404, "no such file"),
        ("/static/%2e%2e/app.py", 404, "no such file"),
        ("/static/", 404, "no such file"),
    ],
)
def test_bad_addresses_get_a_sentence(app: ASGIApp, path: str, status: int, word: str) -> None:
    answer = request(app, "GET", path)
    assert answer.status == status
    assert word in answer.document["error"]


def test_what_does_not_exist_is_said_on_its_page(app: ASGIApp) -> None:
    for path in ("topic?name=no", "partition?topic=no&partition=0", "group?name=../%00<b>"):
        answer = request(app, "GET", f"/api/view/{path}")
        assert answer.status == 200
        assert answer.document["missing"].startswith("There is no")


def test_an_unchanged_file_is_not_sent_again(app: ASGIApp) -> None:
    first = request(app, "GET", "/static/main.js")
    assert first.status == 200 and first.headers["content-type"].startswith("text/javascript")
    again = request(app, "GET", "/static/main.js", {"if-none-match": first.headers["etag"]})
    assert (again.status, again.body) == (304, b"")


def test_the_front_end_is_small_and_names_no_outside_address() -> None:
    assets = load_assets()
    assert {"index.html", "console.css", "main.js", "pages/partition.js"} < set(assets)
    assert sum(len(each.content) for each in assets.values()) < 200_000
    for name, asset in assets.items():
        text = asset.content.decode().replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text and "https://" not in text, name
        assert "innerHTML" not in text and "style=" not in text, name
