"""Checks of the owners of log directories, of topic ids, and of second copies of a replica.

A topic id belongs to one topic name, and a topic has one id. A broker that was down while its topic
was deleted and created again keeps a replica with the old id; the broker sets such a replica aside
when it starts. A replica with an old id is therefore a notice. The replica is damage if its records
are those of the present topic, or if its id belongs to another topic name. A broker has one replica
of a partition. A crash at the end of a move leaves two copies, and the file `moved-from` of the
newer copy names the directory of the older copy. The functions are pure.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from tidelog.core.dataclass import dataclass
from tidelog.spark.pipelines.audit.findings import AuditFinding, FindingKind, Severity
from tidelog.spark.pipelines.audit.joining import ReplicaAudit
from tidelog.spark.segments import directory_files as files
from tidelog.spark.segments.listing import ListedLogDir, Replica


@dataclass(slots=True)
class TopicIds:
    """The topic ids of log directories, by topic name."""

    #: The id of most replicas of a topic, or the id that a running cluster reports.
    usual: dict[str, str] = field(default_factory=dict)
    #: By topic id, the topics whose replicas have this id, with the number of these replicas.
    topics: dict[str, Counter[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, replicas: Iterable[Replica], reported: Mapping[str, str]) -> TopicIds:
        """Return the topic ids of replicas; `reported` has the topic ids of a running cluster."""
        found = cls()
        by_topic: dict[str, Counter[str]] = {}
        for replica in replicas:
            if replica.topic_id is not None:
                topic = replica.tp.topic
                by_topic.setdefault(topic, Counter())[replica.topic_id] += 1
                found.topics.setdefault(replica.topic_id, Counter())[topic] += 1
        for topic, counts in by_topic.items():
            found.usual[topic] = counts.most_common(1)[0][0]
        found.usual |= reported
        return found

    def other_owner(self, replica: Replica) -> str | None:
        """Return the other topic that owns the replica's topic id; None if no other topic does."""
        counts = self.topics.get(replica.topic_id or "", Counter())
        own = counts[replica.tp.topic]
        is_usual = self.usual.get(replica.tp.topic) == replica.topic_id
        for topic, count in counts.most_common():
            if topic == replica.tp.topic or self.usual.get(topic) != replica.topic_id:
                continue
            if not is_usual or count >= own:
                return topic
        return None

    def is_usual(self, replica: Replica) -> bool:
        """Return whether a replica has the usual id of its topic, or no id."""
        return replica.topic_id in (None, self.usual.get(replica.tp.topic))


def older_copies(replicas: Sequence[Replica]) -> dict[str, Replica]:
    """Return the newer copy of each older copy of a moved replica, by the older copy's path."""
    found: dict[str, Replica] = {}
    for older in replicas:
        for newer in replicas:
            is_other = newer is not older and newer.broker == older.broker
            if is_other and _names(newer.moved_from, older.directory):
                found.setdefault(older.path, newer)
    # Two copies may name each other after a move back; neither is proven to be older then.
    mutual = [path for path, newer in found.items() if newer.path in found]
    return {path: newer for path, newer in found.items() if path not in mutual[1:]}


def _names(directories: Iterable[str], directory: str) -> bool:
    """Return whether `directory` is one of `directories`, perhaps under another mount point."""
    last = os.path.basename(directory)
    return any(each == directory or os.path.basename(each) == last for each in directories)


def comparable(replicas: Sequence[Replica], ids: TopicIds) -> list[Replica]:
    """Return the replicas that must agree: no replica of another topic, no older copy."""
    older = older_copies(replicas)
    usual = [each for each in replicas if ids.is_usual(each) and each.path not in older]
    return usual or list(replicas)


def check_identity(audits: Sequence[ReplicaAudit], ids: TopicIds) -> list[AuditFinding]:
    """Return findings about the topic ids of a partition's replicas, and about second copies."""
    found: list[AuditFinding] = []
    usual = [each for each in audits if ids.is_usual(each.replica)]
    for audit in audits:
        found += _check_topic_id(audit, usual, ids)
    replicas = [each.replica for each in audits]
    older = older_copies(replicas)
    seen: dict[int, Replica] = {}
    for replica in replicas:
        newer = older.get(replica.path)
        if newer is not None:
            found.append(
                _finding(
                    replica,
                    FindingKind.MOVED,
                    f"the replica moved to {newer.path}, and a crash kept this older copy; the next"
                    f" start deletes it",
                    Severity.NOTICE,
                )
            )
        if newer is not None or replica.broker is None or not ids.is_usual(replica):
            continue
        if replica.broker in seen:
            found.append(
                _finding(
                    replica,
                    FindingKind.DUPLICATE,
                    f"broker {replica.broker} has a second replica of this partition in"
                    f" {seen[replica.broker].path}",
                )
            )
        seen[replica.broker] = replica
    return found


def _check_topic_id(
    audit: ReplicaAudit, usual: Sequence[ReplicaAudit], ids: TopicIds
) -> list[AuditFinding]:
    replica = audit.replica
    expected = ids.usual.get(replica.tp.topic)
    if replica.topic_id is None:
        has_file = any(each.path.endswith(files.TOPIC_ID) for each in replica.problems)
        if has_file or not audit.batches or not ids.topics:
            return []
        is_noted = replica.noted_topic_id is not None
        right = replica.noted_topic_id or expected or "an id"
        return [
            _finding(
                replica,
                FindingKind.TOPIC_ID,
                f"the replica has records and no {files.TOPIC_ID}, so its broker treats it as lost;"
                f" the file should hold {right}",
                Severity.NOTICE if is_noted else Severity.DAMAGE,
            )
        ]
    owner = ids.other_owner(replica)
    if owner is not None:
        return [
            _finding(
                replica,
                FindingKind.OTHER_TOPIC,
                f"its topic id {replica.topic_id} is that of topic {owner}; the directory or its"
                f" {files.TOPIC_ID} has the name or the id of another topic",
            )
        ]
    if replica.topic_id == expected:
        return []
    is_same = any(_share(audit, other) for other in usual)
    what = (
        "its records are those of the other replicas, so the id is wrong"
        if is_same
        else "it is a replica of a deleted topic of this name"
    )
    return [
        _finding(
            replica,
            FindingKind.OTHER_TOPIC,
            f"its topic id is {replica.topic_id}, other replicas have {expected}: {what}",
            Severity.DAMAGE if is_same else Severity.NOTICE,
        )
    ]


def _share(audit: ReplicaAudit, other: ReplicaAudit) -> bool:
    """Return whether two replicas have the same records in a whole bucket of offsets."""
    return any(other.buckets.get(bucket) == value for bucket, value in audit.buckets.items())


def _finding(
    replica: Replica, kind: FindingKind, sentence: str, severity: Severity = Severity.DAMAGE
) -> AuditFinding:
    path, tp = replica.path, str(replica.tp)
    return AuditFinding(kind, path, sentence, severity=severity, partition=tp, broker=replica.name)


def check_owners(directories: Sequence[ListedLogDir], cluster: str | None) -> list[AuditFinding]:
    """Return findings about the owners of log directories; `cluster` is a running cluster's id."""
    found: list[AuditFinding] = []
    clusters = [each.cluster for each in directories if each.cluster is not None]
    usual = cluster or (max(clusters, key=clusters.count) if clusters else None)
    seen: dict[str, str] = {}
    for directory in directories:
        path = f"{directory.path}/{files.OWNER}"
        if directory.cluster is not None and directory.cluster != usual:
            found.append(
                AuditFinding(
                    FindingKind.OTHER_CLUSTER,
                    directory.path,
                    f"the directory belongs to cluster {directory.cluster}, not to {usual}",
                    broker=directory.name,
                )
            )
        if not directory.has_owner and directory.replicas:
            found.append(
                AuditFinding(
                    FindingKind.OWNER,
                    path,
                    "the log directory has replicas and no file that names its cluster and its"
                    " broker",
                    broker=directory.name,
                )
            )
        if directory.directory_id is not None:
            other = seen.setdefault(directory.directory_id, directory.path)
            if other != directory.path:
                found.append(
                    AuditFinding(
                        FindingKind.OWNER,
                        path,
                        f"the directory id {directory.directory_id} is also that of {other}",
                        broker=directory.name,
                    )
                )
    return found


def check_renamed(directories: Sequence[ListedLogDir]) -> list[AuditFinding]:
    """Return findings about strays, future replicas, and replicas without a directory."""
    found: list[AuditFinding] = []
    current: dict[str, set[tuple[int | None, str]]] = {}
    brokers = Counter(each.broker for each in directories)
    for directory in directories:
        for replica in directory.replicas:
            places = current.setdefault(str(replica.tp), set())
            places.add((directory.broker, directory.path))
        found += [
            AuditFinding(
                FindingKind.MISSING,
                f"{directory.path}/{tp}",
                f"a checkpoint has offsets of {tp}, and the log directory has no directory of it",
                severity=Severity.DAMAGE if directory.is_clean else Severity.NOTICE,
                partition=str(tp),
                broker=directory.name,
            )
            for tp in directory.lost
        ]
    for directory in directories:
        for aside in directory.asides:
            sentence = ""
            kind = FindingKind.FUTURE
            if aside.reason == "stray":
                kind = FindingKind.STRAY
                sentence = (
                    f"a stray replica of {aside.replica}, {aside.size:,} bytes, waits for deletion"
                    f" or an operator"
                )
            elif aside.reason == "future":
                places = current.get(aside.replica, set())
                if (directory.broker, directory.path) in places:
                    sentence = "a future replica lies beside its current replica: it is useless"
                elif brokers[directory.broker] > 1 and not any(
                    broker == directory.broker for broker, _ in places
                ):
                    sentence = "no log directory of the broker here has the current replica"
            if sentence:
                found.append(
                    AuditFinding(
                        kind,
                        aside.path,
                        sentence,
                        severity=Severity.NOTICE,
                        partition=aside.replica,
                        broker=directory.name,
                    )
                )
    return found
