"""Parts that verbs of `tidelog pipeline` share: options, a Spark session, a bar of progress.

Spark and Arrow are an extra (`spark` of pyproject.toml); only the commands that need Spark load the
extra.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from tidelog.core.errors import ConfigError, TidelogError
from tidelog.runtime.extras import install_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CoresOption = Annotated[int, typer.Option(min=1, help="Worker threads of Spark.")]
MemoryOption = Annotated[str, typer.Option(help="Memory of Spark's Java process.")]


def _writable_page(path: Path | None) -> Path | None:
    """Return the path of the HTML page; refuse an unwritable path before the work begins."""
    if path is not None and (path.is_dir() or not os.access(path.absolute().parent, os.W_OK)):
        raise typer.BadParameter(f"{path} cannot be written: a file in a directory expected")
    return path


HtmlOption = Annotated[
    Path | None,
    typer.Option(
        "--html",
        callback=_writable_page,
        help="Write the report as one HTML file, with plots, as well.",
    ),
]


def absolute(text: str) -> str:
    """Return an absolute path; return the address of an object store unchanged."""
    return text if "://" in text else str(Path(text).absolute())


class SparkFailed(TidelogError):
    """A failed Spark job; the message has the first lines of its reason."""


@contextmanager
def session(name: str, cores: int, memory: str) -> Iterator[SparkSession]:
    """Start a Spark session for a `with` block; error messages name the file of Spark's output."""
    try:
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        from tidelog.spark.session import start_session, stop_session
    except ImportError as error:
        raise ConfigError(f"pipelines need Spark ({error}): {install_command('spark')}") from error
    descriptor, log_path = tempfile.mkstemp(prefix="tidelog-spark-", suffix=".log")
    os.close(descriptor)
    worth_keeping = False
    try:
        spark = start_session(name, cores=cores, memory=memory, log_path=log_path)
        try:
            yield spark
        except (PySparkException, Py4JJavaError) as error:
            # The text of a Spark error comes from the JVM, which ends with the session.
            raise _failed(error, log_path) from error
        finally:
            stop_session(spark)
    except SparkFailed:
        worth_keeping = True
        raise
    except PySparkException as error:  # the Spark session failed to start
        worth_keeping = True
        raise _failed(error, log_path) from error
    finally:
        if not worth_keeping:
            os.unlink(log_path)


def _failed(error: Exception, log_path: str) -> SparkFailed:
    """Return the error of a failed job with the first lines of its reason."""
    reason = "\n".join(str(error).splitlines()[:20])
    return SparkFailed(f"Spark failed, its log is {log_path}: {reason}")


@contextmanager
def progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar of Spark's tasks on standard error, if that is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    quiet = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=quiet) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
