"""A small Kafka client without I/O: operations as generators that yield calls and pauses.

A driver (`runtime/blocking.py` over plain sockets) makes the calls. Holds bootstrap addresses,
version negotiation, metadata, routing to leaders, controller and coordinators, retries, admin,
produce, fetch, consumers with and without groups. It has no transactions, and no requests in flight
side by side: a driver makes one call after the other.
"""
