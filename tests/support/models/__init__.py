"""Replication and the controller as models that are explored state by state."""
