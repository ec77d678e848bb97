"""Structs that are encoded as two bytes of version followed by the version's fields.

Keys and values of Kafka's internal topics begin with a version in two bytes, and so does the data
that clients exchange through a group's coordinator. The structs are declared like messages
(`schema.py`), and their codecs are generated at first use and kept. Any bytes decode to a struct or
raise a ProtocolError.
"""

from __future__ import annotations

import struct
from typing import Final, Generic, TypeVar, cast

from tidelog.core.errors import ProtocolError
from tidelog.wire.decoding import MALFORMED, Decoder, build_decoder
from tidelog.wire.encoding import MISBUILT, Encoder, build_encoder
from tidelog.wire.primitives import Buffer
from tidelog.wire.schema import NEVER_FLEXIBLE, SchemaError

_VERSION: Final = struct.Struct(">h")

T = TypeVar("T")


class UnknownVersion(ProtocolError):
    """Data of an unknown later version, which is not damaged and should be skipped."""

    def __init__(self, what: str, version: int, newest: int) -> None:
        super().__init__(f"{what} version {version}: versions up to {newest} are known")
        self.version = version


def version_of(data: Buffer, what: str) -> int:
    """Return the version at the beginning of `data`; raise ProtocolError if there is none.

    `what` names the data in errors.
    """
    try:
        (version,) = _VERSION.unpack_from(data)
    except struct.error:
        raise ProtocolError(f"{what} of {len(data)} bytes: no room for its version") from None
    if version < 0:
        raise ProtocolError(f"{what} version {version}: versions are not negative")
    return cast("int", version)


class Versioned(Generic[T]):
    """The codec of a struct with its known versions.

    `open_ended` says that later versions only add fields at the end. If `open_ended`, data of a
    newer version is read as the newest known version, and the bytes after its fields are ignored.
    """

    __slots__ = (
        "_decoders",
        "_encoders",
        "_replacing_decoders",
        "first_flexible_version",
        "max_version",
        "min_version",
        "open_ended",
        "struct_class",
    )

    def __init__(
        self,
        struct_class: type[T],
        min_version: int,
        max_version: int,
        *,
        first_flexible_version: int = NEVER_FLEXIBLE,
        open_ended: bool = False,
    ) -> None:
        self.struct_class: Final = struct_class
        self.min_version: Final = min_version
        self.max_version: Final = max_version
        self.first_flexible_version: Final = first_flexible_version
        self.open_ended: Final = open_ended
        #: Decoders by the two bytes of the version, so that small data needs only one lookup.
        self._decoders: dict[bytes, Decoder] = {}
        #: Decoders of data with invalid UTF-8, by the two bytes of the version.
        self._replacing_decoders: dict[bytes, Decoder] = {}
        self._encoders: dict[int, Encoder] = {}

    @property
    def name(self) -> str:
        """Kafka's name of the struct."""
        return self.struct_class.__name__

    @property
    def versions(self) -> range:
        """The versions of the struct that are known, from the lowest to the highest."""
        return range(self.min_version, self.max_version + 1)

    def encode(self, value: T, version: int) -> bytes:
        """Encode a value at a version; raise SchemaError if the version cannot carry the value."""
        if version not in self.versions:
            raise SchemaError(f"{self.name} version {version} is not known")
        if type(value) is not self.struct_class:
            raise SchemaError(f"a {type(value).__name__} is not a {self.name}")
        encoder = self._encoders.get(version)
        if encoder is None:
            flexible = version >= self.first_flexible_version
            encoder = build_encoder(self.struct_class, version, flexible)
            self._encoders[version] = encoder
        out: list[Buffer] = [_VERSION.pack(version)]
        parts: list[Buffer] = []
        try:
            encoder(value, out, parts)
        except MISBUILT as error:
            raise SchemaError(f"cannot encode {self.name} version {version}: {error}") from error
        return b"".join((*parts, *out))

    def decode(self, data: Buffer) -> T:
        """Return the struct that fills `data`.

        Raises UnknownVersion for a newer version (unless open-ended), and ProtocolError for any
        other bytes that do not encode the struct.
        """
        raw = bytes(data)
        decoder = self._decoders.get(raw[: _VERSION.size])
        if decoder is None:
            decoder = self._decoder_of(raw)
        try:
            try:
                value, stop = decoder(raw, _VERSION.size, len(raw))
            except UnicodeDecodeError:
                decoder = self._decoder_of(raw, replaces_text=True)
                value, stop = decoder(raw, _VERSION.size, len(raw))
        except MALFORMED as error:
            title = f"{self.name} version {version_of(raw, self.name)}"
            raise ProtocolError(f"malformed {title}: {error}") from error
        if stop != len(raw) and not self.open_ended:
            title = f"{self.name} version {version_of(raw, self.name)}"
            raise ProtocolError(f"{len(raw) - stop} bytes follow a {title}")
        return value  # type: ignore[no-any-return]  # what the decoder of T makes

    def _decoder_of(self, raw: bytes, *, replaces_text: bool = False) -> Decoder:
        """Return the decoder of a version, which is generated at the version's first use."""
        version = version_of(raw, self.name)
        if version > self.max_version:
            if not self.open_ended:
                raise UnknownVersion(self.name, version, self.max_version)
            version = self.max_version
        if version < self.min_version:
            raise ProtocolError(
                f"{self.name} version {version}: versions from {self.min_version} on are known"
            )
        packed = _VERSION.pack(version)
        decoders = self._replacing_decoders if replaces_text else self._decoders
        decoder = decoders.get(packed)
        if decoder is None:
            flexible = version >= self.first_flexible_version
            decoder = build_decoder(
                self.struct_class, version, flexible, replaces_text=replaces_text
            )
            decoders[packed] = decoder
        return decoder
