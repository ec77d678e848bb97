"""Which client tests `make test` leaves out, for its time: second versions of clients in a JVM.

TIDELOG_TEST_CLIENTS=all runs them too: `make soak` does, and the command that writes
docs/compatibility.md.
"""

from __future__ import annotations

import os

VARIABLE = "TIDELOG_TEST_CLIENTS"
IS_WANTED = os.environ.get(VARIABLE) == "all"
