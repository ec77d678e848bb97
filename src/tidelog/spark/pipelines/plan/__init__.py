"""Reassignment plans from samples of load."""
