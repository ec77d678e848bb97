"""The composition of a broker: connections, APIs, replicas, fetchers, channels, session.

Real processes (`tidelog.runtime`) and simulated nodes (`tidelog.sim`) start the same composition.
The package reaches the outside only through `tidelog.core.ports` and the metadata store's port.
"""
