"""Places of tables on command lines: a directory or a URI, and the options of its object store.

The verbs that read and write tables share these parameters.
"""

from __future__ import annotations

from typing import Annotated

import typer

TableArgument = Annotated[
    str, typer.Argument(help="Directory or URI of a Delta table, or iceberg:NAMESPACE.NAME.")
]
StorageOption = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE",
        help="Option of the object store (AWS_REGION=...) or of Iceberg's catalog (warehouse=...).",
    ),
]


def storage_options(words: list[str] | None) -> dict[str, str]:
    """Return `KEY=VALUE` words as a mapping; raise BadParameter for other words."""
    options = {}
    for word in words or ():
        key, equals, value = word.partition("=")
        if not key or not equals:
            raise typer.BadParameter(f"--storage-option {word!r} is not like KEY=VALUE")
        options[key] = value
    return options
