"""What cluster a test asks for, and how what is said at several places comes together.

Ini options, markers of module, class and function, and parameters each say a part; what is said
nearer to the test counts, configuration key by key. Knows neither pytest nor clusters.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: The metadata store in the cluster's own directory.
EMBEDDED = "embedded"


class SpecError(ValueError):
    """A cluster was asked for in words that mean nothing."""


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """A cluster to be: its size, the keys of every broker's configuration, where metadata is."""

    brokers: int = 3
    config: Mapping[str, str] = field(default_factory=dict)
    log_dirs: int = 1
    #: `embedded`, `zookeeper` (a server of the cluster's own), or a value of `metadata.store`.
    store: str = EMBEDDED

    def with_(self, where: str, wanted: Mapping[str, Any]) -> ClusterSpec:
        """This one, changed by what is said at `where`; SpecError for what cannot be meant."""
        known = [each.name for each in dataclasses.fields(self)]
        for name, value in wanted.items():
            if name not in known:
                raise SpecError(f"{where}: {name!r} is none of {', '.join(known)}")
            if name in ("brokers", "log_dirs") and (type(value) is not int or value < 1):
                raise SpecError(f"{where}: {name}={value!r}: an integer of at least 1 expected")
            if name == "config" and not isinstance(value, Mapping):
                raise SpecError(f"{where}: config={value!r}: a dict of keys and values expected")
            if name == "store" and not isinstance(value, str):
                raise SpecError(
                    f"{where}: store={value!r}: {EMBEDDED!r} or 'zookeeper' or metadata.store"
                )
        changed = dict(wanted)
        if "config" in changed:
            changed["config"] = {**self.config, **config_text(changed["config"])}
        return dataclasses.replace(self, **changed)

    def with_parameter(self, where: str, parameter: object) -> ClusterSpec:
        """Changed by a parameter of a test: a number of brokers, or a dict of what is wanted."""
        if isinstance(parameter, Mapping):
            return self.with_(where, parameter)
        if type(parameter) is int:
            return self.with_(where, {"brokers": parameter})
        raise SpecError(f"{where}: {parameter!r}: a number of brokers or a dict expected")


def config_text(config: Mapping[str, object]) -> dict[str, str]:
    """Values as a properties file has them: `True` is `true`."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in config.items()
    }


def config_lines(where: str, lines: list[str]) -> dict[str, str]:
    """`key=value` lines; SpecError for anything else."""
    found = {}
    for line in lines:
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise SpecError(f"{where}: {line!r}: key=value expected")
        found[key.strip()] = value.strip()
    return found
