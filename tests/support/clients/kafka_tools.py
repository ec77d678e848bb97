"""Kafka's own command line tools, each a JVM of its own, as their scripts start them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.clients.jars import CACHE, jars_of_kafka

PATIENCE_S = 60.0

#: Main classes: of 4.x, and of 3.9 where it is another.
MAINS = {
    "kafka-topics": ("org.apache.kafka.tools.TopicCommand", None),
    "kafka-configs": ("kafka.admin.ConfigCommand", None),
    "kafka-console-producer": (
        "org.apache.kafka.tools.ConsoleProducer",
        "kafka.tools.ConsoleProducer",
    ),
    "kafka-console-consumer": ("org.apache.kafka.tools.consumer.ConsoleConsumer", None),
    "kafka-consumer-groups": ("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", None),
    "kafka-get-offsets": ("org.apache.kafka.tools.GetOffsetShell", None),
    "kafka-log-dirs": ("org.apache.kafka.tools.LogDirsCommand", None),
    "kafka-delete-records": ("org.apache.kafka.tools.DeleteRecordsCommand", None),
    "kafka-leader-election": ("org.apache.kafka.tools.LeaderElectionCommand", None),
    "kafka-cluster": ("org.apache.kafka.tools.ClusterTool", None),
    "kafka-broker-api-versions": (
        "org.apache.kafka.tools.BrokerApiVersionsCommand",
        "kafka.admin.BrokerApiVersionsCommand",
    ),
    "kafka-groups": ("org.apache.kafka.tools.GroupsCommand", None),
    "kafka-features": ("org.apache.kafka.tools.FeatureCommand", None),
    "kafka-producer-perf-test": ("org.apache.kafka.tools.ProducerPerformance", None),
    "kafka-consumer-perf-test": ("org.apache.kafka.tools.ConsumerPerformance", None),
    "kafka-e2e-latency": ("org.apache.kafka.tools.EndToEndLatency", None),
    "kafka-verifiable-producer": ("org.apache.kafka.tools.VerifiableProducer", None),
    "kafka-verifiable-consumer": ("org.apache.kafka.tools.VerifiableConsumer", None),
    "kafka-replica-verification": ("org.apache.kafka.tools.ReplicaVerificationTool", None),
    "kafka-streams-application-reset": ("org.apache.kafka.tools.StreamsResetter", None),
    "kafka-reassign-partitions": (
        "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
        None,
    ),
    "kafka-acls": ("org.apache.kafka.tools.AclCommand", "kafka.admin.AclCommand"),
    "kafka-transactions": ("org.apache.kafka.tools.TransactionsCommand", None),
    "kafka-delegation-tokens": ("org.apache.kafka.tools.DelegationTokenCommand", None),
    "kafka-metadata-quorum": ("org.apache.kafka.tools.MetadataQuorumCommand", None),
    "kafka-client-metrics": ("org.apache.kafka.tools.ClientMetricsCommand", None),
    "kafka-dump-log": ("org.apache.kafka.tools.DumpLogSegments", "kafka.tools.DumpLogSegments"),
    "kafka-storage": ("kafka.tools.StorageTool", None),
    "kafka-server-start": ("kafka.Kafka", None),
}


class Tools:
    """The tools of one version."""

    def __init__(self, version: str) -> None:
        self.version = version
        self._jars = jars_of_kafka(version)

    def words(self, tool: str, *words: str) -> list[str]:
        """The command line of a tool."""
        main, main_of_3 = MAINS[tool]
        if self.version.startswith("3.") and main_of_3 is not None:
            main = main_of_3
        java = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
        # The classes that the first tool needed are kept; the next ones start in half the time.
        # What the virtual machine has to say of its archive would be taken for the tool's output.
        kept = CACHE / f"{self._jars.name}.jsa"
        option = "SharedArchiveFile" if kept.exists() else "ArchiveClassesAtExit"
        java += [f"-XX:{option}={kept}", "-Xlog:disable", "-Xlog:all=off"]
        return [*java, "-cp", f"{self._jars}/*", main, *words]

    def run(
        self, tool: str, *words: str, sent: str | None = None, fails: bool | None = False
    ) -> str:
        """Run a tool to its end and return its output.

        It must succeed, or fail if the caller expects that; the errors are then part of the output.
        None accepts both: some tools end with 0 whatever happened.
        """
        ended = subprocess.run(
            self.words(tool, *words),
            input=sent or "",
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            cwd=CACHE,
        )
        told = ended.stdout + ended.stderr
        assert fails in (None, ended.returncode != 0), (
            f"{tool} ended with {ended.returncode}:\n{told}"
        )
        return ended.stdout if fails is False else told


def dumped(tools: Tools, path: Path, *words: str) -> str:
    """What kafka-dump-log says of a file."""
    return tools.run("kafka-dump-log", *words, "--files", str(path))
