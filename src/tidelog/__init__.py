"""tidelog: Kafka's replicated log in Python.

Brokers that speak Kafka's wire protocol and keep Kafka's on-disk format. DESIGN.md describes the
layers and the direction of imports. Nothing is imported here, so that a broker process pays only
for what it uses.

Shared types, errors, and interfaces to files, sockets and time: `core`. Bytes: `wire` (the
protocol) and `records` (record batches). Files: `log`. The contract of the metadata store:
`metadata`.

Decisions without I/O: `replication` (one replica), `controller` (the cluster), `group` (consumer
groups), `txn` (transactions).

The composition: `broker`, which `runtime` runs as a process and `sim` runs under virtual time.

For users: `client` (a Kafka client without I/O), `cli`, `local` (clusters on one machine),
`console` (the web console), `testing` (pytest fixtures), `spark`, `history` (what clients saw).
"""

__version__ = "0.9.0"
