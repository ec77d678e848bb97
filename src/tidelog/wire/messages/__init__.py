"""Messages of Kafka's protocol, one module with request and response per API key.

Modules are named after API keys, so this text does not list them. Names of messages are Kafka's
own, and versions are those of Kafka 3.9. `tidelog.wire.registry` lists all messages.
"""
