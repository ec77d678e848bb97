"""Histories of clients' operations, and the anomalies in them by Jepsen's names for Kafka.

`operations` is the format. `anomalies` names each anomaly with its meaning. `checker` takes the
operations one by one, and reports the anomalies at the end. The checker's parts: `tables` (the
content of a history), `judging` (missing, duplicate and skipped records), `cycles` (of
transactions).
"""

from tidelog.history.anomalies import ANOMALIES, Anomaly, Meaning, Report
from tidelog.history.checker import HistoryChecker
from tidelog.history.operations import (
    MalformedHistory,
    Operation,
    describe,
    document_of,
    encode,
    parse,
    read_history,
)

__all__ = [
    "ANOMALIES",
    "Anomaly",
    "HistoryChecker",
    "MalformedHistory",
    "Meaning",
    "Operation",
    "Report",
    "describe",
    "document_of",
    "encode",
    "parse",
    "read_history",
]
