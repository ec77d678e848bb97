"""File operations of a table through Hadoop's file systems: `s3a://`, `hdfs://` and others.

The driver calls Hadoop in Spark's Java process. The module renames no file, because an object store
implements a rename as a copy. A manifest is created with `overwrite(false)`; S3A makes that a
conditional request, which only the first of two writers wins. The table has neither a lock nor
readable file names: Spark reads the table through its manifests.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from tidelog.spark.pipelines.manifests import TableError
from tidelog.spark.pipelines.table_files import Entry, Footer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Hadoop's option for conditional creation: at the end of an upload, S3A checks that the file's
#: name is free.
_CONDITIONAL: Final = "fs.option.create.conditional.overwrite"
_TAKEN: Final = ("FileAlreadyExistsException", "RemoteFileChangedException", "412")


class HadoopFiles:
    """Files of a Hadoop file system."""

    has_view = False
    #: Whether created files appear only when complete; HDFS also shows incomplete files.
    creates_whole = False

    def __init__(self, spark: SparkSession, directory: str) -> None:
        self.root = directory.rstrip("/")
        try:
            gateway: Any = spark._jvm
            configuration = spark._jsparkSession.sessionState().newHadoopConf()
        except Exception as error:
            raise TableError(
                f"{directory}: paths with a scheme need a session with Spark's Java process; Spark"
                " Connect has none on this side"
            ) from error
        self._java: Any = gateway
        self._configuration: Any = configuration
        with self._sentence("", "cannot be used"):
            self._system: Any = self._at("").getFileSystem(configuration)

    def entries(self, folder: str) -> list[Entry]:
        """Return the entries of a folder, sorted by name; empty if the folder does not exist."""
        with self._sentence(folder, "cannot be read"):
            if not self._system.exists(self._at(folder)):
                return []
            found = [
                Entry(
                    status.getPath().getName(),
                    status.isDirectory(),
                    status.getLen(),
                    status.getModificationTime(),
                )
                for status in self._system.listStatus(self._at(folder))
            ]
        return sorted(found, key=lambda entry: entry.name)

    def read(self, name: str) -> str:
        """Return the text of a file. Raises TableError."""
        with self._sentence(name, "cannot be read"):
            stream = self._system.open(self._at(name))
            try:
                return bytes(stream.readAllBytes()).decode()
            finally:
                stream.close()

    def create(self, name: str, text: str) -> None:
        """Create a file with this text. Raises FileExistsError if the name is taken."""
        place = self._at(name)
        try:
            builder = self._system.createFile(place).overwrite(False)
            stream = builder.opt(_CONDITIONAL, "true").build()
            try:
                stream.write(bytearray(text.encode()))
            finally:
                stream.close()
        except self._failures() as error:
            reason = _reason(error)
            if any(word in reason for word in _TAKEN):
                raise FileExistsError(f"{place.toString()}: {reason}") from error
            raise TableError(f"{place.toString()} cannot be written: {reason}") from error

    def make_folder(self, folder: str) -> None:
        """Create a folder and its parents."""
        with self._sentence(folder, "cannot be used"):
            if not self._system.mkdirs(self._at(folder)):
                raise TableError(f"{self.root}/{folder} cannot be created")

    def sync(self, folder: str) -> None:
        """Do nothing: Hadoop's file systems make a file durable when it is closed."""

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with its content; do nothing if it does not exist."""
        with self._sentence(name, "cannot be deleted"):
            self._system.delete(self._at(name), True)

    def show(self, name: str, visible: str) -> None:
        """Do nothing: see `has_view`."""

    def footer(self, name: str, columns: tuple[str, ...]) -> Footer:
        """Return a Parquet file's footer, read by Spark's Parquet."""
        parquet = self._java.org.apache.parquet.hadoop
        with self._sentence(name, "cannot be read"):
            source = parquet.util.HadoopInputFile.fromPath(self._at(name), self._configuration)
            reader = parquet.ParquetFileReader.open(source)
            try:
                blocks = list(reader.getFooter().getBlocks())
            finally:
                reader.close()
            rows = sum(int(block.getRowCount()) for block in blocks)
            found: dict[str, list[tuple[int, int]]] = {column: [] for column in columns}
            for block in blocks:
                for chunk in block.getColumns():
                    column = chunk.getPath().toDotString()
                    if column in found:
                        part = chunk.getStatistics()
                        found[column].append((part.genericGetMin(), part.genericGetMax()))
        if not rows:
            return Footer(0, {})
        return Footer(
            rows,
            {
                column: (min(low for low, _ in parts), max(high for _, high in parts))
                for column, parts in found.items()
            },
        )

    @contextlib.contextmanager
    def locked(self) -> Iterator[bool]:
        """Exclude no other writer: the creation of the manifest decides between two writers."""
        yield False

    def path(self, name: str) -> str:
        """Return the path of a file, in the form that Spark reads."""
        return f"{self.root}/{name}"

    def _at(self, name: str) -> Any:
        text = f"{self.root}/{name}" if name else self.root
        with self._sentence(name, "is no path"):
            return self._java.org.apache.hadoop.fs.Path(text)

    def _failures(self) -> tuple[type[BaseException], ...]:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        return (Py4JError, PySparkException)

    @contextlib.contextmanager
    def _sentence(self, name: str, what: str) -> Iterator[None]:
        """Convert Java's errors to one sentence."""
        try:
            yield
        except self._failures() as error:
            place = f"{self.root}/{name}" if name else self.root
            raise TableError(f"{place} {what}: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    """Return the class and message of a Java exception, without its stack."""
    java = getattr(error, "java_exception", None)
    text = java.toString() if java is not None else str(error)
    return str(text).splitlines()[0]
