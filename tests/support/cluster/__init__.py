"""Brokers and ZooKeeper servers as processes, and plain ways to talk to them."""
