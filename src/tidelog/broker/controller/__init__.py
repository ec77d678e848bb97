"""The shell of the cluster's controller on this broker (V1-V6).

`tidelog.controller` decides. The shell competes for the controller's node, reads the store, writes
the decisions and sends the commands to all brokers.

Begin with `runtime`: race, load, decide, write, command. `term` is the state that a controller
loses with its office. `cold_start` is the start while no replica is alive in the recorded
incarnation (E8).

Reads of the store: `store_reader` reports the published state as events, and `store_watches` keeps
the announcements of watches (V41). `reassignment_reader` reads the nodes that request
reassignments. `notifications` reads the notices that brokers left in the store.

Writes to the store: `store_writer` writes decisions and returns outcomes. `store_ops` has the nodes
of each write and checks whether it was made. `observed_store` counts each outcome as a sign of life
(V42).

Commands to brokers: `channels`, an ordered queue and a connection for each broker (V17, V81).

By the clock: `balancing` (preferred replicas, V46), `draining` (the wait before partitions are
removed) and `drains` (the groups' progress in them, V71).

Reports: `term_events` (cluster events, V80) and `metrics`.
"""
