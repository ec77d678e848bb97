"""Faults on a real cluster with real clients, and a verdict; `__main__` is the program."""
