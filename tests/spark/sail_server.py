"""A program: the server of Sail on a free port, which it prints. It ends with its input."""

from __future__ import annotations

import importlib
import sys


def main() -> None:
    server = importlib.import_module("pysail.spark").SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    sys.stdout.write(f"{server.listening_address[1]}\n")
    sys.stdout.flush()
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main()
