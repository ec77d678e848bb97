"""Clients with their defaults, each a process that says when its records arrive."""
