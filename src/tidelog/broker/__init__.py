"""The composition of a broker: connections, APIs, replicas, fetchers, channels, session.

Real processes (`tidelog.runtime`) and simulated nodes (`tidelog.sim`) start the same composition.
Nothing here reaches the outside but through `tidelog.core.ports` and the metadata store's port.
"""
