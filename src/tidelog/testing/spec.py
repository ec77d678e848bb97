"""The cluster that a test requests, merged from several places.

Ini options, markers of module, class and function, and parameters each specify a part of the
cluster. If several places set one configuration key, the most specific place wins, such as a
function's marker over a module's marker. The module uses neither pytest nor clusters.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from tidelog.core.config import known_keys
from tidelog.core.dataclass import dataclass
from tidelog.core.kafka_keys import LISTENER_KEY_PREFIX, REFUSED_KEYS

#: The value of `store` for the embedded metadata store, which lies in the cluster's own directory.
EMBEDDED = "embedded"


class SpecError(ValueError):
    """The error for an invalid request for a test cluster."""


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """A requested cluster: its size, every broker's configuration keys, and its metadata store."""

    brokers: int = 3
    config: Mapping[str, str] = field(default_factory=dict)
    log_dirs: int = 1
    #: `embedded`, `zookeeper` (a server of the cluster's own), or a value of `metadata.store`.
    store: str = EMBEDDED
    #: The port of broker 1; each further broker listens one port higher. None chooses free ports.
    port: int | None = None

    def with_(self, where: str, wanted: Mapping[str, Any]) -> ClusterSpec:
        """Return this spec with changes; raise SpecError, naming `where`, for an invalid change."""
        known = [each.name for each in dataclasses.fields(self)]
        for name, value in wanted.items():
            if name not in known:
                raise SpecError(
                    f"{where}: {name!r} is none of {', '.join(known)}{did_you_mean(name, known)}"
                )
            if name in ("brokers", "log_dirs") and (type(value) is not int or value < 1):
                raise SpecError(f"{where}: {name}={value!r}: an integer of at least 1 expected")
            if name == "config" and not isinstance(value, Mapping):
                raise SpecError(f"{where}: config={value!r}: a dict of keys and values expected")
            if name == "store" and not isinstance(value, str):
                raise SpecError(
                    f"{where}: store={value!r}: {EMBEDDED!r} or 'zookeeper' or metadata.store"
                )
            if name == "port" and value is not None and type(value) is not int:
                raise SpecError(
                    f"{where}: port={value!r}: the port of broker 1 expected, an integer"
                )
        changed = dict(wanted)
        if "config" in changed:
            check_keys(where, changed["config"])
            changed["config"] = {**self.config, **config_text(changed["config"])}
        return dataclasses.replace(self, **changed)

    def with_parameter(self, where: str, parameter: object) -> ClusterSpec:
        """Return this spec with a test's parameter: a number of brokers, or a dict of changes."""
        if isinstance(parameter, Mapping):
            return self.with_(where, parameter)
        if type(parameter) is int:
            return self.with_(where, {"brokers": parameter})
        raise SpecError(f"{where}: {parameter!r}: a number of brokers or a dict expected")


def config_text(config: Mapping[str, object]) -> dict[str, str]:
    """Return values as a properties file has them: `True` is `true`."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in config.items()
    }


def check_keys(where: str, config: Iterable[str]) -> None:
    """Raise SpecError for a key that no broker knows, with the most similar known key.

    A broker ignores an unknown key, as Kafka does, so a test could pass for a wrong reason.
    """
    known = dict.fromkeys((*known_keys(), *REFUSED_KEYS))
    for key in config:
        if key not in known and not key.startswith(LISTENER_KEY_PREFIX):
            raise SpecError(
                f"{where}: config has {key!r}, which is no key of a broker's server.properties"
                + did_you_mean(key, known)
            )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a message that names the nearest known name; empty if none is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


def config_lines(where: str, lines: list[str]) -> dict[str, str]:
    """Parse `key=value` lines; raise SpecError for any other line."""
    found = {}
    for line in lines:
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise SpecError(f"{where}: {line!r}: key=value expected")
        found[key.strip()] = value.strip()
    return found
