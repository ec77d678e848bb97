"""The generator of decoders: straight-line Python code for one message at one version.

A run is a group of adjacent fields that the code reads by one call of a precompiled Struct. A run
has up to three parts: an array of at most `SHORT_ARRAY` integers, then fixed-width fields, then the
length of the next field of variable width. Within a run of fields, the code expects the fields that
are declared rare to be empty. If any rare field is not empty, the code reads the run again, field
by field, from its first rare field on. The generated function is
`decode(buf, pos, end) -> (message, pos)`. The generated function checks every length against the
remaining bytes before it allocates memory. The function may raise ProtocolError, struct.error,
IndexError and UnicodeDecodeError. After a UnicodeDecodeError, `codec.py` decodes again with a
decoder that replaces malformed text, as Kafka does, so that valid text has no extra cost.
`codec.py` turns struct.error and IndexError into ProtocolError. Messages without records are
decoded from `bytes`, which is faster to index than a view.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple, NoReturn

from tidelog.core.errors import ProtocolError
from tidelog.wire import schema
from tidelog.wire.primitives import decode_long_uvarint, decode_uvarint, skip_tagged_fields
from tidelog.wire.schema import FIXED_FORMATS, FieldSpec, NamedField
from tidelog.wire.source import Source
from tidelog.wire.text import replaced_text

#: The type of decoders: decode(buf, pos, end) -> (message, next position).
Decoder = Callable[[Any, int, int], tuple[Any, int]]

#: Errors that malformed bytes can raise in generated decoders, besides ProtocolError and
#: UnicodeDecodeError.
MALFORMED: Final = (struct.error, IndexError)


class TooManyEntries(ProtocolError):
    """The error for a message whose arrays have more elements than its reader allows."""

    def __init__(self, max_entries: int) -> None:
        super().__init__(f"more than {max_entries:,} entries")


#: Number of integers up to which an array is read together with the fields after it.
SHORT_ARRAY: Final = 16


def _read_int32s(count: int, buf: Any, pos: int) -> list[int]:
    return list(struct.unpack_from(f">{count}i", buf, pos))


def _too_long(what: str, size: int, left: int) -> ProtocolError:
    return ProtocolError(f"{what} claims {size} bytes where {left} are left")


def _bad_null(what: str, length: int) -> ProtocolError:
    if length in (0, -1):
        return ProtocolError(f"{what} is null, which this version does not allow")
    return ProtocolError(f"{what} has the length {length}")


def _bad_tag(what: str) -> ProtocolError:
    return ProtocolError(f"tagged field {what} does not have the size that it claims")


@cache
def _run_readers(flexible: bool, codes: str) -> list[Callable[[Any, int], tuple[Any, ...]]]:
    """Return functions by index: function n reads n integers and then the fields of `codes`."""
    readers: list[Callable[[Any, int], tuple[Any, ...]]]
    readers = [struct.Struct(f">{n}i{codes}").unpack_from for n in range(SHORT_ARRAY + 1)]
    if not flexible:
        return readers

    def null(buf: Any, pos: int) -> NoReturn:
        raise ProtocolError(f"a null array before byte {pos}, which this version does not allow")

    return [null, *readers]


def has_records(struct_class: type, version: int) -> bool:
    """Return whether decoded messages hold views of the frame."""
    for each in schema.fields_of(struct_class):
        if version not in each.spec.versions:
            continue
        if each.spec.kind == "records":
            return True
        if isinstance(each.spec.element, type) and has_records(each.spec.element, version):
            return True
    return False


class _DecodedValue(NamedTuple):
    """A field of variable size, whose length the generated code reads into the local `length`."""

    place: str
    spec: FieldSpec
    what: str
    length: str


class _DecoderBuilder:
    """The builder that emits the decoder of one (message, version)."""

    def __init__(
        self,
        struct_class: type,
        version: int,
        flexible: bool,
        replaces_text: bool,
        max_entries: int | None,
    ) -> None:
        self.source = Source()
        self.root = struct_class
        self.version = version
        self.flexible = flexible
        self.replaces_text = replaces_text
        self.max_entries = max_entries
        self.in_view = has_records(struct_class, version)
        #: The array whose integers begin the current run of fields; None if the run begins
        #: otherwise.
        self.ints: _DecodedValue | None = None
        #: Fields of the current run, not emitted yet: (format character of Python's struct,
        #: variable or attribute that gets the value).
        self.run: list[tuple[str, str]] = []
        #: Rare fields of the current run; the key is the index in `run` of the field's length.
        self.rare: dict[int, _DecodedValue] = {}
        self.source.namespace.update(
            new=object.__new__,
            uvarint=decode_uvarint,
            long_uvarint=decode_long_uvarint,
            skip_tagged=skip_tagged_fields,
            read_int32s=_read_int32s,
            unpack_from=struct.unpack_from,
            too_long=_too_long,
            bad_null=_bad_null,
            bad_tag=_bad_tag,
            replaced_text=replaced_text,
            too_many=TooManyEntries,
        )

    def build(self) -> Decoder:
        with self.source.block("def decode(buf, pos, end):"):
            if self.max_entries is not None:
                self.source.line(f"left = {self.max_entries}")
            target = self.source.fresh("m")
            self.struct(self.root, target)
            self.source.line(f"return {target}, pos")
        return self.source.build("decode", f"decode {self.root.__name__} v{self.version}")

    # -- structs ------------------------------------------------------------------------------

    def struct(self, struct_class: type, target: str) -> None:
        """Emit code that decodes an instance into the local `target`."""
        src = self.source
        class_name = src.constant(struct_class, "C", struct_class)
        frozen = schema.is_frozen(struct_class)
        place = f"{target}_{{}}" if frozen else f"{target}.{{}}"
        if not frozen:
            src.line(f"{target} = new({class_name})")
        tagged = schema.tagged_fields(struct_class, self.version)
        for each in [*schema.absent_fields(struct_class, self.version), *tagged]:
            self.default(place.format(each.name), each)
        for each in schema.plain_fields(struct_class, self.version):
            self.field(place.format(each.name), each, f"{struct_class.__name__}.{each.name}")
        if self.flexible:
            self.tags(struct_class, tagged, place)
        else:
            self.flush()
        if frozen:
            names = [place.format(f.name) for f in schema.fields_of(struct_class)]
            src.line(f"{target} = {class_name}({', '.join(names)})")

    def default(self, place: str, field: NamedField) -> None:
        spec = field.spec
        if spec.kind == "array" and spec.default is not None and not spec.is_shared_empty:
            self.source.line(f"{place} = []")
        elif spec.kind == "struct" and spec.default is not None:
            name = self.source.constant(("default", spec.element), "D", spec.default)
            self.source.line(f"{place} = {name}")
        else:
            self.source.line(f"{place} = {spec.default!r}")

    def tags(self, struct_class: type, tagged: list[NamedField], place: str) -> None:
        src = self.source
        count = src.fresh("t")
        self.run.append(("B", count))
        self.flush()
        with src.block(f"if {count}:"):
            with src.block(f"if {count} > 127:"):
                src.line(f"{count}, pos = long_uvarint({count}, buf, pos)")
            if not tagged:
                src.line(f"pos = skip_tagged({count}, buf, pos, end)")
                return
            with src.block(f"for _ in range({count}):"):
                self.one_tag(struct_class, tagged, place)

    def one_tag(self, struct_class: type, tagged: list[NamedField], place: str) -> None:
        src = self.source
        tag, size, stop = src.fresh("tag"), src.fresh("size"), src.fresh("stop")
        src.line(f"{tag}, pos = uvarint(buf, pos)")
        src.line(f"{size}, pos = uvarint(buf, pos)")
        src.line(f"{stop} = pos + {size}")
        with src.block(f"if {stop} > end:"):
            src.line(f"raise too_long('a tagged field', {size}, end - pos)")
        keyword = "if"
        for each in tagged:
            what = f"{struct_class.__name__}.{each.name}"
            with src.block(f"{keyword} {tag} == {each.spec.tag}:"):
                self.field(place.format(each.name), each, what)
                self.flush()
                with src.block(f"if pos != {stop}:"):
                    src.line(f"raise bad_tag({what!r})")
            keyword = "elif"
        with src.block("else:"):
            src.line(f"pos = {stop}")

    # -- runs ---------------------------------------------------------------------------------

    def field(self, place: str, field: NamedField, what: str) -> None:
        """Add a field to the run of fields; emit the run if the field cannot be part of it."""
        spec = field.spec
        if spec.kind in FIXED_FORMATS:
            self.run.append((FIXED_FORMATS[spec.kind], place))
            return
        if spec.kind == "struct":
            self.one_struct(place, spec)
            return
        value = _DecodedValue(place, spec, what, self.source.fresh("n"))
        self.run.append((self.length_code(spec), value.length))
        if spec.rare:
            self.rare[len(self.run) - 1] = value
            return
        self.flush()
        if spec.element == "int32" and not self.nullable(spec):
            self.ints = value
        else:
            self.value(value)

    def one_struct(self, place: str, spec: FieldSpec) -> None:
        """Emit the run of fields and a struct; the run ends with a nullable struct's marker."""
        assert isinstance(spec.element, type)
        src, local = self.source, self.source.fresh("m")
        if not self.nullable(spec):
            self.flush()
            self.struct(spec.element, local)
            src.line(f"{place} = {local}")
            return
        marker = src.fresh("n")
        self.run.append(("b", marker))
        self.flush()
        with src.block(f"if {marker} < 0:"):
            src.line(f"{place} = None")
        with src.block("else:"):
            self.struct(spec.element, local)
            src.line(f"{place} = {local}")

    def length_code(self, spec: FieldSpec) -> str:
        """Return the format character (of Python's struct) of a field's length.

        The run has only the first byte of a compact length.
        """
        if self.flexible:
            return "B"
        return "h" if spec.kind == "string" else "i"

    def nullable(self, spec: FieldSpec) -> bool:
        return self.version in spec.nullable

    def flush(self) -> None:
        """Emit the code that reads the current run of fields."""
        ints, run, rare = self.ints, self.run, self.rare
        self.ints, self.run, self.rare = None, [], {}
        if ints is None:
            self.read(run)
        else:
            self.read_with_ints(ints, run)
        if not rare:
            return
        src = self.source
        with src.block(f"if {' and '.join(map(self.is_empty, rare.values()))}:"):
            for value in rare.values():
                src.line(f"{value.place} = {self.empty(value)}")
        with src.block("else:"):
            first = min(rare)
            again = run[first + 1 :]
            if again:
                src.line(f"pos -= {struct.calcsize('>' + ''.join(code for code, _ in again))}")
            self.value(rare[first])
            for index in range(first + 1, len(run)):
                self.run.append(run[index])
                if index in rare:
                    self.read(self.take())
                    self.value(rare[index])
            self.read(self.take())

    def take(self) -> list[tuple[str, str]]:
        run, self.run = self.run, []
        return run

    def read(self, run: list[tuple[str, str]]) -> None:
        """Emit one read of a Struct for all fields of `run`."""
        if not run:
            return
        src = self.source
        codes = "".join(code for code, _ in run)
        targets = [target for _, target in run]
        if codes == "B":
            src.line(f"{targets[0]} = buf[pos]")
            src.line("pos += 1")
            return
        packer = struct.Struct(">" + codes)
        name = src.constant(codes, "u", packer.unpack_from)
        src.line(f"{', '.join(targets)}{',' if len(targets) == 1 else ''} = {name}(buf, pos)")
        src.line(f"pos += {packer.size}")

    def read_with_ints(self, ints: _DecodedValue, run: list[tuple[str, str]]) -> None:
        """Emit one read for a short array and the fields after it, or two for a longer array."""
        src = self.source
        codes = "".join(code for code, _ in run)
        targets = ", ".join([f"*{ints.place}", *(target for _, target in run)])
        table = src.constant(("ints", codes), "r", _run_readers(self.flexible, codes))
        count = ints.length
        short = (
            f"{count} < {SHORT_ARRAY + 2}" if self.flexible else f"0 <= {count} <= {SHORT_ARRAY}"
        )
        with src.block(f"if {short}:"):
            src.line(f"{targets}{'' if run else ','} = {table}[{count}](buf, pos)")
            size = struct.calcsize(">" + codes) - (4 if self.flexible else 0)
            src.line(f"pos += {count} * 4 + {size}")
        with src.block("else:"):
            self.value(ints)
            self.read(run)

    # -- variable fields ----------------------------------------------------------------------

    def is_empty(self, value: _DecodedValue) -> str:
        """Return an expression that tests whether a field's length means an empty value."""
        nullable, length = self.nullable(value.spec), value.length
        if value.spec.kind == "string":
            return f"{length} == {0 if self.flexible else -1}"
        if self.flexible:
            return f"{length} <= 1" if nullable else f"{length} == 1"
        return f"-1 <= {length} <= 0" if nullable else f"{length} == 0"

    def empty(self, value: _DecodedValue) -> str:
        """Return an expression for an empty value of the field: None or an empty list."""
        if value.spec.kind == "string":
            return "None"
        if not self.nullable(value.spec):
            return "[]"
        return f"[] if {value.length} == {1 if self.flexible else 0} else None"

    def value(self, value: _DecodedValue) -> None:
        """Emit the read of a variable-size field, after the read of the first byte of its length.

        The first byte of a compact length is still encoded: the length plus one, or zero for null.
        """
        if self.flexible:
            with self.source.block(f"if {value.length} > 127:"):
                self.source.line(f"{value.length}, pos = long_uvarint({value.length}, buf, pos)")
        self.null(value)
        with self.source.block("else:"):
            if value.spec.kind == "array":
                self.array(value)
            else:
                self.sized(value)

    def null(self, value: _DecodedValue) -> None:
        """Emit the code for a null value."""
        src, length = self.source, value.length
        with src.block(f"if {length} == 0:" if self.flexible else f"if {length} < 0:"):
            if not self.nullable(value.spec):
                src.line(f"raise bad_null({value.what!r}, {length})")
                return
            if not self.flexible:
                with src.block(f"if {length} != -1:"):
                    src.line(f"raise bad_null({value.what!r}, {length})")
            src.line(f"{value.place} = None")

    def sized(self, value: _DecodedValue) -> None:
        """Emit the read of a string, bytes or records of a known length."""
        src, stop = self.source, self.source.fresh("e")
        src.line(f"{stop} = pos + {value.length}{' - 1' if self.flexible else ''}")
        with src.block(f"if {stop} > end:"):
            src.line(f"raise too_long({value.what!r}, {stop} - pos, end - pos)")
        if value.spec.kind == "bytes" and self.in_view:
            src.line(f"{value.place} = bytes(buf[pos:{stop}])")
        elif value.spec.kind != "string":
            src.line(f"{value.place} = buf[pos:{stop}]")
        elif self.replaces_text:
            src.line(f"{value.place} = replaced_text(buf[pos:{stop}])")
        elif self.in_view:
            src.line(f"{value.place} = str(buf[pos:{stop}], 'utf-8')")
        else:
            src.line(f"{value.place} = buf[pos:{stop}].decode()")
        src.line(f"pos = {stop}")

    def array(self, value: _DecodedValue) -> None:
        src, count, element = self.source, value.length, value.spec.element
        if self.flexible:
            src.line(f"{count} -= 1")
        kind = "struct" if isinstance(element, type) else str(element)
        least = schema.min_size(kind, element, self.version, self.flexible)
        if least < 1:
            raise schema.SchemaError(f"{value.what} has elements of no bytes")
        claim = count if least == 1 else f"{count} * {least}"
        with src.block(f"if {claim} > end - pos:"):
            src.line(f"raise too_long({value.what!r}, {claim}, end - pos)")
        if self.max_entries is not None:
            src.line(f"left -= {count}")
            with src.block("if left < 0:"):
                src.line(f"raise too_many({self.max_entries})")
        if element == "int32":
            src.line(f"{value.place} = read_int32s({count}, buf, pos)")
            src.line(f"pos += {count} * 4")
        elif kind in FIXED_FORMATS and kind != "uuid":
            code = FIXED_FORMATS[kind]
            src.line(f"{value.place} = list(unpack_from(f'>{{{count}}}{code}', buf, pos))")
            src.line(f"pos += {count} * {struct.calcsize('>' + code)}")
        else:
            self.loop(value, kind)

    def loop(self, value: _DecodedValue, kind: str) -> None:
        """Emit the read of an array's elements, one by one."""
        src, element = self.source, value.spec.element
        items, item = src.fresh("a"), src.fresh("m")
        src.line(f"{value.place} = {items} = []")
        with src.block(f"for _ in range({value.length}):"):
            if isinstance(element, type):
                self.struct(element, item)
            elif kind == "string":
                length = src.fresh("n")
                self.read([("B" if self.flexible else "h", length)])
                inner = FieldSpec("string", value.spec.versions, schema.NO_VERSIONS, "", False)
                self.value(_DecodedValue(item, inner, value.what, length))
            else:
                raise schema.SchemaError(f"arrays of {kind} are not generated")
            src.line(f"{items}.append({item})")


def build_decoder(
    struct_class: type,
    version: int,
    flexible: bool,
    *,
    replaces_text: bool = False,
    max_entries: int | None = None,
) -> Decoder:
    """Return the decoder of one message at one version.

    The decoder takes bytes, or a view if `has_records`. With `replaces_text`, the decoder replaces
    invalid UTF-8; otherwise it raises UnicodeDecodeError. With `max_entries`, the decoder raises
    TooManyEntries if all arrays of a message together have more elements.
    """
    return _DecoderBuilder(struct_class, version, flexible, replaces_text, max_entries).build()
