"""Generates the decoder of one message at one version: straight-line Python from the declarations.

Adjacent fixed-width fields, and the length header of the variable field that follows them, are read
by one precompiled Struct; structs in arrays are decoded in the same function, without calls.
The generated function is `decode(buf, pos, end) -> (message, pos)`. It checks every length against
the bytes present before it allocates. It may raise ProtocolError, struct.error, IndexError and
UnicodeDecodeError; `codec.py` makes a ProtocolError of them all, and checks for trailing bytes.
Messages without bytes fields are decoded from `bytes`, which is faster to index than a view.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from tidelog.core.errors import ProtocolError
from tidelog.wire import schema
from tidelog.wire.primitives import decode_long_uvarint, decode_uvarint, skip_tagged_fields
from tidelog.wire.schema import FIXED_FORMATS, FieldSpec, NamedField
from tidelog.wire.source import Source

#: decode(buf, pos, end) -> (message, next position)
Decoder = Callable[[Any, int, int], tuple[Any, int]]

_ARRAY_FORMATS: Final = [struct.Struct(f">{n}i") for n in range(17)]


def _read_int32s(count: int, buf: Any, pos: int) -> list[int]:
    if count <= 16:
        return list(_ARRAY_FORMATS[count].unpack_from(buf, pos))
    return list(struct.unpack_from(f">{count}i", buf, pos))


def _too_long(what: str, size: int, left: int) -> ProtocolError:
    return ProtocolError(f"{what} claims {size} bytes where {left} are left")


def _bad_null(what: str, length: int) -> ProtocolError:
    if length in (0, -1):
        return ProtocolError(f"{what} is null, which this version does not allow")
    return ProtocolError(f"{what} has the length {length}")


def _bad_tag(what: str) -> ProtocolError:
    return ProtocolError(f"tagged field {what} does not have the size that it claims")


def has_bytes(struct_class: type, version: int) -> bool:
    """Whether decoded messages hold views of the frame (bytes or records fields)."""
    for each in schema.fields_of(struct_class):
        if version not in each.spec.versions:
            continue
        if each.spec.kind in ("bytes", "records"):
            return True
        if isinstance(each.spec.element, type) and has_bytes(each.spec.element, version):
            return True
    return False


class _DecoderBuilder:
    """Emits the decoder of one (message, version)."""

    def __init__(self, struct_class: type, version: int, flexible: bool) -> None:
        self.source = Source()
        self.root = struct_class
        self.version = version
        self.flexible = flexible
        self.in_view = has_bytes(struct_class, version)
        #: Fixed-width reads not yet emitted: (struct code, assignment target).
        self.pending: list[tuple[str, str]] = []
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
        )

    def build(self) -> Decoder:
        with self.source.block("def decode(buf, pos, end):"):
            target = self.source.fresh("m")
            self.struct(self.root, target)
            self.source.line(f"return {target}, pos")
        return self.source.build("decode", f"decode {self.root.__name__} v{self.version}")

    # -- structs ------------------------------------------------------------------------------

    def struct(self, struct_class: type, target: str) -> None:
        """Emits code that leaves a decoded instance in the local `target`."""
        src = self.source
        class_name = src.constant(struct_class, "C", struct_class)
        frozen = schema.is_frozen(struct_class)
        place = f"{target}_{{}}" if frozen else f"{target}.{{}}"
        if not frozen:
            src.line(f"{target} = new({class_name})")
        for each in schema.absent_fields(struct_class, self.version):
            self.default(place.format(each.name), each)
        tagged = schema.tagged_fields(struct_class, self.version)
        for each in tagged:
            self.default(place.format(each.name), each)
        for each in schema.plain_fields(struct_class, self.version):
            self.plain(place.format(each.name), each, f"{struct_class.__name__}.{each.name}")
        if self.flexible:
            self.tags(struct_class, tagged, place)
        else:
            self.flush()
        if frozen:
            names = [place.format(f.name) for f in schema.fields_of(struct_class)]
            src.line(f"{target} = {class_name}({', '.join(names)})")

    def default(self, place: str, field: NamedField) -> None:
        spec = field.spec
        if spec.kind == "array":
            self.source.line(f"{place} = []")
        elif spec.kind == "struct":
            name = self.source.constant(("default", spec.element), "D", spec.default)
            self.source.line(f"{place} = {name}")
        else:
            self.source.line(f"{place} = {spec.default!r}")

    def tags(self, struct_class: type, tagged: list[NamedField], place: str) -> None:
        src = self.source
        count = src.fresh("t")
        self.pending.append(("B", count))
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
                self.plain(place.format(each.name), each, what)
                self.flush()
                with src.block(f"if pos != {stop}:"):
                    src.line(f"raise bad_tag({what!r})")
            keyword = "elif"
        with src.block("else:"):
            src.line(f"pos = {stop}")

    # -- fields -------------------------------------------------------------------------------

    def plain(self, place: str, field: NamedField, what: str) -> None:
        """Emits the read of one value, the same in the tagged section as outside it."""
        spec = field.spec
        nullable = self.version in spec.nullable
        if spec.kind in FIXED_FORMATS:
            self.pending.append((FIXED_FORMATS[spec.kind], place))
        elif spec.kind == "struct":
            self.flush()
            assert isinstance(spec.element, type)
            local = self.source.fresh("m")
            self.struct(spec.element, local)
            self.source.line(f"{place} = {local}")
        elif spec.kind == "array":
            self.array(place, spec, nullable, what)
        else:
            self.sized(place, spec.kind, nullable, what)

    def flush(self) -> None:
        """Emits one read for all pending fixed-width values."""
        if not self.pending:
            return
        src = self.source
        codes = "".join(code for code, _ in self.pending)
        targets = [target for _, target in self.pending]
        self.pending = []
        if codes == "B":
            src.line(f"{targets[0]} = buf[pos]")
            src.line("pos += 1")
            return
        packer = struct.Struct(">" + codes)
        name = src.constant(codes, "u", packer.unpack_from)
        src.line(f"{', '.join(targets)}{',' if len(targets) == 1 else ''} = {name}(buf, pos)")
        src.line(f"pos += {packer.size}")

    def length(self, code: str) -> str:
        """Emits the read of a length header together with what is pending; names it.

        Compact lengths come out as on the wire: the length plus one, zero for null.
        """
        local = self.source.fresh("n")
        self.pending.append(("B" if self.flexible else code, local))
        self.flush()
        if self.flexible:
            with self.source.block(f"if {local} > 127:"):
                self.source.line(f"{local}, pos = long_uvarint({local}, buf, pos)")
        return local

    def present(self, local: str, place: str, nullable: bool, what: str) -> str:
        """Emits the null case; returns the header of the block for the value that is there."""
        null = f"{local} == 0" if self.flexible else f"{local} < 0"
        src = self.source
        if nullable and self.flexible:
            with src.block(f"if {null}:"):
                src.line(f"{place} = None")
            return "else:"
        with src.block(f"if {null}:"):
            if nullable:
                with src.block(f"if {local} != -1:"):
                    src.line(f"raise bad_null({what!r}, {local})")
                src.line(f"{place} = None")
            else:
                src.line(f"raise bad_null({what!r}, {local})")
        return "else:"

    def sized(self, place: str, type_name: str, nullable: bool, what: str) -> None:
        """Strings, bytes and records: a length and that many bytes."""
        src = self.source
        local = self.length("h" if type_name == "string" else "i")
        with src.block(self.present(local, place, nullable, what)):
            stop = src.fresh("e")
            src.line(f"{stop} = pos + {local}{' - 1' if self.flexible else ''}")
            with src.block(f"if {stop} > end:"):
                src.line(f"raise too_long({what!r}, {stop} - pos, end - pos)")
            if type_name != "string":
                src.line(f"{place} = buf[pos:{stop}]")
            elif self.in_view:
                src.line(f"{place} = str(buf[pos:{stop}], 'utf-8')")
            else:
                src.line(f"{place} = buf[pos:{stop}].decode()")
            src.line(f"pos = {stop}")

    def array(self, place: str, spec: FieldSpec, nullable: bool, what: str) -> None:
        src = self.source
        local = self.length("i")
        with src.block(self.present(local, place, nullable, what)):
            if self.flexible:
                src.line(f"{local} -= 1")
            element = spec.element
            is_struct = isinstance(element, type)
            kind = "struct" if is_struct else str(element)
            least = schema.min_size(kind, element, self.version, self.flexible)
            if least < 1:
                raise schema.SchemaError(f"{what} has elements of no bytes")
            claim = local if least == 1 else f"{local} * {least}"
            with src.block(f"if {claim} > end - pos:"):
                src.line(f"raise too_long({what!r}, {claim}, end - pos)")
            if element == "int32":
                src.line(f"{place} = read_int32s({local}, buf, pos)")
                src.line(f"pos += {local} * 4")
            elif kind in FIXED_FORMATS and kind != "uuid":
                code = FIXED_FORMATS[kind]
                src.line(f"{place} = list(unpack_from(f'>{{{local}}}{code}', buf, pos))")
                src.line(f"pos += {local} * {struct.calcsize('>' + code)}")
            else:
                self.loop(place, kind, element, local, what)

    def loop(
        self, place: str, kind: str, element: type | str | None, count: str, what: str
    ) -> None:
        """Elements one by one."""
        src = self.source
        items, item = src.fresh("a"), src.fresh("m")
        src.line(f"{place} = {items} = []")
        with src.block(f"for _ in range({count}):"):
            if isinstance(element, type):
                self.struct(element, item)
            elif kind == "uuid":
                self.pending.append((FIXED_FORMATS[kind], item))
                self.flush()
            else:
                self.sized(item, kind, False, what)
            src.line(f"{items}.append({item})")


def build_decoder(struct_class: type, version: int, flexible: bool) -> Decoder:
    """The decoder of this message at this version; takes bytes, or a view where `has_bytes`."""
    return _DecoderBuilder(struct_class, version, flexible).build()
