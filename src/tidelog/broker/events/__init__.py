"""The events that this broker produces to the topic `__cluster_events`.

`cluster_events` writes the events (V80), and `metrics` counts lost events.
"""
