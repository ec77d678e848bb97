"""The composition of a broker: connections, APIs, replicas, fetchers, channels, session.

Real processes (`tidelog.runtime`) and simulated nodes (`tidelog.sim`) start the same broker code.
This package does I/O only through the interfaces in `tidelog.core.ports` and the interface of the
metadata store.

Begin with `broker`, which makes, starts and stops the parts of a broker. `services` holds the
objects that every part gets. `peers` holds the connections to other brokers, and `store_access`
repeats operations on the metadata store until the store responds.

`server` takes a request from the socket to its handler and sends the response; `apis` has the
handlers.

The handlers use `replicas`, `coordinators`, `configs` and `events`.

`membership` (session, registration, departure) and `controller` (the controller's I/O) connect the
broker with its cluster. `cluster_view` has the brokers, topics and leaders as this broker knows
them. `ended_brokers` notes which brokers have just ended. `held_answers` delays a response that
would name an ended broker as leader, until this broker knows the new leader (V83).
"""
