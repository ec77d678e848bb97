"""The log: partitions, segments, indexes, checkpoints, recovery: Kafka's files through lanes.

Every file operation is an operation on a lane (`core.ports.Lane`); nothing here reads a clock but
through its port, knows the wire protocol, or decides about replication.
"""
