"""Encoding and decoding of frames: headers, and the generated codec of each (API, version).

Encoding returns a frame as a list of buffers (parts) for writev or join; the first part begins with
the four bytes of the frame's size. Record buffers of 8 KiB or more are separate parts without a
copy, so their owner must not change them until they are sent. Decoding takes a frame without its
size; any bytes give a message or a ProtocolError. Extra bytes after a request are ignored, as in
Kafka. Codecs are generated at first use and kept. A request of an unknown API or version raises
UnsupportedVersion with its header, so that a server can respond to ApiVersions.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

from tidelog.core.errors import ErrorCode, ProtocolError
from tidelog.wire.decoding import MALFORMED, Decoder, build_decoder, has_records
from tidelog.wire.encoding import MISBUILT, Encoder, build_encoder
from tidelog.wire.primitives import (
    Buffer,
    decode_uvarint,
    encode_nullable_string,
    skip_tagged_fields,
)
from tidelog.wire.registry import API, API_VERSIONS, CONTROLLED_SHUTDOWN
from tidelog.wire.schema import SchemaError
from tidelog.wire.text import replaced_text

_SIZE: Final = struct.Struct(">i")
_REQUEST_HEADER: Final = struct.Struct(">hhih")
_REQUEST_PREFIX: Final = struct.Struct(">ihhi")
#: Size of API key, version and correlation id, the whole header of ControlledShutdown 0.
_BARE_HEADER_BYTES: Final = 8
_RESPONSE_PREFIX: Final = struct.Struct(">ii")
_RESPONSE_PREFIX_FLEXIBLE: Final = struct.Struct(">iix")

_UNSUPPORTED_VERSION: Final = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


class RequestHeader(NamedTuple):
    """The header of a request, which precedes the body."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


class UnsupportedVersion(ProtocolError):
    """The error for a request of an unknown API or version, with the request's header."""

    def __init__(self, header: RequestHeader) -> None:
        api = API.get(header.api_key)
        spoken = (
            f"versions {api.min_version} to {api.max_version} are" if api else "no version of it is"
        )
        name = f"API {api.name} ({header.api_key})" if api else f"API key {header.api_key}"
        super().__init__(f"{name} version {header.api_version}: {spoken} spoken")
        self.header = header


class _Codec:
    """The codec of one message at one version, whose functions are generated at first use."""

    __slots__ = (
        "_decoder",
        "_encoder",
        "_listing_decoders",
        "_replacing_decoder",
        "api_key",
        "exact",
        "flexible",
        "header_flexible",
        "in_view",
        "message",
        "version",
    )

    def __init__(
        self,
        message: type,
        api_key: int,
        version: int,
        flexible: bool,
        header_flexible: bool,
        exact: bool,
    ) -> None:
        self.message = message
        #: Whether extra bytes after the message are an error, as in responses. A request may have
        #: extra bytes: Kafka ignores them, and librdkafka's request for all topics has three.
        self.exact = exact
        self.api_key = api_key
        self.version = version
        self.flexible = flexible
        self.header_flexible = header_flexible
        #: Whether the decoder reads a memoryview of the frame instead of a copy as bytes; False
        #: until the decoder is built.
        self.in_view = False
        self._decoder: Decoder | None = None
        #: The decoder of messages with text that is not valid UTF-8.
        self._replacing_decoder: Decoder | None = None
        #: Decoders of large requests, by the maximum number of entries in a request.
        self._listing_decoders: dict[int, Decoder] = {}
        self._encoder: Encoder | None = None

    def decode(self, frame: memoryview, offset: int) -> Any:
        """Return the message with which `frame[offset:]` begins; raise ProtocolError."""
        decoder = self._decoder
        if decoder is None:
            self.in_view = has_records(self.message, self.version)
            decoder = self._decoder = build_decoder(self.message, self.version, self.flexible)
        end = len(frame)
        buffer: Buffer = frame if self.in_view else bytes(frame)
        try:
            try:
                message, stop = decoder(buffer, offset, end)
            except UnicodeDecodeError:
                message, stop = self._decode_replacing(buffer, offset, end)
        except MALFORMED as error:
            raise ProtocolError(f"malformed {self.title}: {error}") from error
        if stop != end and self.exact:
            raise ProtocolError(f"{end - stop} bytes follow a {self.title}")
        return message

    def decode_listing(self, frame: memoryview, offset: int, max_entries: int) -> Any:
        """Return the request in `frame[offset:]`; raise TooManyEntries or another ProtocolError."""
        decoder = self._listing_decoders.get(max_entries)
        if decoder is None:
            decoder = self._listing_decoders[max_entries] = build_decoder(
                self.message,
                self.version,
                self.flexible,
                replaces_text=True,
                max_entries=max_entries,
            )
        in_view = has_records(self.message, self.version)
        try:
            return decoder(frame if in_view else bytes(frame), offset, len(frame))[0]
        except MALFORMED as error:
            raise ProtocolError(f"malformed {self.title}: {error}") from error

    def _decode_replacing(self, buffer: Buffer, offset: int, end: int) -> tuple[Any, int]:
        """Decode a message with text that is not valid UTF-8."""
        decoder = self._replacing_decoder
        if decoder is None:
            decoder = self._replacing_decoder = build_decoder(
                self.message, self.version, self.flexible, replaces_text=True
            )
        return decoder(buffer, offset, end)

    def encode(self, head: bytes, message: Any) -> list[Buffer]:
        """Return the frame of `head` and `message`; the head's first four bytes become the size."""
        encoder = self._encoder
        if encoder is None:
            encoder = self._encoder = build_encoder(self.message, self.version, self.flexible)
        if type(message) is not self.message:
            raise SchemaError(f"a {type(message).__name__} is not a {self.title}")
        out: list[Buffer] = [head]
        parts: list[Buffer] = []
        try:
            encoder(message, out, parts)
        except MISBUILT as error:
            raise SchemaError(f"cannot encode {self.title}: {error}") from error
        if not parts:
            whole = bytearray().join(out)
            _SIZE.pack_into(whole, 0, len(whole) - 4)
            return [whole]
        if out:
            parts.append(b"".join(out))
        size = sum(map(len, parts)) - 4
        first = parts[0]
        assert isinstance(first, bytearray)
        try:
            _SIZE.pack_into(first, 0, size)
        except struct.error as error:
            raise SchemaError(f"a {self.title} of {size} bytes is no frame") from error
        return parts

    @property
    def title(self) -> str:
        """Name and version of the message, for error messages."""
        return f"{self.message.__name__} version {self.version}"


_REQUESTS: Final[dict[tuple[int, int], _Codec]] = {}
_RESPONSES: Final[dict[tuple[int, int], _Codec]] = {}
for _api in API.values():
    for _version in range(_api.min_version, _api.max_version + 1):
        _REQUESTS[_api.key, _version] = _Codec(
            _api.request,
            _api.key,
            _version,
            _api.is_flexible(_version),
            _api.request_header_version(_version) > 1,
            exact=False,
        )
        _RESPONSES[_api.key, _version] = _Codec(
            _api.response,
            _api.key,
            _version,
            _api.is_flexible(_version),
            _api.response_header_version(_version) > 0,
            exact=True,
        )


def _codec(codecs: dict[tuple[int, int], _Codec], api_key: int, version: int) -> _Codec:
    try:
        return codecs[api_key, version]
    except KeyError:
        raise SchemaError(f"API key {api_key} version {version} is not spoken") from None


def decode_header(frame: memoryview) -> tuple[RequestHeader, int]:
    """Return the header of a request frame and the offset of its body.

    Raises UnsupportedVersion (with the header) for an unknown API or version, and ProtocolError for
    bytes that are no header.
    """
    try:
        api_key, version, correlation_id, length = _REQUEST_HEADER.unpack_from(frame)
        if version == 0 and api_key == CONTROLLED_SHUTDOWN:
            # The header of ControlledShutdown 0 has no client id, so the length that was read
            # belongs to the body.
            return RequestHeader(api_key, version, correlation_id, None), _BARE_HEADER_BYTES
        offset = 10
        client_id = None
        if length >= 0:
            offset += length
            if offset > len(frame):
                raise ProtocolError(f"a client id of {length} bytes reaches beyond its frame")
            try:
                client_id = str(frame[10:offset], "utf-8")
            except UnicodeDecodeError:
                client_id = replaced_text(frame[10:offset])
        elif length != -1:
            raise ProtocolError(f"a client id has the length {length}")
        # Equal to RequestHeader(...), but twice as fast.
        header = tuple.__new__(RequestHeader, (api_key, version, correlation_id, client_id))
        codec = _REQUESTS.get((api_key, version))
        if codec is None:
            raise UnsupportedVersion(header)
        if codec.header_flexible:
            count = frame[offset]
            offset += 1
            if count:
                count, offset = decode_uvarint(frame, offset - 1)
                offset = skip_tagged_fields(count, frame, offset, len(frame))
    except MALFORMED as error:
        raise ProtocolError(f"malformed request header: {error}") from error
    return header, offset


def decode_body(header: RequestHeader, frame: memoryview, offset: int) -> Any:
    """Return the request at `offset` of a frame whose `header` is already decoded."""
    codec = _REQUESTS.get((header.api_key, header.api_version))
    if codec is None:
        raise UnsupportedVersion(header)
    return codec.decode(frame, offset)


def decode_listing(header: RequestHeader, frame: memoryview, offset: int, max_entries: int) -> Any:
    """Decode a request like `decode_body`; raise TooManyEntries above `max_entries`.

    Use this function only for requests so large that their entries could block the event loop,
    because the check costs time.
    """
    codec = _REQUESTS.get((header.api_key, header.api_version))
    if codec is None:
        raise UnsupportedVersion(header)
    return codec.decode_listing(frame, offset, max_entries)


def decode_request(frame: memoryview) -> tuple[RequestHeader, Any]:
    """Return header and request of a complete frame without its size. Raises ProtocolError."""
    header, offset = decode_header(frame)
    return header, _REQUESTS[header.api_key, header.api_version].decode(frame, offset)


def decode_response(api_key: int, version: int, frame: memoryview) -> tuple[int, Any]:
    """Return correlation id and response of a complete frame without its size.

    `api_key` and `version` are the request's. An ApiVersions response with UNSUPPORTED_VERSION may
    have version 0 for any version of the request (KIP-511). If an ApiVersions response with
    UNSUPPORTED_VERSION can be decoded neither in version 0 nor in `version`, the returned response
    names no version ranges. Raises ProtocolError.
    """
    codec = _codec(_RESPONSES, api_key, version)
    try:
        (correlation_id,) = _SIZE.unpack_from(frame)
        offset = 4
        if codec.header_flexible:
            count, offset = decode_uvarint(frame, offset)
            offset = skip_tagged_fields(count, frame, offset, len(frame))
    except MALFORMED as error:
        raise ProtocolError(f"malformed response header: {error}") from error
    if api_key == API_VERSIONS and frame[4:6] == _UNSUPPORTED_VERSION:
        for each in (codec, _RESPONSES[api_key, 0]):
            try:
                return correlation_id, each.decode(frame, offset)
            except ProtocolError:
                continue
        return correlation_id, API[api_key].response(ErrorCode.UNSUPPORTED_VERSION)
    return correlation_id, codec.decode(frame, offset)


def encode_request(
    api_key: int, version: int, correlation_id: int, client_id: str | None, message: Any
) -> list[Buffer]:
    """Return the parts of a request's frame, including its size.

    Raises SchemaError for a message that cannot be encoded.
    """
    codec = _codec(_REQUESTS, api_key, version)
    try:
        head = _REQUEST_PREFIX.pack(0, api_key, version, correlation_id)
        if API[api_key].request_header_version(version):
            head += encode_nullable_string(client_id)
    except (struct.error, ValueError) as error:
        raise SchemaError(f"cannot encode the header of {codec.title}: {error}") from error
    if codec.header_flexible:
        head += b"\0"
    return codec.encode(head, message)


def encode_response(api_key: int, version: int, correlation_id: int, message: Any) -> list[Buffer]:
    """Return the parts of a response's frame, including its size.

    Raises SchemaError for a message that cannot be encoded.
    """
    codec = _codec(_RESPONSES, api_key, version)
    prefix = _RESPONSE_PREFIX_FLEXIBLE if codec.header_flexible else _RESPONSE_PREFIX
    return codec.encode(prefix.pack(0, correlation_id), message)


__all__ = [
    "RequestHeader",
    "SchemaError",
    "UnsupportedVersion",
    "decode_header",
    "decode_body",
    "decode_listing",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]
