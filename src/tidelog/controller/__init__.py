"""The controller's decisions: no I/O, no clock, no randomness, no logging.

By concern: `topics`, `partitions`, `elections`, `reassignments`, `shutdowns`, `registrations`,
`replica_answers`, `producer_ids`. Each owns its events, its writes with what the image learns from
them, its answers and its orders to brokers. `controller` leads each decision through them; what
passes from phase to phase is a `decision`. `image` is what the controller knows of published state,
`commands` what a broker has still to be sent. The shell that reads, writes and sends is
`tidelog.broker`'s.
"""
