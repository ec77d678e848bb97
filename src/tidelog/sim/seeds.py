"""Independent random streams from one seed.

Each part of a run (network, disk, node, fault plan, client) draws from its own random stream. A
change in one part does not change the draws of other parts. A random stream is named by labels,
which are integers or texts; a hash that is the same in every process combines them with the
seed.
"""

from __future__ import annotations

import hashlib
import random


def stream(seed: int, *labels: int | str) -> random.Random:
    """Return the random stream of a seed with these labels."""
    text = "/".join([str(seed), *[str(label) for label in labels]])
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return random.Random(int.from_bytes(digest, "big"))
