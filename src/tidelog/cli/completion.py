"""Shell completion of names that the cluster knows: topics, groups, brokers.

The module also declares shared arguments and options whose values are names of topics, groups or
brokers.

The options on the command line (`--bootstrap-server`, `--dir`) choose the cluster; without them,
the default directory does. A cluster that does not respond within a second completes no name: a
shell must not hang, and cannot show messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated

import typer

from tidelog.cli.target import choose_target
from tidelog.core.errors import TidelogError
from tidelog.runtime.blocking import BlockingClient

_PATIENCE_S = 1.0


def topic_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return topics; include internal topics only if the word begins like their names."""
    hides = not incomplete.startswith("_")
    return _complete(
        ctx,
        incomplete,
        lambda client: [n for n in client.metadata().topics if not (hides and n.startswith("__"))],
    )


def group_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the ids of the cluster's groups."""
    return _complete(ctx, incomplete, lambda client: [each.group for each in client.list_groups()])


def broker_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the ids of live brokers."""
    return _complete(ctx, incomplete, lambda client: map(str, client.metadata([]).brokers))


def _complete(
    ctx: typer.Context, incomplete: str, ask: Callable[[BlockingClient], Iterable[str]]
) -> list[str]:
    given = ctx.params
    try:
        target = choose_target(given.get("bootstrap"), given.get("directory"), warns=False)
        with target.client(_PATIENCE_S) as client:
            return [name for name in ask(client) if name.startswith(incomplete)]
    except (TidelogError, OSError, typer.BadParameter):
        return []


TopicArgument = Annotated[
    str, typer.Argument(help="The topic.", show_default=False, autocompletion=topic_names)
]
TopicOption = Annotated[
    str | None, typer.Option("--topic", help="Of this topic.", autocompletion=topic_names)
]
BrokerOption = Annotated[
    int, typer.Option("--broker", help="The broker.", autocompletion=broker_ids)
]
BrokersOption = Annotated[
    list[int] | None, typer.Option("--broker", help="This broker only.", autocompletion=broker_ids)
]
