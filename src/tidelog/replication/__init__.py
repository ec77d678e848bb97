"""Decisions of one replica of one partition: leader, follower, ISR, truncation, high watermark.

This package is pure: no I/O, no clock (time is an argument), no logging, no randomness. The objects
of replicas and of follower progress have slots and change in place; each object has one owner.
States that change rarely are immutable values. A decision returns the actions to take as effects,
which the broker runs in order. The leader and the follower offer `key()` (the whole state as a
hashable value) and `copy()`, so that the model checker explores the same code that brokers run.

`commands` decides which of the controller's commands the broker obeys, and `effects` defines the
actions that decisions request.

`leader` is a leading replica, with each follower's `progress` and `lag`. `isr` has the state of the
ISR, `shrinks` the causes for which members leave it, and `direct_isr` the ISR changes that the
leader itself writes into the state node (A12). `watermark` computes the high watermark from the
replicas' log ends, or from their `synced_offsets` with `flush.before.ack` (V69). `pending_reads`
and `reads_under_way` count the leader's disk reads that have not finished (F5 to F7, F11).
`takeover` measures how a new leader ends a failover (V80).

`follower` is a following replica, and `truncation` finds the offset at which its log diverges from
the leader's log.

`throttle`, `byte_rate` and `throttle_progress` throttle replication (R15).

`directory_move` copies a replica to another log directory (D11), and `stray_checks` checks strays
that return (V35).
"""
