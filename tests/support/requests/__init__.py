"""Requests of every API and version, and which answers they may have."""
