"""Reports of a broker's life to systemd, for units of `Type=notify` (sd_notify(3)).

systemd names a datagram socket in `NOTIFY_SOCKET`. A broker reports there that it has started, so
that `systemctl start` returns when the broker serves requests, and that it stops. Without that
variable nothing is reported.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import MutableMapping
from typing import Final

_VARIABLE: Final = "NOTIFY_SOCKET"


class ProcessSupervisor:
    """The supervisor that started this process, if it wants reports."""

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
        """Send assignments; a socket that does not take them is a line of the log."""
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
