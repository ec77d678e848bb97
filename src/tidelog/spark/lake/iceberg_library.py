"""Additions to pyiceberg for Iceberg tables: catalogs from options, and durable local files.

A user writes `iceberg:NAMESPACE.TABLE`. The catalog comes from options with pyiceberg's names, or
from pyiceberg's own configuration. If the options give only a `warehouse`, the catalog is embedded:
a SQLite file in that directory. pyiceberg leaves the durability of local files to the kernel, so
after a power failure a catalog could refer to lost metadata. This module therefore syncs local
files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import (
    BadRequestError,
    ForbiddenError,
    NoSuchNamespaceError,
    OAuthError,
    RESTError,
    UnauthorizedError,
)
from pyiceberg.io import OutputFile, OutputStream
from pyiceberg.io.pyarrow import (
    PyArrowFileIO,
)
from requests import RequestException
from sqlalchemy import URL
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from tidelog.spark.lake.state import TableError
from tidelog.spark.lake.stores import location_of, reason_of, sync_file

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

#: The file of an embedded catalog, in its warehouse.
CATALOG_FILE: Final = "catalog.db"
#: The name of every embedded catalog, under which its SQLite file lists the tables.
_EMBEDDED: Final = "default"
#: Exceptions that a catalog or a store raises for a failed request.
CATALOG_ERRORS: Final = (OSError, SQLAlchemyError, RESTError, RequestException, ValueError)
#: Errors after which a retry would fail again. A RequestException is retried in any case, even if
#: it is also a ValueError.
REFUSALS: Final = (
    ValueError,
    BadRequestError,
    UnauthorizedError,
    ForbiddenError,
    OAuthError,
    NoSuchNamespaceError,
    PermissionError,
)
_FILE_IO: Final = f"{__name__}.DurableFileIO"
#: The keys are pyiceberg's names of store options; each value is the name of the same option in
#: `LakeStore`, which takes delta-rs's names.
_STORE_OPTIONS: Final = {
    "s3.endpoint": "AWS_ENDPOINT_URL",
    "s3.access-key-id": "AWS_ACCESS_KEY_ID",
    "s3.secret-access-key": "AWS_SECRET_ACCESS_KEY",
    "s3.session-token": "AWS_SESSION_TOKEN",
    "s3.region": "AWS_REGION",
    "client.access-key-id": "AWS_ACCESS_KEY_ID",
    "client.secret-access-key": "AWS_SECRET_ACCESS_KEY",
    "client.session-token": "AWS_SESSION_TOKEN",
    "client.region": "AWS_REGION",
    "adls.account-name": "AZURE_STORAGE_ACCOUNT_NAME",
    "adls.account-key": "AZURE_STORAGE_ACCOUNT_KEY",
    "adls.sas-token": "AZURE_STORAGE_SAS_TOKEN",
    "adls.tenant-id": "AZURE_STORAGE_TENANT_ID",
    "adls.client-id": "AZURE_STORAGE_CLIENT_ID",
    "adls.client-secret": "AZURE_STORAGE_CLIENT_SECRET",
}


def open_catalog(options: Mapping[str, str], where: str) -> Catalog:
    """Return the catalog that the options or pyiceberg's configuration define. Raises TableError.

    The option `catalog` names a catalog of pyiceberg's configuration; without this option,
    pyiceberg uses its default catalog. `where` is the place of the table, for the error message.
    """
    properties: dict[str, Any] = {"py-io-impl": _FILE_IO, **options}
    name = properties.pop("catalog", None)
    warehouse = embedded_warehouse(options)
    if warehouse is not None:
        name = _EMBEDDED
        properties |= _embedded(warehouse, where)
    try:
        try:
            return load_catalog(name, **properties)
        except OperationalError:
            return load_catalog(name, **properties)  # another process has just created the catalog
    except CATALOG_ERRORS as error:
        raise TableError(
            f"{where} has no catalog: {reason_of(error)}. Give one, such as warehouse=DIRECTORY, or"
            " uri=https://HOST and warehouse=NAME, or catalog=NAME of pyiceberg's configuration"
        ) from error


def embedded_warehouse(options: Mapping[str, str]) -> str | None:
    """Return the location of the option `warehouse` if no option names a catalog; else None."""
    if "warehouse" not in options or any(name in options for name in ("uri", "type", "catalog")):
        return None
    return location_of(options["warehouse"])


def _embedded(warehouse: str, where: str) -> dict[str, str]:
    """Return the properties of a SQLite catalog in a local directory. Raises TableError."""
    if "://" in warehouse:
        raise TableError(
            f"{where}: the warehouse {warehouse} needs a catalog, whose commits are atomic: give"
            " uri=..., of a REST catalog or of a database (sqlite:////DIRECTORY/catalog.db)"
        )
    try:
        os.makedirs(warehouse, exist_ok=True)
    except OSError as error:
        raise TableError(f"{where}: {warehouse} cannot be created: {reason_of(error)}") from error
    uri = URL.create("sqlite", database=os.path.join(warehouse, CATALOG_FILE))
    return {"type": "sql", "uri": uri.render_as_string(), "warehouse": warehouse}


def store_options(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the options of `LakeStore` that correspond to pyiceberg's properties."""
    options = {
        ours: str(properties[theirs])
        for theirs, ours in reversed(_STORE_OPTIONS.items())
        if theirs in properties
    }
    options |= {name: value for name, value in properties.items() if name.isupper()}
    if str(properties.get("s3.endpoint", "")).startswith("http://"):
        options["AWS_ALLOW_HTTP"] = "true"
    return options


class DurableFileIO(PyArrowFileIO):
    """pyiceberg's file access through Arrow; a local file is durable once it is closed."""

    def new_output(self, location: str) -> OutputFile:  # type: ignore[override]  # as the base has it
        """Return an output file, which is synced on close if it is local."""
        output = super().new_output(location)
        is_local = "://" not in location.removeprefix("file://")
        return _DurableOutput(output, location.removeprefix("file://")) if is_local else output


class _DurableOutput(OutputFile):
    def __init__(self, output: OutputFile, path: str) -> None:
        super().__init__(output.location)
        self._output = output
        self._path = path

    def __len__(self) -> int:
        return len(self._output)

    def exists(self) -> bool:
        return self._output.exists()

    def to_input_file(self) -> Any:
        return self._output.to_input_file()

    def create(self, overwrite: bool = False) -> OutputStream:
        return _DurableStream(self._output.create(overwrite), self._path)


class _DurableStream:
    def __init__(self, stream: Any, path: str) -> None:
        self._stream = stream
        self._path = path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, written: bytes) -> int:
        return int(self._stream.write(written))

    def close(self) -> None:
        if not self._stream.closed:
            self._stream.close()
            sync_file(self._path)

    def __enter__(self) -> _DurableStream:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
