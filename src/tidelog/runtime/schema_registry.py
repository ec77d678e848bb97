"""A schema registry over HTTP with Confluent's paths, which has schemas by id and by subject.

The schema of an id never changes, so each process caches it. Each process also caches that an id
is unknown. A registry that cannot be reached is an error of the reader, not of a record. Spark
pickles the registry object with a query; the pickle contains only the address, and each worker
fills its own cache.
"""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from tidelog.core.dataclass import dataclass
from tidelog.core.errors import ConfigError, TidelogError

_TIMEOUT_S: Final = 30.0
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
_NOT_FOUND: Final = 404


class RegistryError(TidelogError):
    """The error for a registry that does not respond, or responds with something other than a
    schema.
    """


class UnknownSchemaError(RegistryError):
    """The error for a schema id or a subject that the registry does not have."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A registered schema; `references` are the texts of schemas that it uses, innermost first."""

    schema_type: str
    text: str
    references: tuple[str, ...] = ()


#: Schemas by address and path, cached in this process; for an unknown schema, the error is cached.
_cache: dict[tuple[str, str], Any] = {}


class SchemaRegistry:
    """The registry at an address such as `http://user:password@registry:8081`."""

    def __init__(
        self, url: str, timeout_s: float = _TIMEOUT_S, *, keeps_unknown: bool = True
    ) -> None:
        """Raise ConfigError for a text that is no address.

        Without `keeps_unknown`, a schema that was unknown is requested again, because a process
        that runs for days may see its registration.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                f"registry is {_without_secret(url)!r}; expected an address such as"
                " http://127.0.0.1:8081"
            )
        self._timeout_s = timeout_s
        self._keeps_unknown = keeps_unknown
        self._secret = ""
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._secret = base64.b64encode(pair.encode()).decode()
        #: Address without user and password, for messages.
        self.url = _without_secret(url).rstrip("/")

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """Return the schema of an id. Raises UnknownSchemaError, RegistryError."""
        return self._schema(f"/schemas/ids/{schema_id}", "")

    def serialized(self, schema_id: int) -> RegisteredSchema:
        """Return the schema of an id, for Protobuf as a FileDescriptorProto in base64.

        Raises UnknownSchemaError, RegistryError. The request asks for this form by the query
        parameter `format`; a registry that does not know the parameter returns the text of the
        `.proto` file.
        """
        return self._schema(f"/schemas/ids/{schema_id}", "?format=serialized")

    def latest(self, subject: str) -> RegisteredSchema:
        """Return the newest schema of a subject at this moment; the schema is not cached.

        Raises UnknownSchemaError, RegistryError.
        """
        return self._parsed(f"/subjects/{quote(subject, safe='')}/versions/latest", "")

    def _schema(self, path: str, form: str) -> RegisteredSchema:
        key = (self.url, path + form)
        if key not in _cache:
            try:
                _cache[key] = self._parsed(path, form)
            except UnknownSchemaError as error:
                if not self._keeps_unknown:
                    raise
                _cache[key] = error
        found = _cache[key]
        if isinstance(found, UnknownSchemaError):
            raise UnknownSchemaError(str(found))
        assert isinstance(found, RegisteredSchema)
        return found

    def _parsed(self, path: str, form: str) -> RegisteredSchema:
        answer = self._get(path + form)
        text = answer.get("schema")
        if not isinstance(text, str):
            raise RegistryError(f"schema registry {self.url}{path} answered without a schema")
        references: dict[str, None] = {}
        for each in answer.get("references") or ():
            subject, version = quote(each["subject"], safe=""), int(each["version"])
            inner = self._schema(f"/subjects/{subject}/versions/{version}", form)
            references |= dict.fromkeys((*inner.references, inner.text))
        return RegisteredSchema(answer.get("schemaType") or "AVRO", text, tuple(references))

    def _get(self, path: str) -> dict[str, Any]:
        request = urllib.request.Request(self.url + path, headers={"Accept": _ACCEPT})
        if self._secret:
            request.add_header("Authorization", f"Basic {self._secret}")
        where = f"schema registry {self.url}{path}"
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s) as response:
                answer = json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                reason = f"{where} answered {error.code} {error.reason}"
            if error.code == _NOT_FOUND:
                raise UnknownSchemaError(reason) from error
            raise RegistryError(reason) from error
        except (OSError, ValueError) as error:
            raise RegistryError(f"{where} cannot be read: {error}") from error
        if not isinstance(answer, dict):
            raise RegistryError(f"{where} answered with something else than a JSON object")
        return answer


def _without_secret(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
