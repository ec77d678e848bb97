"""Brokers that answer clients as a test tells them to, over real sockets."""
