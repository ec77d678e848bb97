"""The compiled modules of an installation: which are missing, and what is slower without them.

A pure Python wheel, or an installation on a machine without a C compiler, has no compiled modules.
The functions of this module only look for files, because importing the modules of the Spark
connector would need Spark.
"""

from __future__ import annotations

import os
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Final

WALK: Final = "records/_walk"
#: Each compiled module by its path in the package, and what is slower without it.
SLOWER_WITHOUT: Final = {
    WALK: "producing costs a broker about 2 us more for each record",
    "spark/_rows": "Spark reads topics at about a third of the speed",
    "spark/segments/_scan": "audits of log directories take 3 us a batch, not 20 ns",
}
REMEDY: Final = "`pip install` from tidelog's source compiles them where a C compiler is installed"
_PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def missing(package: str = _PACKAGE) -> list[str]:
    """Return the compiled modules that the package's directory lacks, in the order of the table."""
    return [
        module
        for module in SLOWER_WITHOUT
        if not any(
            os.path.exists(os.path.join(package, module + suffix)) for suffix in EXTENSION_SUFFIXES
        )
    ]


def missing_text(modules: list[str]) -> str:
    """Return one sentence about missing modules; empty if none is missing."""
    if not modules:
        return ""
    slower = "; ".join(SLOWER_WITHOUT[each] for each in modules)
    return f"no compiled {', '.join(modules)}: {slower}; {REMEDY}"
