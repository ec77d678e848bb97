"""A small Kafka client without I/O: operations as generators that yield calls and pauses.

A driver makes the calls one after the other; `runtime/blocking.py` is a driver over plain sockets.
The client has no transactions.

Read `steps` first: it defines the calls and pauses that an operation requests from its driver.
`bootstrap` parses addresses, `versions` negotiates API versions, `cluster` is the Metadata
response. `routing` finds the broker for a request, `coordinators` the coordinator of a group.
`retries` decides which errors are retriable.

Produce: `partitioning` (the partition of a record), `producing` (one batch), `sending` (batches
with a producer id), `produce_queue` (their order).

Consume: `fetching` (batches and offsets), `aborted_transactions`, `consuming` (positions and
records). A group member: `membership`, `assignors`, `heartbeats`.

Administration: `admin` (topics), `configs`, `groups`, `upkeep` (elections, deleted records, sizes),
`metrics`, `event_sentences` (cluster events in words). Replicas: `replica_requests`,
`stray_requests`, `directory_moves`.

Reassignments: `moving` (start, cancel, list), `move_sampling` and `move_progress` (bytes and
rates), `throttles`. `planning` makes the plans.
"""
