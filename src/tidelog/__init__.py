"""tidelog: Kafka's replicated log in Python.

Brokers that speak Kafka's wire protocol and keep Kafka's on-disk format. The layers and the
direction of imports are described in DESIGN.md; nothing is imported here, so that a broker
process pays only for what it uses.
"""

__version__ = "0.9.0"
