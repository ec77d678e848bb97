"""Messages of Kafka's protocol, one module per API key, both directions in one module.

Names are Kafka's own; versions are those of Kafka 3.9. `tidelog.wire.registry` lists them all.
"""
