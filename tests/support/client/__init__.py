"""Brokers with scripted responses to clients, over real sockets."""
