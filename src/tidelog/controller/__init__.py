"""The controller's decisions: no I/O, no clock, no randomness, no logging.

`controller` queues events and decides; `image` is what the controller knows of published state;
`liveness`, `elections`, `isr`, `topics`, `placement` judge one thing each; `commands` says what
each broker must be told. The shell that reads, writes and sends is `tidelog.broker`'s.
"""
