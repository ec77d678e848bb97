"""Histories of clients' operations, and the anomalies in them by Jepsen's names for Kafka."""

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
