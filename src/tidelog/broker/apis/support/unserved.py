"""The reasons for rejecting APIs that brokers do not implement.

A broker responds to such an API all the same. The error is that of a Kafka 3.9 broker without an
authorizer and with PLAINTEXT listeners, or a final one. A client shows it and stops, while a closed
connection would make it connect and ask again. Cards name the reason (`Card.refused`).
"""

from __future__ import annotations

from typing import Final

NO_AUTHORIZER: Final = "brokers have no authorizer: there are no access control lists"
NO_FEATURES: Final = "brokers have no finalized features"
NO_QUOTAS: Final = "brokers enforce no quotas of users, clients or addresses, and keep none"
PLAINTEXT_LISTENER: Final = "the listener is PLAINTEXT: brokers have no authentication"
CLASSIC_GROUPS: Final = "groups have the classic protocol only: set group.protocol=classic"
NO_TRANSACTIONS: Final = "brokers have no transaction coordinator: transactions are not served"
