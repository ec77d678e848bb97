"""The elections and the I/O of the cluster's controller on this broker (V1-V6).

`tidelog.controller` makes the decisions. This package takes part in elections, reads the store,
writes the decisions and sends the commands to all brokers.

Begin with `runtime`, which runs elections, loads the state, writes decisions and sends commands.
`term` is the state that a controller loses when its term ends. `cold_start` delays the first
election if all brokers have restarted since the state was written (E8).

`store_reader` reports the store's published state as events, and `store_watches` notes the changes
that watches announce (V41). `reassignment_reader` reads the nodes that request reassignments.
`notifications` reads the notifications that brokers left in the store.

`store_writer` writes decisions and returns outcomes. `store_ops` has the nodes of each write, and
checks whether the store has them. `observed_store` reports each outcome of a store operation as
progress of the controller (V42).

`channels` has an ordered queue of commands and a connection for each broker (V17, V81).

`balancing` (preferred replicas, V46) and `draining` (the wait before partitions are removed) act on
timers. `drains` asks coordinators how far consumer groups have read partitions that wait for
removal (V71).

`term_events` records cluster events (V80). `metrics` declares the metrics; `controller_readings`
reads the metrics of the cluster.
"""
