"""The cluster's event stream: this broker's own events, produced to `__cluster_events`."""
