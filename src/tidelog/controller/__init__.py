"""The controller's decisions: no I/O, no clock, no randomness, no logging.

The shell that reads, writes and sends is `tidelog.broker.controller`.

Begin with `controller`: events in, a decision out, effects once the decision is durable. `events`
go in, and `settings` hold for a term. `agenda` names the partitions to look at. `decision` passes
from phase to phase, `draft` is published state overlaid with its writes. `writes` and
`state_writes` go to the store; `settlement` follows their success.

Knowledge: `image` holds published state in `records`. `incarnations` are the lives of brokers,
`lifecycle` is the first and last state of a partition.

By concern: `topics`, `partitions`, `elections`, `reassignments`, `registrations`, `shutdowns`,
`replica_answers`, `producer_ids`. Each owns its events, its answers, its orders to brokers, and its
writes.

Results: `answers` to requests, `orders` to brokers. `command_builder` turns orders into commands,
and `commands` holds what a broker has yet to receive. `overdue` finds the brokers that do not
acknowledge.

Observation: `notices` and `cluster_events` report what happened. `isr_shrinks` and `failover`
explain shrinks and measure failovers. `activity` detects stalls (V42).

A store that lost its recent past (E8): `store_went_back` and `unproven_states`.
"""
