"""The cluster's event stream: this broker's own events, produced to `__cluster_events`.

`cluster_events` writes the events (V80), and `metrics` counts lost events.
"""
