"""The controller's decisions: no I/O, no clock, no randomness, no logging.

By concern: `topics`, `partitions`, `elections`, `reassignments`, `shutdowns`, `registrations`,
`replica_answers`, `producer_ids`. Each owns its events, its answers, its orders to brokers, and its
writes with what the image learns from them. `controller` leads each decision through them; a
`decision` passes from phase to phase. `image` holds the controller's knowledge of published state,
`commands` the commands that a broker has yet to receive. The shell that reads, writes and sends is
`tidelog.broker`'s.
"""
