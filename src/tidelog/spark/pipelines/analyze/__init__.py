"""Analysis of what a cluster did, from its events (`__cluster_events`)."""
