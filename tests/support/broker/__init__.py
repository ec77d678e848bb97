"""Brokers as their own tests see them: over fake logs, fake peers and fake transports."""
