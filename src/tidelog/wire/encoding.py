"""The generator of encoders: straight-line Python code for one message at one version.

The generated function `encode(m, out, parts)` appends chunks of bytes to `out`. A record buffer of
OWN_PART_BYTES or more becomes an element of `parts` without a copy; the chunks before the buffer
are joined to one element. A run is a group of fields that one call of a precompiled Struct packs. A
run of fields holds fixed-width fields and the length of the next variable field. If the variable
field is a short array of integers, the run also holds these integers. A run of fields is packed at
once if all its fields that are declared rare are empty; otherwise its fields are packed one by one.
A field that the version lacks must have its default unless it is ignorable, or a SchemaError is
raised. Values of wrong types raise Python's errors (struct.error, AttributeError, ...), which
`codec.py` turns into SchemaError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

from tidelog.wire import schema
from tidelog.wire.primitives import ONE_BYTE, Buffer, Records, encode_uvarint
from tidelog.wire.schema import FIXED_FORMATS, FieldSpec, NamedField, SchemaError
from tidelog.wire.source import Source

#: The type of encoders: encode(message, chunks, parts).
Encoder = Callable[[Any, list[Buffer], list[Buffer]], None]

#: Errors that a wrongly built message can raise in generated encoders, besides SchemaError.
MISBUILT: Final = (struct.error, AttributeError, TypeError, ValueError, OverflowError)

#: Size from which a record buffer becomes a part of its own; copying a smaller buffer costs less.
OWN_PART_BYTES: Final = 8 * 1024

#: Number of integers up to which an array is packed together with the fields before it.
SHORT_ARRAY: Final = 16


def _pack_int32s(values: Sequence[int]) -> bytes:
    return struct.pack(f">{len(values)}i", *values)


@cache
def _run_packers(codes: str) -> list[Callable[..., bytes]]:
    """Return functions by index: function n packs the fields of `codes` and then n integers."""
    return [struct.Struct(f">{codes}{n}i").pack for n in range(SHORT_ARRAY + 1)]


#: Element types of tagged arrays; a short array is packed together with the size of its tagged
#: field.
_TAG_ARRAYS: Final = ("int8", "int16", "int32")


@cache
def _tag_packers(element: str) -> tuple[int, list[Callable[..., bytes]]]:
    """Return an element's size, and functions by index: function n packs n elements.

    Before the elements, function n packs one byte for the size of the tagged field, and one byte
    for the length of the array.
    """
    code = FIXED_FORMATS[element]
    packers = [struct.Struct(f">BB{n}{code}").pack for n in range(SHORT_ARRAY + 1)]
    return struct.calcsize(f">{code}"), packers


def _records_size(records: Records) -> int:
    if isinstance(records, (list, tuple)):
        return sum(map(_records_size, records))
    if isinstance(records, memoryview) and records.nbytes != len(records):
        raise SchemaError("a view of records whose items are not bytes")
    return len(records)


def _bytes_size(value: Buffer) -> int:
    view = memoryview(value)
    if view.nbytes != len(view):
        raise SchemaError("a view whose items are not bytes")
    return view.nbytes


def _put_records(records: Records, size: int, out: list[Buffer], parts: list[Buffer]) -> None:
    if isinstance(records, (list, tuple)):
        for each in records:
            _put_records(each, len(each), out, parts)
    elif size < OWN_PART_BYTES:
        out.append(records)  # type: ignore[arg-type]
    else:
        if out:
            # The first part must be mutable, because the frame's size is written into it later.
            parts.append(b"".join(out) if parts else bytearray().join(out))
            out.clear()
        parts.append(records)  # type: ignore[arg-type]


def _absent(what: str, version: int) -> SchemaError:
    return SchemaError(f"{what} is set, but version {version} cannot carry it")


def _bad_uuid(what: str) -> SchemaError:
    return SchemaError(f"{what} is not 16 bytes")


class _EncodedValue(NamedTuple):
    """Names of the local variables with a variable-size field's value and its size.

    The value of a string is its bytes, and the size of null is -1.
    """

    spec: FieldSpec
    local: str
    size: str


class _EncoderBuilder:
    """The builder that emits the encoder of one (message, version)."""

    def __init__(self, struct_class: type, version: int, flexible: bool) -> None:
        self.source = Source()
        self.root = struct_class
        self.version = version
        self.flexible = flexible
        #: Fields of the current run, not emitted yet: (format character of Python's struct,
        #: expression or "" for a pad byte).
        self.run: list[tuple[str, str]] = []
        #: Rare fields of the current run, each with its expression; the key is the index in `run`
        #: of the field's length.
        self.rare: dict[int, tuple[str, FieldSpec]] = {}
        self.in_tag = False
        self.source.namespace.update(
            uvarint=encode_uvarint,
            one_byte=ONE_BYTE,
            pack=struct.pack,
            pack_int32s=_pack_int32s,
            records_size=_records_size,
            bytes_size=_bytes_size,
            put_records=_put_records,
            absent=_absent,
            bad_uuid=_bad_uuid,
        )

    def build(self) -> Encoder:
        with self.source.block("def encode(m, out, parts):"):
            self.struct(self.root, "m")
            self.source.line("return")
        return self.source.build("encode", f"encode {self.root.__name__} v{self.version}")

    # -- structs ------------------------------------------------------------------------------

    def struct(self, struct_class: type, var: str) -> None:
        """Emit code that writes the struct in the local `var`."""
        for each in schema.absent_fields(struct_class, self.version):
            if not each.spec.ignorable:
                self.must_be_default(struct_class, var, each)
        for each in schema.plain_fields(struct_class, self.version):
            self.field(f"{var}.{each.name}", each, f"{struct_class.__name__}.{each.name}")
        tagged = schema.tagged_fields(struct_class, self.version) if self.flexible else []
        if self.flexible and not tagged:
            self.run.append(("x", ""))
        self.flush()
        if tagged:
            self.tags(struct_class, var, tagged)

    def differs(self, value: str, spec: FieldSpec) -> str:
        """Return an expression that tests whether `value` differs from the field's default."""
        if spec.default is None:
            return f"{value} is not None"
        if spec.kind == "array":
            return value if spec.nullable.high < 0 else f"({value} is None or {value})"
        if spec.kind == "struct":
            name = self.source.constant(("default", spec.element), "D", spec.default)
            return f"{value} is not {name} and {value} != {name}"
        if spec.default is False:
            return value
        return f"{value} != {spec.default!r}"

    def must_be_default(self, struct_class: type, var: str, field: NamedField) -> None:
        value = f"{var}.{field.name}"
        what = f"{struct_class.__name__}.{field.name}"
        with self.source.block(f"if {self.differs(value, field.spec)}:"):
            self.source.line(f"raise absent({what!r}, {self.version})")

    def tags(self, struct_class: type, var: str, tagged: list[NamedField]) -> None:
        """Emit code that writes a count and the tagged fields whose values are not the default."""
        src = self.source
        found = src.fresh("tags")
        src.line(f"{found} = []")
        for each in tagged:
            value = src.fresh("v")
            src.line(f"{value} = {var}.{each.name}")
            with src.block(f"if {self.differs(value, each.spec)}:"):
                self.tag(found, value, each, f"{struct_class.__name__}.{each.name}")
        src.line(f"out.append(one_byte[len({found})])")
        src.line(f"out += {found}")

    def tag(self, found: str, value: str, field: NamedField, what: str) -> None:
        """Emit code that appends one tagged field (tag, size, value) to the list `found`."""
        src, spec = self.source, field.spec
        assert spec.tag is not None
        tag = encode_uvarint(spec.tag)
        code = FIXED_FORMATS.get(spec.kind)
        if code is not None and spec.kind != "uuid":
            prefix = tag + ONE_BYTE[struct.calcsize(f">{code}")]
            pack = src.constant(code, "p", struct.Struct(f">{code}").pack)
            src.line(f"{found}.append({prefix!r} + {pack}({value}))")
        elif spec.element in _TAG_ARRAYS and not self.nullable(spec):
            width, packers = _tag_packers(spec.element)
            table, size = src.constant(("tags", spec.element), "t", packers), src.fresh("n")
            src.line(f"{size} = len({value})")
            with src.block(f"if {size} <= {SHORT_ARRAY}:"):
                lengths = f"{size} * {width} + 1, {size} + 1"
                src.line(f"{found}.append({tag!r} + {table}[{size}]({lengths}, *{value}))")
            with src.block("else:"):
                self.long_tag(found, value, field, what)
        else:
            self.long_tag(found, value, field, what)

    def long_tag(self, found: str, value: str, field: NamedField, what: str) -> None:
        """Emit a tagged field of any size; its value is first written to a separate `out` list."""
        src, outer = self.source, self.source.fresh("out")
        assert field.spec.tag is not None
        src.line(f"{outer} = out; out = []")
        self.in_tag = True
        self.field(value, field, what)
        self.flush()
        self.in_tag = False
        src.line(f"{value} = b''.join(out); out = {outer}")
        tag = encode_uvarint(field.spec.tag)
        src.line(f"{found}.append(b''.join(({tag!r}, uvarint(len({value})), {value})))")

    # -- runs ---------------------------------------------------------------------------------

    def field(self, expression: str, field: NamedField, what: str) -> None:
        """Add a field to the run of fields; emit the run if the field cannot be part of it."""
        spec, src = field.spec, self.source
        if spec.kind == "uuid":
            with src.block(f"if len({expression}) != 16:"):
                src.line(f"raise bad_uuid({what!r})")
        if spec.kind in FIXED_FORMATS:
            self.run.append((FIXED_FORMATS[spec.kind], expression))
        elif spec.kind == "struct":
            self.one_struct(expression, spec)
        elif spec.rare:
            self.rare_field(expression, spec)
        else:
            self.variable(expression, spec)

    def one_struct(self, expression: str, spec: FieldSpec) -> None:
        """Add a struct to the run of fields; a nullable struct's marker byte ends the run."""
        assert isinstance(spec.element, type)
        local = self.source.fresh("m")
        self.source.line(f"{local} = {expression}")
        if not self.nullable(spec):
            self.struct(spec.element, local)
            return
        self.run.append(("b", f"-1 if {local} is None else 1"))
        self.flush()
        with self.source.block(f"if {local} is not None:"):
            self.struct(spec.element, local)

    def rare_field(self, expression: str, spec: FieldSpec) -> None:
        """Add a rare field to the run as if it were empty (null for strings)."""
        local = self.source.fresh("r")
        self.source.line(f"{local} = {expression}")
        null, empty = (0, 1) if self.flexible else (-1, 0)
        length = str(null if spec.kind == "string" else empty)
        if spec.kind == "array" and self.nullable(spec):
            length = f"{null} if {local} is None else {empty}"
        self.rare[len(self.run)] = (local, spec)
        self.run.append((self.length_code(spec), length))

    def length_code(self, spec: FieldSpec) -> str:
        """Return the format character (of Python's struct) of a field's length.

        A compact length in a run is a single byte.
        """
        if self.flexible:
            return "B"
        return "h" if spec.kind == "string" else "i"

    def nullable(self, spec: FieldSpec) -> bool:
        return self.version in spec.nullable

    def take(self) -> tuple[list[tuple[str, str]], dict[int, tuple[str, FieldSpec]]]:
        taken = self.run, self.rare
        self.run, self.rare = [], {}
        return taken

    def flush(self) -> None:
        """Emit the code that packs the current run of fields."""
        run, rare = self.take()
        if not rare:
            self.pack(run)
            return
        with self.source.block(f"if {self.all_empty(rare)}:"):
            self.pack(run)
        with self.source.block("else:"):
            self.one_by_one(run, rare)

    def all_empty(self, rare: dict[int, tuple[str, FieldSpec]]) -> str:
        """Return an expression that is true if all fields in `rare` have empty values."""
        return " and ".join(
            f"{local} is None"
            if spec.kind == "string"
            else (f"not {local}" if self.nullable(spec) else f"not {local} and {local} is not None")
            for local, spec in rare.values()
        )

    def one_by_one(
        self, run: list[tuple[str, str]], rare: dict[int, tuple[str, FieldSpec]]
    ) -> None:
        """Emit the fields of a run one by one, including the fields that are declared rare."""
        for index, write in enumerate(run):
            if index in rare:
                local, spec = rare[index]
                self.variable(local, spec)
            else:
                self.run.append(write)
        run, _ = self.take()
        self.pack(run)

    def pack(self, run: list[tuple[str, str]]) -> None:
        """Emit one pack of a Struct for all fields of `run`."""
        if not run:
            return
        codes = "".join(code for code, _ in run)
        values = [value for _, value in run if value]
        if codes == "x":
            self.source.line("out.append(b'\\0')")
            return
        name = self.source.constant(codes, "p", struct.Struct(">" + codes).pack)
        self.source.line(f"out.append({name}({', '.join(values)}))")

    # -- variable fields ----------------------------------------------------------------------

    def variable(self, expression: str, spec: FieldSpec) -> None:
        """Emit the run of fields up to a variable field's length, then the variable field."""
        src = self.source
        value = _EncodedValue(spec, src.fresh("v"), src.fresh("n"))
        src.line(f"{value.local} = {expression}")
        self.measure(value)
        if spec.element == "int32":
            self.ints(value)
            return
        self.length(value)
        with src.block(f"if {value.size} > 0:"):
            if spec.shared:
                self.shared_loop(value)
            elif spec.kind == "array":
                self.loop(value)
            elif spec.kind == "string":
                src.line(f"out.append({value.local})")
            elif self.in_tag:
                raise SchemaError("records and bytes cannot be tagged or shared")
            else:
                src.line(f"put_records({value.local}, {value.size}, out, parts)")

    def measure(self, value: _EncodedValue) -> None:
        """Emit the computation of a value's size, after encoding a string to bytes."""
        src, local, size = self.source, value.local, value.size
        if value.spec.kind == "string":
            plain = f"{local} = {local}.encode(); {size} = len({local})"
        elif value.spec.kind == "array":
            plain = f"{size} = len({local})"
        else:
            plain = f"{size} = {value.spec.kind}_size({local})"
        if not self.nullable(value.spec):
            src.line(plain)
            return
        with src.block(f"if {local} is None:"):
            src.line(f"{size} = -1")
        with src.block("else:"):
            src.line(plain)

    def length(self, value: _EncodedValue) -> None:
        """Emit the run of fields and a length; a compact length is encoded as length plus one."""
        run, rare = self.take()
        length = (self.length_code(value.spec), f"{value.size}{' + 1' if self.flexible else ''}")
        tests = [self.all_empty(rare)] if rare else []
        if self.flexible:
            tests.append(f"{value.size} < 127")
        if not tests:
            self.pack([*run, length])
            return
        src = self.source
        with src.block(f"if {' and '.join(tests)}:"):
            if run:
                self.pack([*run, length])
            else:
                src.line(f"out.append(one_byte[{value.size} + 1])")
        with src.block("else:"):
            self.one_by_one(run, rare)
            self.long_length(value, length)

    def long_length(self, value: _EncodedValue, length: tuple[str, str]) -> None:
        if self.flexible:
            self.source.line(f"out.append(uvarint({value.size} + 1))")
        else:
            self.pack([length])

    def ints(self, value: _EncodedValue) -> None:
        """Emit the run of fields and an array of integers, in one pack for a short array."""
        if self.nullable(value.spec):
            self.length(value)
            with self.source.block(f"if {value.size} > 0:"):
                self.source.line(f"out.append(pack_int32s({value.local}))")
            return
        src, (run, rare) = self.source, self.take()
        length = (self.length_code(value.spec), f"{value.size}{' + 1' if self.flexible else ''}")
        fused = [*run, length]
        codes = "".join(code for code, _ in fused)
        table = src.constant(("ints", codes), "t", _run_packers(codes))
        tests = [self.all_empty(rare)] if rare else []
        with src.block(f"if {' and '.join([*tests, f'{value.size} <= {SHORT_ARRAY}'])}:"):
            values = ", ".join(expression for _, expression in fused if expression)
            src.line(f"out.append({table}[{value.size}]({values}, *{value.local}))")
        with src.block("else:"):
            self.one_by_one(run, rare)
            self.long_length(value, length)
            src.line(f"out.append(pack_int32s({value.local}))")

    def shared_loop(self, value: _EncodedValue) -> None:
        """Emit the loop over an array's elements, or the reuse of a SharedList's kept encoding."""
        src, local = self.source, value.local
        outer, known = src.fresh("out"), src.fresh("k")
        src.namespace["SharedList"] = schema.SharedList
        src.line(f"{known} = {local}.encoded if type({local}) is SharedList else {{}}")
        with src.block(f"if {self.version} not in {known}:"):
            src.line(f"{outer} = out; out = []")
            self.in_tag = True
            self.loop(value)
            self.in_tag = False
            src.line(f"{known}[{self.version}] = b''.join(out); out = {outer}")
        src.line(f"{known} = {known}[{self.version}]")
        src.line(f"put_records({known}, len({known}), out, parts)")

    def loop(self, value: _EncodedValue) -> None:
        """Emit the loop over the elements of a non-empty array."""
        src, element = self.source, value.spec.element
        item = src.fresh("m")
        if isinstance(element, type):
            with src.block(f"for {item} in {value.local}:"):
                self.struct(element, item)
        elif element == "string":
            inner = FieldSpec("string", value.spec.versions, schema.NO_VERSIONS, "", False)
            with src.block(f"for {item} in {value.local}:"):
                self.variable(item, inner)
        elif element in FIXED_FORMATS and element != "uuid":
            code = FIXED_FORMATS[element]
            src.line(f"out.append(pack(f'>{{{value.size}}}{code}', *{value.local}))")
        else:
            raise SchemaError(f"arrays of {element} are not generated")


def build_encoder(struct_class: type, version: int, flexible: bool) -> Encoder:
    """Return the encoder of one message at one version."""
    return _EncoderBuilder(struct_class, version, flexible).build()
