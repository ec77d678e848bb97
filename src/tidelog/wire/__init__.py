"""Kafka's wire protocol as bytes and messages: no sockets, no clock, no brokers.

`schema` declares messages, `messages/` holds them (one file per API key), `registry` lists the
APIs, `codec` turns frames into messages and back, `versioned` does so with the structs of `data/`
(records of internal topics, what consumers exchange), `frames` cuts a byte stream into frames,
`peer` keeps the books of a client connection. Everything that can be wrong in bytes from outside is
a `ProtocolError`; a message that a version cannot carry is a `SchemaError`.
"""
