"""Mutilations of checkpoints, of names, and of whole replicas and log directories."""

from __future__ import annotations

import base64
import shutil
from pathlib import Path

from tests.support.mutilations.batches import flipped_record
from tests.support.mutilations.sites import TOPICS, Site, plants

from tidelog.spark.pipelines.audit.findings import FindingKind as Kind
from tidelog.spark.pipelines.audit.findings import Severity

_HIGH_WATERMARKS = "replication-offset-checkpoint"
_RECOVERY_POINTS = "recovery-point-offset-checkpoint"
_LOG_STARTS = "log-start-offset-checkpoint"
_CLEANED = "cleaner-offset-checkpoint"
_GARBAGE = (b"\xff\xfe\x00", b"0\n7\nx\n", b"9\n0\n", b"0\n1\nnonsense\n")
_UNIQUE = "0123456789abcdef" * 2


def _metadata(topic_id: bytes) -> bytes:
    text = base64.urlsafe_b64encode(topic_id).decode().rstrip("=")
    return f"version: 0\ntopic_id: {text}\n".encode()


def _renamed(site: Site, reason: str, directory: Path | None = None) -> Path:
    return (directory or site.directory) / f"{site.tp}.{_UNIQUE}-{reason}"


@plants(Kind.EPOCH_CHECKPOINT, "a leader epoch beyond the log end", after_crash=Severity.NOTICE)
def epoch_beyond_end(site: Site) -> None:
    site.epochs("0 0", "1 125", "2 250", f"9 {site.draw.randrange(301, 10**9)}")


@plants(Kind.EPOCH_CHECKPOINT, "a leader epoch that begins at another offset")
def moved_epoch(site: Site) -> None:
    site.epochs("0 0", f"1 {site.draw.choice([60, 90, 160, 200])}", "2 250")


@plants(Kind.EPOCH_CHECKPOINT, "a leader epoch left out")
def dropped_epoch(site: Site) -> None:
    site.epochs("0 0", "2 250")


@plants(Kind.EPOCH_CHECKPOINT, "another leader epoch in place of one")
def renumbered_epoch(site: Site) -> None:
    site.epochs("0 0", "4 125", "5 250")


@plants(Kind.EPOCH_CHECKPOINT, "the checkpoint of leader epochs removed")
def removed_epochs(site: Site) -> None:
    path = site.replica / "leader-epoch-checkpoint"
    path.unlink()
    site.named.append(path)


@plants(Kind.LOG_START, "a log start beyond the log end", after_crash=Severity.NOTICE)
def log_start_beyond_end(site: Site) -> None:
    site.checkpoint(_LOG_STARTS, site.draw.randrange(301, 10**9))


@plants(Kind.LOG_END, "a recovery point beyond the log end")
def recovery_point_beyond_end(site: Site) -> None:
    site.checkpoint(_RECOVERY_POINTS, site.draw.randrange(301, 10**9))
    site.named.clear()


@plants(Kind.SHORT, "a high watermark beyond the log end")
def high_watermark_beyond_end(site: Site) -> None:
    site.checkpoint(_HIGH_WATERMARKS, site.draw.randrange(301, 10**9))
    site.named.clear()


@plants(Kind.CHECKPOINTED_OFFSET, "a recovery point below the log end", needs_clean=True)
def low_recovery_point(site: Site) -> None:
    site.checkpoint(_RECOVERY_POINTS, site.draw.randrange(300))


@plants(Kind.CHECKPOINTED_OFFSET, "a recovery point left out", needs_clean=True)
def dropped_recovery_point(site: Site) -> None:
    site.checkpoint(_RECOVERY_POINTS, None)


@plants(Kind.CHECKPOINTED_OFFSET, "a high watermark left out", needs_clean=True)
def dropped_high_watermark(site: Site) -> None:
    site.checkpoint(_HIGH_WATERMARKS, None)


@plants(Kind.CHECKPOINTED_OFFSET, "a checkpoint of the log directory removed", needs_clean=True)
def removed_checkpoint(site: Site) -> None:
    path = site.directory / site.draw.choice([_HIGH_WATERMARKS, _RECOVERY_POINTS])
    path.unlink()
    site.named.append(path)


@plants(Kind.CHECKPOINTED_OFFSET, "a log compacted beyond its end", after_crash=Severity.NOTICE)
def cleaned_beyond_end(site: Site) -> None:
    site.checkpoint(_CLEANED, site.draw.randrange(301, 10**9))


@plants(Kind.CHECKPOINT, "a checkpoint of offsets with another text, version or count")
def garbled_checkpoint(site: Site) -> None:
    name = site.draw.choice([_HIGH_WATERMARKS, _RECOVERY_POINTS, _LOG_STARTS, _CLEANED])
    site.write(site.directory / name, site.draw.choice(_GARBAGE))


@plants(Kind.CHECKPOINT, "two entries of one partition")
def repeated_entry(site: Site) -> None:
    entry = f"{site.tp.topic} {site.tp.partition}"
    site.write(site.directory / _HIGH_WATERMARKS, f"0\n2\n{entry} 5\n{entry} 9\n".encode())


@plants(Kind.CHECKPOINT, "a leader-epoch checkpoint with another text, version or count")
def garbled_epochs(site: Site) -> None:
    garbage = (*_GARBAGE, b"0\n2\n5 0\n4 100\n", b"0\n2\n4 100\n5 50\n")
    site.write(site.replica / "leader-epoch-checkpoint", site.draw.choice(garbage))


@plants(Kind.CHECKPOINT, "a `meta.properties` with another version or broker id")
def garbled_owner(site: Site) -> None:
    garbage = (b"version=7\nbroker.id=1\n", b"version=0\nbroker.id=one\n", b"\xff")
    site.write(site.directory / "meta.properties", site.draw.choice(garbage))


@plants(Kind.CHECKPOINT, "a clean-shutdown marker without a broker epoch", needs_clean=True)
def garbled_marker(site: Site) -> None:
    garbage = (b"{", b"[]", b'{"version":0}', b'{"brokerEpoch":"x"}')
    site.write(site.directory / ".kafka_cleanshutdown", site.draw.choice(garbage))


@plants(Kind.CHECKPOINT, "a `partition.metadata` without a topic id", needs_clean=False)
def garbled_topic_id(site: Site) -> None:
    (site.directory / "new-replicas").unlink()
    garbage = (b"", b"version: 0\n", b"version: 1\ntopic_id: x\n", _metadata(bytes(16)))
    site.write(site.replica / "partition.metadata", site.draw.choice(garbage))


@plants(Kind.CHECKPOINT, "a stray's `stray.state` that is no JSON")
def garbled_stray_state(site: Site) -> None:
    shutil.copytree(site.replica, _renamed(site, "stray"))
    site.write(_renamed(site, "stray") / "stray.state", b"{")


@plants(Kind.TOPIC_ID, "a `partition.metadata` removed", needs_clean=False)
def removed_topic_id(site: Site) -> None:
    (site.directory / "new-replicas").unlink()
    (site.replica / "partition.metadata").unlink()


@plants(Kind.OTHER_TOPIC, "a replica with an unknown topic id")
def unknown_topic_id(site: Site) -> None:
    site.write(site.replica / "partition.metadata", _metadata(site.draw.randbytes(16)))
    site.named[:] = [site.replica]


@plants(Kind.OTHER_TOPIC, "a replica with the topic id of another topic")
def topic_id_of_another(site: Site) -> None:
    other = next(topic for topic in TOPICS if topic != site.tp.topic)
    path = site.directory / f"{other}-0" / "partition.metadata"
    site.write(site.replica / "partition.metadata", path.read_bytes())
    site.named[:] = [site.replica]


@plants(Kind.OTHER_TOPIC, "a replica's directory under the name of another topic")
def renamed_directory(site: Site) -> None:
    path = site.directory / f"arrivals-{site.draw.randrange(9)}"
    shutil.copytree(site.replica, path)
    site.named.append(path)


@plants(Kind.MISSING, "a replica's directory removed", after_crash=Severity.NOTICE)
def removed_replica(site: Site) -> None:
    shutil.rmtree(site.replica)
    site.named.append(site.replica)


@plants(Kind.ORPHAN, "a replica's directory emptied", severity=Severity.NOTICE)
def emptied_replica(site: Site) -> None:
    for path in site.replica.iterdir():
        path.unlink()
    site.named.append(site.replica)


@plants(Kind.ORPHAN, "a file or directory that no broker writes", severity=Severity.NOTICE)
def unknown_file(site: Site) -> None:
    names = (site.replica / "notes.txt", site.directory / "backup", site.directory / "flights-01")
    site.write(site.draw.choice(names), b"mine")


@plants(Kind.STRAY, "a replica set aside as a stray", severity=Severity.NOTICE)
def stray(site: Site) -> None:
    shutil.copytree(site.replica, _renamed(site, "stray"))
    site.named.append(_renamed(site, "stray"))


@plants(Kind.CHECKSUM, "a flipped bit in a stray or in a future replica")
def damaged_aside(site: Site) -> None:
    path = _renamed(site, site.draw.choice(["stray", "future"]))
    flipped_record(site)
    broken = site.named.pop()
    shutil.copytree(site.replica, path)
    site.named.append(path / broken.name)


@plants(Kind.FUTURE, "a future replica beside its current replica", severity=Severity.NOTICE)
def future_beside_current(site: Site) -> None:
    shutil.copytree(site.replica, _renamed(site, "future"))
    site.named.append(_renamed(site, "future"))


@plants(Kind.FUTURE, "a future replica without its current replica", severity=Severity.NOTICE)
def future_alone(site: Site) -> None:
    second = _second_directory(site)
    site.replica.rename(_renamed(site, "future", second))
    site.named.append(_renamed(site, "future", second))


def _second_directory(site: Site) -> Path:
    """Make a second log directory of the drawn broker."""
    second = site.root / f"broker-{site.broker}-second"
    second.mkdir()
    shutil.copy(site.directory / "meta.properties", second)
    return second


@plants(Kind.DUPLICATE, "a second copy of a replica in another log directory of its broker")
def second_copy(site: Site) -> None:
    shutil.copytree(site.replica, _second_directory(site) / site.replica.name)


@plants(Kind.MOVED, "the older copy of a replica that moved", severity=Severity.NOTICE)
def older_copy(site: Site) -> None:
    copy = _second_directory(site) / site.replica.name
    shutil.copytree(site.replica, copy)
    (copy / "moved-from").write_text(f"{site.directory}\n1\n")
    site.named.append(site.replica)


@plants(Kind.OWNER, "a `meta.properties` removed")
def removed_owner(site: Site) -> None:
    path = site.directory / "meta.properties"
    path.unlink()
    site.named.append(path)


@plants(Kind.OWNER, "the directory id of another directory")
def repeated_directory_id(site: Site) -> None:
    for number in (1, 2, 3):
        path = site.root / f"broker-{number}" / "meta.properties"
        name = "one" if number in (site.broker, site.broker % 3 + 1) else "two"
        text = f"version=1\nnode.id={number}\ncluster.id=test\ndirectory.id={name}\n"
        site.put(path, text.encode())


@plants(Kind.OTHER_CLUSTER, "the cluster id of another cluster")
def other_cluster(site: Site) -> None:
    path = site.directory / "meta.properties"
    site.put(path, path.read_bytes().replace(b"cluster.id=test", b"cluster.id=other"))
    site.named.append(site.directory)
