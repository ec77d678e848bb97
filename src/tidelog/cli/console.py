"""`tidelog console`: the web console of a cluster, as a process of its own.

The console needs the extra `console` (Starlette and uvicorn), which is imported when the command
runs. The token that permits changes is in the fragment (`#...`) of the printed address, because
browsers do not send fragments to servers.
"""

from __future__ import annotations

import os
import secrets
from typing import Annotated
from urllib.parse import quote

import typer

from tidelog.cli.output import print_line, say
from tidelog.cli.target import BootstrapOption, OptionalDirectoryOption, choose_target
from tidelog.core.errors import ConfigError
from tidelog.local.console_process import check_installed

#: The environment variable with the user's choice of the token that permits changes.
TOKEN_VARIABLE = "TIDELOG_CONSOLE_TOKEN"
#: The environment variable with the address of the schema registry.
REGISTRY_VARIABLE = "TIDELOG_SCHEMA_REGISTRY"
#: Minimum length of a chosen token.
_TOKEN_CHARACTERS = 16
DEFAULT_PORT = 9080


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command(epilog="Example: tidelog console --dir /tmp/tide --allow-changes")(console)


def console(
    bootstrap: BootstrapOption = None,
    directory: OptionalDirectoryOption = None,
    host: Annotated[str, typer.Option(help="Loopback address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port to listen on; 0 takes a free port.")
    ] = DEFAULT_PORT,
    allow_changes: Annotated[
        bool,
        typer.Option("--allow-changes", help="Allow changes of the cluster to holders of a token."),
    ] = False,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(help="A further name by which browsers reach the console, as of a proxy."),
    ] = None,
    schema_registry: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Schema registry that decodes Avro and Protobuf, as http://127.0.0.1:8081.",
        ),
    ] = None,
) -> None:
    """Serve the web console of a cluster until Ctrl-C.

    The console listens on loopback only, and changes nothing without --allow-changes. A change also
    needs the token, which the printed address contains; TIDELOG_CONSOLE_TOKEN chooses it.
    TIDELOG_SCHEMA_REGISTRY names a registry whose address has a password, which other users of this
    machine could read in a command.
    """
    check_installed()
    from tidelog.console import app, record_schemas, security, server

    if not security.is_loopback(host):
        raise typer.BadParameter(
            f"{host!r} is no loopback address, and the console is not for the network: use ssh -L,"
            " or a proxy with --allowed-host",
            param_hint="--host",
        )
    token = _token() if allow_changes else None
    registry_url = schema_registry or os.environ.get(REGISTRY_VARIABLE)
    registry = record_schemas.registry_at(registry_url) if registry_url else None
    target = choose_target(bootstrap, directory)
    access = security.RequestAccess(token, tuple(map(_host_name, allowed_host or ())))
    listener = server.bound("127.0.0.1" if host == "localhost" else host, port)

    def report(address: str) -> None:
        say(f"tidelog: the console of {target.bootstrap} answers until Ctrl-C")
        print_line(f"console: {address}" + (f"#token={quote(token, safe='')}" if token else ""))

    settings = app.ConsoleSettings(target.bootstrap, access, registry)
    server.serve(settings, listener, report)


def _host_name(text: str) -> str:
    name = text.lower().rstrip(".")
    if not name or any(sign in name for sign in "/:@[] "):
        raise typer.BadParameter(
            f"{text!r} is no host name: a name without scheme and port expected",
            param_hint="--allowed-host",
        )
    return name


def _token() -> str:
    chosen = os.environ.get(TOKEN_VARIABLE)
    if chosen is None:
        return secrets.token_urlsafe(24)
    if len(chosen) < _TOKEN_CHARACTERS or not chosen.isascii() or not chosen.isprintable():
        raise ConfigError(
            f"{TOKEN_VARIABLE}: at least {_TOKEN_CHARACTERS} printable ASCII characters expected"
        )
    return chosen
