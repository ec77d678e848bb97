"""Kafka's wire protocol: bytes and messages, without sockets, clocks or brokers.

`schema` has the functions that declare messages, `messages` has the declarations (one module per
API key), and `registry` lists the APIs.

`codec` turns frames into messages and back. `codec` generates code with `encoding`, `decoding` and
`source`, based on `primitives` and `text`. `versioned` encodes and decodes the structs of `data`:
records of internal topics, and data that consumers exchange. `named_fields` changes fields of
messages by name.

`frames` splits a byte stream into frames; `transport` carries frames over any stream. `peer` tracks
the requests of a client connection. Malformed bytes from outside raise `ProtocolError`. A message
that a version cannot carry raises `SchemaError`.
"""
