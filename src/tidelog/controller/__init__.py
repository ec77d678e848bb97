"""The controller's decisions: no I/O, no clock, no randomness, no logging.

`tidelog.broker.controller` does the I/O for these decisions: it reads and writes the store and
sends commands.

Begin with `controller`, which turns events into a decision, and a durable decision into effects.
`events` has the inputs, and `settings` the configuration of a term. `agenda` collects the
partitions to check. `decision` defines the decision and its effects. `draft` is a decision under
construction, and shows published state as if the decision's writes were already done. `writes` and
`state_writes` define the writes to the store, and `settlement` collects the consequences of writes
that were done.

The image (`image`) is the controller's copy of published state, and `records` defines the values in
it. `incarnations` detects
restarted brokers. `lifecycle` computes the first and the last state of a partition.

The decisions are divided by concern: `topics`, `partitions`, `elections`, `reassignments`,
`registrations`, `shutdowns`, `replica_answers` and `producer_ids`. Each concern owns its events,
its answers, its orders to brokers, and its writes.

`answers` are responses to requests, and `orders` are instructions to send commands to brokers.
`command_builder` turns the `orders` of a decision into requests to brokers, and `commands` holds
the requests that a broker has yet to receive. `overdue` finds the brokers that do not acknowledge
their commands.

`notices` and `cluster_events` report what happened. `isr_shrinks` gives the causes why replicas
left ISRs, and `failover` measures failovers. `activity` detects a controller task that makes no
progress (V42).

`store_went_back` and `unproven_states` handle a store that lost its latest writes (E8).
"""
