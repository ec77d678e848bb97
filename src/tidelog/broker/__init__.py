"""The composition of a broker: connections, APIs, replicas, fetchers, channels, session.

Real processes (`tidelog.runtime`) and simulated nodes (`tidelog.sim`) start the same composition.
The package reaches the outside only through `tidelog.core.ports` and the metadata store's port.

Begin with `broker`, which makes, starts and stops the parts. `services` are the objects that every
part gets. `peers` holds the connections to other brokers, `store_access` waits for the metadata
store.

A request: `server` (from the socket to a handler and back), `apis` (the handlers).

The parts behind the handlers: `replicas`, `coordinators`, `configs`, `events`.

The broker in its cluster: `membership` (session, registration, departure) and `controller` (the
controller's shell). `cluster_view` has the brokers, topics and leaders as this broker knows them.
`ended_brokers` and `held_answers` let clients wait for the leaders after a broker's end (V83).
"""
