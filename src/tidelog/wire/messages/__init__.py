"""Messages of Kafka's protocol, one module per API key, both directions in one module.

Modules are named after API keys, so this text does not list them. Names are Kafka's own; versions
are those of Kafka 3.9. `tidelog.wire.registry` lists them all.
"""
