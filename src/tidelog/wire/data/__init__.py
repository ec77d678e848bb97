"""Structs of Kafka that are no messages: record keys and values, and data that clients exchange.

Each travels behind its version (`tidelog.wire.versioned`). Names are Kafka's own, with the unit at
the end where they hold a time.

`consumer_offsets`: keys and values of the records of `__consumer_offsets`. `consumer_protocol`:
subscriptions and assignments of group members.
"""
