"""Kafka's wire protocol as bytes and messages: no sockets, no clock, no brokers.

`schema` declares messages, `messages` holds them (one module per API key), and `registry` lists the
APIs. `structs` makes their classes.

`codec` turns frames into messages and back. It generates code with `encoding`, `decoding` and
`source`, on `primitives` and `text`. `versioned` does so with the structs of `data`: records of
internal topics, and data that consumers exchange.

`frames` splits a byte stream into frames; `transport` carries them over any stream. `peer` tracks
the requests of a client connection.
Malformed bytes from outside are a `ProtocolError`. A message that a version cannot carry is a
`SchemaError`.
"""
