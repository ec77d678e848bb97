"""Generates the encoder of one message at one version: straight-line Python from the declarations.

The generated function is `encode(m, out, parts)`: it appends chunks to `out`; a record buffer of
OWN_PART_BYTES or more becomes an element of `parts` of its own, uncopied, and what was gathered in
`out` before it another. Fixed-width fields and the length that follows them are packed together.
A field that the version lacks must hold its default, unless it is ignorable: else SchemaError.
Wrong types raise what Python raises (struct.error, AttributeError, ...); `codec.py` makes a
SchemaError of it. The caller owns the message: nothing is kept of it but record buffers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from tidelog.wire import schema
from tidelog.wire.primitives import ONE_BYTE, Buffer, Records, buffer_size, encode_uvarint
from tidelog.wire.schema import FIXED_FORMATS, FieldSpec, NamedField, SchemaError
from tidelog.wire.source import Source

#: encode(message, chunks, parts)
Encoder = Callable[[Any, list[Buffer], list[Buffer]], None]

#: Record buffers from this size on are handed over uncopied; below, a copy costs less than a part.
OWN_PART_BYTES: Final = 1024

_ARRAY_PACKERS: Final = [struct.Struct(f">{n}i").pack for n in range(17)]


def _pack_int32s(values: Sequence[int]) -> bytes:
    count = len(values)
    if count <= 16:
        return _ARRAY_PACKERS[count](*values)
    return struct.pack(f">{count}i", *values)


def _records_size(records: Records) -> int:
    if isinstance(records, (list, tuple)):
        return sum(buffer_size(each) for each in records)
    return buffer_size(records)  # type: ignore[arg-type]


def _put_records(records: Records, out: list[Buffer], parts: list[Buffer]) -> None:
    buffers: Sequence[Buffer]
    buffers = records if isinstance(records, (list, tuple)) else (records,)
    for each in buffers:
        if buffer_size(each) < OWN_PART_BYTES:
            out.append(each)
            continue
        if out:
            parts.append(bytearray().join(out))
            out.clear()
        parts.append(each)


def _absent(what: str, version: int) -> SchemaError:
    return SchemaError(f"{what} is set, but version {version} cannot carry it")


def _bad_uuid(what: str) -> SchemaError:
    return SchemaError(f"{what} is not 16 bytes")


class _EncoderBuilder:
    """Emits the encoder of one (message, version)."""

    def __init__(self, struct_class: type, version: int, flexible: bool) -> None:
        self.source = Source()
        self.root = struct_class
        self.version = version
        self.flexible = flexible
        #: Fixed-width writes not yet emitted: (struct code, expression; "" for a pad byte).
        self.pending: list[tuple[str, str]] = []
        self.in_tag = False
        self.source.namespace.update(
            uvarint=encode_uvarint,
            one_byte=ONE_BYTE,
            pack=struct.pack,
            pack_int32s=_pack_int32s,
            records_size=_records_size,
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
        """Emits the write of the struct in the local `var`."""
        for each in schema.absent_fields(struct_class, self.version):
            if not each.spec.ignorable:
                self.must_be_default(struct_class, var, each)
        for each in schema.plain_fields(struct_class, self.version):
            self.plain(f"{var}.{each.name}", each, f"{struct_class.__name__}.{each.name}")
        if not self.flexible:
            self.flush()
            return
        tagged = schema.tagged_fields(struct_class, self.version)
        if not tagged:
            self.pending.append(("x", ""))
            self.flush()
            return
        if self.pending:
            self.flush()
        self.tags(struct_class, var, tagged)

    def differs(self, value: str, spec: FieldSpec) -> str:
        """An expression: `value` is not the field's default."""
        if spec.kind == "array":
            return value if spec.nullable.high < 0 else f"({value} is None or {value})"
        if spec.kind == "struct":
            name = self.source.constant(("default", spec.element), "D", spec.default)
            return f"{value} is not {name} and {value} != {name}"
        if spec.default is None:
            return f"{value} is not None"
        if spec.default is False:
            return value
        return f"{value} != {spec.default!r}"

    def must_be_default(self, struct_class: type, var: str, field: NamedField) -> None:
        value = f"{var}.{field.name}"
        what = f"{struct_class.__name__}.{field.name}"
        with self.source.block(f"if {self.differs(value, field.spec)}:"):
            self.source.line(f"raise absent({what!r}, {self.version})")

    def tags(self, struct_class: type, var: str, tagged: list[NamedField]) -> None:
        src = self.source
        found = src.fresh("tags")
        src.line(f"{found} = None")
        for each in tagged:
            value, outer = src.fresh("v"), src.fresh("out")
            src.line(f"{value} = {var}.{each.name}")
            with src.block(f"if {self.differs(value, each.spec)}:"):
                src.line(f"{outer} = out; out = []")
                self.in_tag = True
                self.plain(value, each, f"{struct_class.__name__}.{each.name}")
                self.flush()
                self.in_tag = False
                src.line(f"{value} = b''.join(out); out = {outer}")
                with src.block(f"if {found} is None:"):
                    src.line(f"{found} = []")
                src.line(f"{found} += (one_byte[{each.spec.tag}], uvarint(len({value})), {value})")
        with src.block(f"if {found} is None:"):
            src.line("out.append(b'\\0')")
        with src.block("else:"):
            src.line(f"out.append(one_byte[len({found}) // 3])")
            src.line(f"out += {found}")

    # -- fields -------------------------------------------------------------------------------

    def plain(self, value: str, field: NamedField, what: str) -> None:
        """Emits the write of one value, the same in the tagged section as outside it."""
        spec, src = field.spec, self.source
        nullable = self.version in spec.nullable
        if spec.kind == "uuid":
            with src.block(f"if len({value}) != 16:"):
                src.line(f"raise bad_uuid({what!r})")
            self.pending.append(("16s", value))
        elif spec.kind in FIXED_FORMATS:
            self.pending.append((FIXED_FORMATS[spec.kind], value))
        elif spec.kind == "struct":
            assert isinstance(spec.element, type)
            local = src.fresh("m")
            src.line(f"{local} = {value}")
            self.struct(spec.element, local)
        elif spec.kind == "array":
            self.array(value, spec, nullable)
        elif spec.kind == "string":
            self.string(value, nullable)
        else:
            self.records(value, nullable)

    def flush(self) -> None:
        """Emits one pack for all pending fixed-width values."""
        if not self.pending:
            return
        codes = "".join(code for code, _ in self.pending)
        values = [value for _, value in self.pending if value]
        self.pending = []
        if codes == "x":
            self.source.line("out.append(b'\\0')")
            return
        name = self.source.constant(codes, "p", struct.Struct(">" + codes).pack)
        self.source.line(f"out.append({name}({', '.join(values)}))")

    def length(self, local: str, code: str) -> None:
        """Emits a length header with what is pending: the local's value, plus one where compact.

        A null is -1 in the local, in both forms.
        """
        if not self.flexible:
            self.pending.append((code, local))
            self.flush()
            return
        src = self.source
        before = self.pending
        with src.block(f"if {local} < 127:"):
            if before:
                self.pending = [*before, ("B", f"{local} + 1")]
                self.flush()
            else:
                src.line(f"out.append(one_byte[{local} + 1])")
        with src.block("else:"):
            self.pending = before
            self.flush()
            src.line(f"out.append(uvarint({local} + 1))")

    def string(self, value: str, nullable: bool) -> None:
        src = self.source
        raw, size = src.fresh("s"), src.fresh("n")
        if nullable:
            src.line(f"{raw} = {value}")
            with src.block(f"if {raw} is None:"):
                src.line(f"{raw} = b''; {size} = -1")
            with src.block("else:"):
                src.line(f"{raw} = {raw}.encode(); {size} = len({raw})")
        else:
            src.line(f"{raw} = {value}.encode(); {size} = len({raw})")
        self.length(size, "h")
        src.line(f"out.append({raw})")

    def records(self, value: str, nullable: bool) -> None:
        if self.in_tag:
            raise SchemaError("records cannot be a tagged field")
        src = self.source
        local, size = src.fresh("r"), src.fresh("n")
        src.line(f"{local} = {value}")
        if nullable:
            src.line(f"{size} = -1 if {local} is None else records_size({local})")
        else:
            src.line(f"{size} = records_size({local})")
        self.length(size, "i")
        with src.block(f"if {size} > 0:"):
            src.line(f"put_records({local}, out, parts)")

    def array(self, value: str, spec: FieldSpec, nullable: bool) -> None:
        src = self.source
        local, size = src.fresh("a"), src.fresh("n")
        src.line(f"{local} = {value}")
        src.line(
            f"{size} = -1 if {local} is None else len({local})"
            if nullable
            else f"{size} = len({local})"
        )
        self.length(size, "i")
        with src.block(f"if {size} > 0:"):
            element = spec.element
            if isinstance(element, type):
                item = src.fresh("m")
                with src.block(f"for {item} in {local}:"):
                    self.struct(element, item)
            elif element == "int32":
                src.line(f"out.append(pack_int32s({local}))")
            elif element == "string":
                item = src.fresh("v")
                with src.block(f"for {item} in {local}:"):
                    self.string(item, False)
            elif element in FIXED_FORMATS and element != "uuid":
                code = FIXED_FORMATS[element]
                src.line(f"out.append(pack(f'>{{{size}}}{code}', *{local}))")
            else:
                raise SchemaError(f"arrays of {element} are not generated")


def build_encoder(struct_class: type, version: int, flexible: bool) -> Encoder:
    """The encoder of this message at this version."""
    return _EncoderBuilder(struct_class, version, flexible).build()
