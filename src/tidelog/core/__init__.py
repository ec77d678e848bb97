"""Code that every layer shares: types, errors, configuration, limits, tasks, ports, counters.

Nothing here knows the wire protocol, files, sockets or the clock.
"""
