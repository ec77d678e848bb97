"""Immediate acknowledgements on the connection between Spark's Java process and a Python worker.

Spark writes a task to its worker in two small parts. By Nagle's algorithm the second part of a task
waits for the acknowledgement of the first part. The worker's kernel delays an acknowledgement by 40
ms, to send it together with data. Without a prompt acknowledgement, each task of a Python source or
sink begins 40 ms late, longer than the read of a small micro-batch takes. Linux sends the
acknowledgement at once if the option TCP_QUICKACK is set; the option does not last, so each task
sets it again.
"""

from __future__ import annotations

import os
import socket

_OPEN_FILES = "/proc/self/fd"


def acknowledge_at_once() -> None:
    """Acknowledge received data of all TCP connections of this process now, if the system can.

    All connections get the option, because a worker does not know which connection leads to Spark.
    On connections to other programs TCP_QUICKACK only speeds up one acknowledgement.
    """
    option = getattr(socket, "TCP_QUICKACK", None)
    if option is None or not os.path.isdir(_OPEN_FILES):
        return
    for name in os.listdir(_OPEN_FILES):
        try:
            connection = socket.socket(fileno=int(name))
        except OSError:
            continue  # not a socket, or the closed descriptor that `listdir` used
        try:
            connection.setsockopt(socket.IPPROTO_TCP, option, 1)
        except OSError:
            continue  # not a TCP socket
        finally:
            connection.detach()
