"""Measurements: `make bench` prints the table of the docs; single parts can be run by name."""
