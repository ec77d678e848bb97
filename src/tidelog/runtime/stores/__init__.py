"""Metadata stores that reach outside: the embedded one, in one SQLite file of one machine."""
