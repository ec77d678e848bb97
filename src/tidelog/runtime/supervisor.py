"""Reports of a broker's start and stop to systemd, for units of `Type=notify` (sd_notify(3)).

systemd names a datagram socket in `NOTIFY_SOCKET`. A broker sends a report to the socket when it
has started, so that `systemctl start` returns when the broker serves requests, and when it stops.
If `NOTIFY_SOCKET` is not set, the broker sends no reports.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import MutableMapping
from typing import Final

_VARIABLE: Final = "NOTIFY_SOCKET"


class ProcessSupervisor:
    """The supervisor that started this process, if `NOTIFY_SOCKET` names its socket."""

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        """Take the socket's address out of `environment`, so that no child reports there."""
        self._address = environment.pop(_VARIABLE, "")

    def started(self, status: str) -> None:
        """Report that the broker serves requests; `status` is one line for `systemctl status`."""
        self._report("READY=1", f"STATUS={status}")

    def stopping(self, status: str) -> None:
        """Report that the broker stops."""
        self._report("STOPPING=1", f"STATUS={status}")

    def _report(self, *lines: str) -> None:
        """Send lines of the form `NAME=value`; log a warning if the socket rejects them."""
        if not self._address:
            return
        address = self._address
        if address.startswith("@"):
            address = f"\0{address[1:]}"  # an abstract socket
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as reports:
                reports.setblocking(False)
                reports.sendto("\n".join(lines).encode(), address)
        except OSError as error:
            logging.getLogger("kafka.server").warning(
                "%s=%s takes no report: %s", _VARIABLE, self._address, error
            )
