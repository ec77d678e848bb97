"""The HTTP server of the admin port: what it serves, and what no client can do to it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import pytest

from tidelog.runtime.admin.http_messages import BadRequest, HttpRequest, HttpResponse, read_head
from tidelog.runtime.admin.http_server import HttpLimits, HttpServer
from tidelog.runtime.admin.routes import Routes

LOG = logging.getLogger("tidelog.test")
#: More than the buffers of two sockets hold.
BIG = b"x" * (16 << 20)


async def echo(request: HttpRequest) -> HttpResponse:
    return HttpResponse.of_text(f"{request.path} {dict(request.query)} {request.body.decode()}")


async def big(_: HttpRequest) -> HttpResponse:
    return HttpResponse(HTTPStatus.OK, (BIG,))


async def sized(request: HttpRequest) -> HttpResponse:
    return HttpResponse(HTTPStatus.OK, (b"x" * int(request.query["bytes"]),))


async def broken(_: HttpRequest) -> HttpResponse:
    raise AssertionError("a defect")


async def refusing(_: HttpRequest) -> HttpResponse:
    raise BadRequest(HTTPStatus.CONFLICT, "not now")


async def never(_: HttpRequest) -> HttpResponse:
    response: HttpResponse = await asyncio.get_running_loop().create_future()
    return response


def served(act: Callable[[HttpServer], Awaitable[None]], limits: HttpLimits | None = None) -> None:
    """Run `act` on a server whose routes are the functions above."""

    async def run() -> None:
        routes = Routes()
        for respond in (big, sized, broken, refusing, never):
            routes.add("GET", f"/{respond.__name__}", respond)
        routes.add("GET", "/echo", echo)
        routes.add("POST", "/echo/", echo)
        server = HttpServer(routes, LOG, limits)
        await server.listen("127.0.0.1", 0)
        await act(server)
        await server.close()
        assert server.connections == 0

    asyncio.run(run())


async def sent(server: HttpServer, data: bytes, *, ends: bool = False) -> bytes:
    """Return all that the server sends for these bytes until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(data)
    if ends:
        writer.write_eof()
    try:
        return await reader.read()
    finally:
        writer.close()


def request(
    path: str, method: str = "GET", *headers: str, body: str = "", host: str = "localhost"
) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *headers, "Connection: close", "", body]
    return "\r\n".join(lines).encode()


def test_requests_reach_their_routes() -> None:
    async def act(server: HttpServer) -> None:
        assert (await sent(server, request("/echo?a=1&b=%20"))).endswith(
            b"\r\n\r\n/echo {'a': '1', 'b': ' '} "
        )
        posted = request("/echo/x%20y", "POST", "Content-Length: 3", body="abc")
        assert (await sent(server, posted)).endswith(b"\r\n\r\n/echo/x y {} abc")
        head = await sent(server, request("/echo", "HEAD"))
        assert head.startswith(b"HTTP/1.1 200 OK\r\n") and head.endswith(b"\r\n\r\n")
        assert len(await sent(server, request("/big"))) > len(BIG)

    served(act)


def test_a_client_that_begins_to_read_late_gets_the_end_of_the_response() -> None:
    async def act(server: HttpServer) -> None:
        # Some of these sizes end just above what the kernel takes while the client does not read.
        for size_bytes in range(48 * 1024, 4 << 20, 48 * 1024):
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", server.port))
            client.sendall(request(f"/sized?bytes={size_bytes}"))
            for _ in range(20):
                await asyncio.sleep(0)
            reader, writer = await asyncio.open_connection(sock=client)
            assert len(await reader.read()) > size_bytes
            writer.close()

    served(act)


def test_a_connection_takes_one_request_after_the_other() -> None:
    async def act(server: HttpServer) -> None:
        first = b"GET /echo?n=1 HTTP/1.1\r\n\r\n"
        found = await sent(server, first + request("/echo?n=2"))
        assert found.count(b"HTTP/1.1 200 OK") == 2 and b"'n': '2'" in found
        assert found.count(b"Connection: keep-alive") == found.count(b"Connection: close") == 1
        assert (await sent(server, b"GET /echo HTTP/1.0\r\n\r\n")).count(b"HTTP/1.1 200 OK") == 1

    served(act)


@pytest.mark.parametrize(
    ("data", "status", "reason"),
    [
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400, "not a request of HTTP/1.1"),
        (b"GET / HTTP/2.0\r\n\r\n", 400, "not a request of HTTP/1.1"),
        (b"GET /echo HTTP/1.1\r\nno header\r\n\r\n", 400, "line 2 is no header"),
        (b"GET /echo HTTP/1.1\r\na: \x00\r\n\r\n", 400, "line 2 is no header"),
        (request("/echo", "GET", "Host: b"), 400, "header host is given twice"),
        (request("/echo?" + "a&" * 200), 400, "the query cannot be read"),
        (request("/echo", "GET", *["a: b"] * 200), 431, "header lines; at most 100 expected"),
        (b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\n\r\n", 431, "at most 16,384 bytes expected"),
        (request("/echo/", "POST", "Content-Length: -1"), 400, "a number expected"),
        (request("/echo/", "POST", "Content-Length: 999999"), 413, "at most 65,536 expected"),
        (request("/echo/", "POST", "Transfer-Encoding: chunked"), 411, "Content-Length expected"),
        (request("/none"), 404, "/big, /broken, /echo, /echo/, /never, /refusing, /sized expected"),
        (request("/echo", "DELETE"), 405, "DELETE is not possible here: GET expected"),
        (request("/refusing"), 409, "not now"),
        (request("/broken"), 500, "failed to respond"),
    ],
)
def test_a_bad_request_gets_a_reason(data: bytes, status: int, reason: str) -> None:
    async def act(server: HttpServer) -> None:
        found = (await sent(server, data)).decode()
        assert found.startswith(f"HTTP/1.1 {status} ") and reason in found
        assert b"200 OK" in await sent(server, request("/echo")), "the server lives on"

    served(act)


def test_a_long_bad_header_is_refused_in_linear_time() -> None:
    # With a pattern that tries each end of the white space, this line would take minutes.
    line = b"a:" + b" " * 300_000 + b"\x00"
    with pytest.raises(BadRequest, match="line 2 is no header"):
        read_head(b"GET /echo HTTP/1.1\r\n" + line + b"\r\n\r\n")
    assert read_head(b"GET / HTTP/1.1\r\na: \t b c \t\r\n\r\n").headers == {"a": "b c"}


def test_a_client_that_stops_sending_loses_its_connection() -> None:
    async def act(server: HttpServer) -> None:
        found = await sent(server, b"GET /echo HT")
        assert b"408" in found and b"has not arrived within 30 ms" in found
        assert await sent(server, b"") == b"", "an idle connection is closed without a word"
        assert await sent(server, b"GET /echo", ends=True) == b""
        assert b"504" in await sent(server, request("/never"))

    served(act, HttpLimits(step_ms=30, idle_ms=30, respond_ms=30))


def test_a_client_that_stops_reading_loses_its_connection() -> None:
    async def act(server: HttpServer) -> None:
        loop = asyncio.get_running_loop()
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.setblocking(False)
            await loop.sock_sendall(client, request("/big"))
            while not server.connections:
                await asyncio.sleep(0)
            while server.connections:
                await asyncio.sleep(0.001)
            received = 0
            with contextlib.suppress(ConnectionResetError):
                while more := len(await loop.sock_recv(client, 1 << 20)):
                    received += more
        assert 0 < received < len(BIG)

    served(act, HttpLimits(step_ms=30))


def test_connections_with_requests_are_bounded() -> None:
    async def act(server: HttpServer) -> None:
        held = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(2)]
        for _, writer in held:
            writer.write(request("/never"))
        while server.connections - server.silent_connections < 2:
            await asyncio.sleep(0)
        assert b"503" in await sent(server, request("/echo"))
        for _, writer in held:
            writer.close()
        while server.connections:
            await asyncio.sleep(0)
        assert b"200 OK" in await sent(server, request("/echo"))

    served(act, HttpLimits(connections=2, respond_ms=200))


def test_a_new_connection_replaces_the_one_that_is_silent_the_longest() -> None:
    async def act(server: HttpServer) -> None:
        longest = await asyncio.open_connection("127.0.0.1", server.port)
        while server.silent_connections < 1:
            await asyncio.sleep(0)
        later = await asyncio.open_connection("127.0.0.1", server.port)
        while server.silent_connections < 2:
            await asyncio.sleep(0)
        assert b"200 OK" in await sent(server, request("/echo"))
        assert await longest[0].read() == b"", "the server closed it"
        later[1].write(request("/echo"))
        assert b"200 OK" in await later[0].read()
        for _, writer in (longest, later):
            writer.close()

    served(act, HttpLimits(connections=2))


def test_clients_that_stop_within_a_request_keep_no_other_client_out() -> None:
    async def act(server: HttpServer) -> None:
        held = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(2)]
        for _, writer in held:
            writer.write(b"GET /echo HTTP/1.1\r\n")
        while server.connections < 2:
            await asyncio.sleep(0)
        assert b"200 OK" in await sent(server, request("/echo"))
        for _, writer in held:
            writer.close()

    served(act, HttpLimits(connections=2))


def test_a_server_on_a_loopback_address_refuses_the_names_of_other_hosts() -> None:
    async def act(server: HttpServer) -> None:
        for name in ("localhost:9644", "LOCALHOST.", "127.0.0.1:1", "[::1]:9644", "10.1.2.3"):
            assert b"200 OK" in await sent(server, request("/echo", host=name))
        for name in ("rebound.example:9644", "127.0.0.1.example", "[::1].example"):
            refused = await sent(server, request("/echo", host=name))
            assert b"403" in refused and b"'localhost' or the name in its config" in refused

    served(act)


def test_a_server_answers_to_the_name_on_which_it_listens() -> None:
    """A resolver takes 127.1 for 127.0.0.1, as it takes the host name of many machines."""

    async def run() -> None:
        routes = Routes()
        routes.add("GET", "/echo", echo)
        server = HttpServer(routes, LOG)
        await server.listen("127.1", 0)
        assert b"200 OK" in await sent(server, request("/echo", host=f"127.1:{server.port}"))
        assert b"403" in await sent(server, request("/echo", host="127.2"))
        await server.close()

    asyncio.run(run())


def test_routes_are_found_by_path_and_beginning() -> None:
    routes = Routes()
    routes.add("GET", "/a/", echo)
    routes.add("GET", "/a/b/", big)
    routes.add("POST", "/a/", never)
    assert routes.find(read_head(request("/a/b/c"))) is big
    assert routes.find(read_head(request("/a/c"))) is echo
    assert routes.find(read_head(request("/a/c", "POST"))) is never
    for method, path in (("GET", "/a/"), ("GET", "a")):
        with pytest.raises(ValueError, match="a new one that begins with / expected"):
            routes.add(method, path, echo)
