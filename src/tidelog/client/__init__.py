"""A small Kafka client without I/O: operations as generators that yield calls and pauses.

A driver (`runtime/blocking.py` over plain sockets) makes the calls. Holds bootstrap addresses,
version negotiation, metadata, routing to leaders and controller, retries, admin, produce, fetch.
No consumer groups, no batching, no accumulation: tools, the Spark source and tests need none.
"""
