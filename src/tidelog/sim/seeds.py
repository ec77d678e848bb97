"""Independent random streams from one seed.

Every part of a run (network, each disk, each node, the fault plan, each client) draws from a
stream of its own, so that a change in one leaves the draws of the others as they were. Only
integers and texts are mixed in, through a hash that is the same in every process.
"""

from __future__ import annotations

import hashlib
import random


def derive_seed(seed: int, *labels: int | str) -> int:
    """A seed for the stream that `labels` name."""
    text = "/".join([str(seed), *[str(label) for label in labels]])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def stream(seed: int, *labels: int | str) -> random.Random:
    """The random stream that `labels` name."""
    return random.Random(derive_seed(seed, *labels))
