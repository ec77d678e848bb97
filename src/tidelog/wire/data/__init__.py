"""Kafka's structs other than messages: record keys and values, and data that clients exchange.

Each encoded struct follows its version (`tidelog.wire.versioned`). Names are Kafka's own; a name of
a time ends in its unit.

`consumer_offsets`: keys and values of the records of `__consumer_offsets`. `consumer_protocol`:
subscriptions and assignments of group members. `transaction_log`: keys and values of the records of
`__transaction_state`.
"""
