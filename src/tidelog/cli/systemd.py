"""The systemd unit of a broker, which `tidelog broker --print-systemd` prints.

The broker may write to the directories of its configuration and to nothing else. systemd waits
until the broker reports that it has started or stopped (`runtime/supervisor`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from tidelog.core.config import BrokerConfig

_HOMES: Final = ("/home", "/root", "/run/user")
_NEEDS_QUOTES: Final = re.compile(r"[\s\"'\\;]")

_UNIT: Final = """\
# {command}
[Unit]
Description=tidelog broker {broker_id}
Wants=network-online.target
After=network-online.target
# Five starts that fail within ten minutes, and systemd starts the broker no more.
StartLimitIntervalSec=10min
StartLimitBurst=5

[Service]
# The broker reports when it serves requests and when it stops.
Type=notify
NotifyAccess=main
User={user}
SyslogIdentifier=tidelog-{broker_id}
ExecStart={start}
# The broker reads its configuration again.
ExecReload=/bin/kill -HUP $MAINPID
# After a power failure, a start checks the ends of all logs.
TimeoutStartSec=infinity
# SIGTERM lets other brokers lead first, and closes all logs.
KillMode=mixed
TimeoutStopSec=5min
# A usage error (2) does not go away by itself; a halt (70) and a crash may.
Restart=on-failure
RestartSec=5s
RestartPreventExitStatus=2
LimitNOFILE=1048576
UMask=0027
NoNewPrivileges=yes
PrivateTmp=yes
ProtectSystem=strict
{home}# A directory that is missing, such as a disk that is not mounted, does not prevent the start.
ReadWritePaths={writable}

[Install]
WantedBy=multi-user.target
"""


def unit(config: BrokerConfig, path: Path, overrides: Sequence[str], user: str) -> str:
    """Return the unit of the broker with this configuration file, overrides and user.

    All paths in it are absolute. The unit may write to the directories of the configuration and
    nowhere else.
    """
    words = [sys.executable, "-m", "tidelog", "broker", "--config", str(path.absolute())]
    shown = ["tidelog", "broker", "--config", str(path.absolute())]
    for each in overrides:
        words += ["--override", each]
        shown += ["--override", each]
    writable = list(dict.fromkeys(str(Path(each).absolute()) for each in _directories(config)))
    read = [str(path.absolute()), sys.executable]
    return _UNIT.format(
        command=" ".join([*shown, "--user", user, "--print-systemd"]).replace("\n", " "),
        broker_id=config.broker_id,
        user=user,
        start=" ".join(_word(each, is_command=True) for each in words),
        home="" if _is_below_homes([*writable, *read]) else "ProtectHome=yes\n",
        writable=" ".join(_word(f"-{each}", is_command=False) for each in writable),
    )


def _directories(config: BrokerConfig) -> Iterable[str]:
    """Yield the directories that a broker writes to."""
    yield from config.log_dirs
    store = config.embedded_store_directory()
    if store is not None:
        yield store


def _is_below_homes(paths: Iterable[str]) -> bool:
    return any(path == home or path.startswith(f"{home}/") for path in paths for home in _HOMES)


def _word(text: str, *, is_command: bool) -> str:
    """Return a word as a unit file has it: quoted, with `%` escaped, and `$` too in commands."""
    text = text.replace("%", "%%")
    if is_command:
        text = text.replace("$", "$$")
    if not _NEEDS_QUOTES.search(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
