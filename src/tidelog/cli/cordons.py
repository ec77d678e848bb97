"""`tidelog log-dirs cordon`, `uncordon` and `mark-bad`: directories taken out of use (D12).

A cordoned directory takes no new replicas; its existing replicas stay (KIP-1066). The broker's
setting `cordoned.log.dirs` stores the cordons, so they survive restarts. `*` stands for all
directories of a broker. The broker treats a directory marked bad as failed until the broker
restarts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from tidelog.cli.completion import BrokerOption
from tidelog.cli.configs import change_configs
from tidelog.cli.documents import ConfigsChanged, LogDirMarked, prints
from tidelog.cli.names import NotFoundError, broker_named
from tidelog.cli.output import say
from tidelog.cli.target import ClusterOptions, DryRunOption
from tidelog.client.configs import BROKER, ConfigChange, ConfigResource
from tidelog.core.config_keys import comma_list
from tidelog.core.dynamic_config import ConfigOperation
from tidelog.core.log_dir_keys import ALL
from tidelog.runtime.blocking import BlockingClient

CORDONED_KEY = "cordoned.log.dirs"
DRAINING_KEY = "draining.log.dirs"
_PathsArgument = Annotated[
    list[str], typer.Argument(metavar="DIR...", help="Log directories of the broker, or '*'.")
]


@prints(ConfigsChanged)
def cordon(
    cluster: ClusterOptions,
    paths: _PathsArgument,
    broker: BrokerOption,
    dry_run: DryRunOption = False,
) -> None:
    """Keep new replicas out of log directories; existing replicas stay."""
    _change(cluster, broker, paths, dry_run, is_cordon=True)


@prints(ConfigsChanged)
def uncordon(
    cluster: ClusterOptions,
    paths: _PathsArgument,
    broker: BrokerOption,
    dry_run: DryRunOption = False,
) -> None:
    """Let log directories take new replicas again, which also ends a drain."""
    _change(cluster, broker, paths, dry_run, is_cordon=False)


@prints(list[LogDirMarked])
def mark_bad(
    cluster: ClusterOptions,
    paths: Annotated[
        list[str], typer.Argument(metavar="DIR...", help="Log directories of the broker.")
    ],
    broker: BrokerOption,
) -> None:
    """Give log directories up as if they had failed, until the broker restarts.

    The replicas in the log directories go offline, and replicas on other brokers lead. A request
    that names a broker's last good directory is refused as a whole. Brokers serve this command's
    request only on the inter-broker listener.
    """
    paths = plain(paths)
    with cluster.client() as client:
        broker_named(client, broker)
        client.mark_log_dirs_bad(broker, paths)
    if cluster.printed([LogDirMarked(broker, path) for path in paths]):
        return
    for path in paths:
        say(f"{path} of broker {broker} is given up: its replicas are offline until a restart")


def _change(
    cluster: ClusterOptions, broker: int, paths: Sequence[str], dry_run: bool, *, is_cordon: bool
) -> None:
    resource = ConfigResource(BROKER, str(broker))
    with cluster.client() as client:
        broker_named(client, broker)
        known = [each.path for each in client.describe_log_dirs(broker, ())]
        cordoned, draining = out_of_use(client, broker)
        # A directory that was removed from log.dirs may still be cordoned.
        known += [each for each in (*cordoned, *draining) if each not in (*known, ALL)]
        after = cordoned_after(cordoned, paths, known, is_cordon=is_cordon)
        changes = [ConfigChange(ConfigOperation.SET, CORDONED_KEY, ",".join(after))]
        kept = [] if ALL in paths else [each for each in draining if each not in plain(paths)]
        if not is_cordon and kept != draining:
            changes.append(ConfigChange(ConfigOperation.SET, DRAINING_KEY, ",".join(kept)))
        change_configs(client, resource, changes, dry_run, cluster.output)


def out_of_use(client: BlockingClient, broker: int) -> tuple[list[str], list[str]]:
    """Return the cordoned and the draining log directories in a broker's settings."""
    keys = [CORDONED_KEY, DRAINING_KEY]
    values = client.describe_configs(ConfigResource(BROKER, str(broker)), keys)
    found = {each.name: comma_list(each.value or "") for each in values}
    return found[CORDONED_KEY], found.get(DRAINING_KEY, [])


def plain(paths: Sequence[str]) -> list[str]:
    """Return paths without a slash at their end, as brokers name them."""
    return [each if each in (ALL, "/") else each.rstrip("/") for each in paths]


def cordoned_after(
    before: Sequence[str], paths: Sequence[str], known: Sequence[str], *, is_cordon: bool
) -> list[str]:
    """Return the cordoned directories after a command, in the order of the broker's directories.

    `known` are all log directories of the broker. Raises NotFoundError for a path that is not in
    `known`.
    """
    wanted = plain(paths)
    for path in wanted:
        if path != ALL and path not in known:
            raise NotFoundError(
                f"{path} is no log directory of the broker; it has {', '.join(known)}"
            )
    if ALL in wanted:
        return [ALL] if is_cordon else []
    if is_cordon:
        return list(before) if ALL in before else [p for p in known if p in before or p in wanted]
    return [p for p in known if (ALL in before or p in before) and p not in wanted]
