"""Each finding of doctor about this machine, a log directory and a configuration file, planted."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.cli import run

from tidelog.local.doctor.config_findings import ConfigFacts, examine_config, read_config
from tidelog.local.doctor.diagnosis import Diagnosis
from tidelog.local.doctor.directory_facts import DirectoryFacts, holder_of, read_directory
from tidelog.local.doctor.directory_findings import examine_directory
from tidelog.local.doctor.machine_facts import (
    MachineFacts,
    ProcessFacts,
    VolumeFacts,
    needed_open_files,
    read_machine,
)
from tidelog.local.doctor.machine_findings import of_machine
from tidelog.local.health import Finding
from tidelog.log import names
from tidelog.log.directory_files import format_meta_properties
from tidelog.runtime.files import lock_directory

GOOD = VolumeFacts("/data/a", "/data", "ext4", ("rw", "relatime"), 1, 500, 1_000, False)


def of_volume(**changes: Any) -> Finding:
    [finding] = of_machine(MachineFacts(volumes=[replace(GOOD, **changes)]))
    return finding


def of_process(process: ProcessFacts, maximum: int = 65_530) -> list[Finding]:
    return list(of_machine(MachineFacts([process], [], maximum, needed_open_files())))


class TestMachine:
    def test_a_good_machine_has_no_finding(self) -> None:
        enough = ProcessFacts("broker 1", 100_000, 90, 800)
        facts = MachineFacts([enough], [GOOD], 65_530, needed_open_files())
        assert list(of_machine(facts)) == []

    @pytest.mark.parametrize(
        ("changes", "level", "kind", "remedy"),
        [
            ({"options": ("ro",)}, "unavailable", "mounted_read_only", "remount,rw /data"),
            ({"kind": "nfs4"}, "degraded", "network_file_system", "local disk"),
            ({"kind": "tmpfs"}, "notice", "memory_file_system", "log.dirs"),
            ({"kind": "overlay"}, "notice", "container_layer", "docker run -v"),
            ({"options": ("rw", "nobarrier")}, "degraded", "barriers_off", "remount,barrier /data"),
            ({"options": ("rw", "sync")}, "notice", "mount_option_slow", "remove sync in /etc"),
            ({"is_rotating": True}, "notice", "rotating_disk", "solid-state"),
            ({"usable_bytes": 49}, "degraded", "disk_nearly_full", "retention"),
        ],
    )
    def test_disks(self, changes: dict[str, Any], level: str, kind: str, remedy: str) -> None:
        found = of_volume(**changes)
        assert (found.level, found.kind) == (level, kind)
        assert found.message.startswith("/data/a is on /data (") and remedy in found.next

    def test_log_directories_on_one_volume(self) -> None:
        other = replace(GOOD, path="/data/b")
        [found] = of_machine(MachineFacts(volumes=[GOOD, other]))
        assert (found.level, found.kind) == ("notice", "volume_shared")
        assert found.message.endswith("share a volume: /data/a, /data/b")

    def test_too_few_open_files(self) -> None:
        [found] = of_process(ProcessFacts("broker 1", 1_024))
        assert (found.level, found.kind) == ("degraded", "open_files_low")
        assert "broker 1 may open 1,024 files, and may need 5,376" in found.message
        assert "LimitNOFILE=100000" in found.next

    def test_open_files_and_maps_near_their_limits(self) -> None:
        files, maps = of_process(ProcessFacts("broker 1", 10_000, 8_001, 60_000))
        assert (files.kind, maps.kind) == ("open_files_near_limit", "maps_near_limit")
        assert maps.next == "sysctl -w vm.max_map_count=262144"
        [maps] = of_process(ProcessFacts("broker 1", 100_000, 1, 900_000), 1_000_000)
        assert maps.next == "sysctl -w vm.max_map_count=2000000", "never lower than it is"

    def test_this_machine_is_read(self, tmp_path: Path) -> None:
        facts = read_machine([str(tmp_path / "absent" / "a")], [("me", os.getpid())], 1)
        [process], [volume] = facts.processes, facts.volumes
        assert process.name == "me" and process.open_files_limit > 0
        assert process.open_files and process.maps and facts.max_map_count
        assert volume.device == os.stat(tmp_path).st_dev and volume.total_bytes > 0
        assert volume.kind and "rw" in volume.options
        [shell] = read_machine([], [("gone", 2**22 + 1)], 1).processes
        assert shell.name == "a broker that is started from this shell"


def diagnosed(path: Path) -> Diagnosis:
    return examine_directory(read_directory(str(path)), MachineFacts())


def kinds(found: Diagnosis) -> list[str]:
    return [each.kind for each in found.findings]


@pytest.fixture
def owned(tmp_path: Path) -> Path:
    """A log directory of broker 1 with one replica."""
    (tmp_path / "meta.properties").write_bytes(format_meta_properties("c", 1))
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / names.offset_name(0, names.LOG)).touch()
    return tmp_path


class TestDirectories:
    def test_a_directory_closed_cleanly_has_no_finding(self, owned: Path) -> None:
        (owned / ".kafka_cleanshutdown").touch()
        found = diagnosed(owned)
        assert (found.subject, found.level, found.findings) == ("directory", "healthy", [])

    def test_a_directory_that_was_not_closed_cleanly(self, owned: Path) -> None:
        [finding] = diagnosed(owned).findings
        assert (finding.level, finding.kind) == ("notice", "directory_not_clean")
        assert "what was not flushed of 1 replica" in finding.message
        assert f"tidelog pipeline audit {owned}" in finding.next

    def test_a_missing_directory_and_a_file_in_its_place(self, tmp_path: Path) -> None:
        missing = diagnosed(tmp_path / "absent")
        assert (missing.exit_code, kinds(missing)) == (3, ["directory_unreadable"])
        assert "there is no such directory" in missing.findings[0].message
        (tmp_path / "file").touch()
        assert "Not a directory" in diagnosed(tmp_path / "file").findings[0].message

    def test_a_foreign_directory(self, tmp_path: Path) -> None:
        (tmp_path / "photo.jpg").touch()
        (tmp_path / "album-1").mkdir()
        found = diagnosed(tmp_path)
        assert (found.exit_code, kinds(found)) == (2, ["directory_foreign"])
        assert found.findings[0].message.endswith("it holds album-1, photo.jpg")

    def test_an_empty_directory_is_new(self, tmp_path: Path) -> None:
        found = diagnosed(tmp_path)
        assert (found.exit_code, kinds(found)) == (0, ["directory_new"])

    def test_an_owner_that_cannot_be_read_or_is_gone(self, owned: Path) -> None:
        (owned / "meta.properties").write_text("version=7\n")
        found = diagnosed(owned)
        assert (found.exit_code, found.findings[0].kind) == (2, "owner_unreadable")
        assert "version is '7', only 0 and 1 are known" in found.findings[0].message
        (owned / "meta.properties").unlink()
        found = diagnosed(owned)
        assert (found.exit_code, found.findings[0].kind) == (1, "owner_missing")

    def test_a_directory_in_use_names_the_process(self, owned: Path) -> None:
        descriptor = lock_directory(str(owned))
        found = diagnosed(owned)
        os.close(descriptor)
        assert kinds(found) == ["directory_in_use"]
        assert f"process {os.getpid()} uses {owned}" in found.findings[0].message

    def test_locks_of_other_files_and_kinds_name_nobody(self) -> None:
        lines = [
            "1: FLOCK  ADVISORY  WRITE 11 fe:00:70 0 EOF",
            "2: POSIX  ADVISORY  WRITE 12 fe:00:71 0 EOF",
            "3: FLOCK  ADVISORY  READ 13 fe:00:71 0 EOF",
            "2: -> FLOCK ADVISORY WRITE 14 fe:00:71",
        ]
        assert holder_of(71, lines) is None
        assert holder_of(70, lines) == 11

    def test_replicas_aside_and_other_entries(self, owned: Path) -> None:
        for suffix in (names.STRAY_SUFFIX, names.FUTURE_SUFFIX, names.DELETE_SUFFIX):
            (owned / f"t-1.{0:032x}{suffix}").mkdir()
        (owned / "notes.txt").touch()
        assert kinds(diagnosed(owned)) == [
            "directory_entries",
            "directory_not_clean",
            "directory_strays",
            "directory_copies",
        ]

    def test_a_directory_of_another_user(self) -> None:
        facts = DirectoryFacts("/a", is_writable=False, is_clean=True, foreign=("x",), replicas=1)
        found = examine_directory(facts, MachineFacts())
        assert (found.exit_code, found.findings[0].kind) == (2, "directory_not_writable")
        assert found.findings[0].next.startswith("ls -ld /a; examine it as the user of its broker")
        used = examine_directory(replace(facts, holder=7), MachineFacts())
        kinds = [each.kind for each in used.findings]
        assert "directory_in_use" in kinds and "directory_not_writable" not in kinds


class TestConfigurations:
    @pytest.fixture
    def write(self, tmp_path: Path) -> Any:
        def write(*lines: str, name: str = "server.properties") -> str:
            path = tmp_path / name
            path.write_text(
                "\n".join(
                    [
                        "broker.id=1",
                        "listeners=PLAINTEXT://127.0.0.1:9092",
                        f"log.dirs={tmp_path}/data",
                        f"metadata.store=embedded:{tmp_path}/metadata",
                        *lines,
                    ]
                )
            )
            return str(path)

        return write

    def of(self, path: str) -> Diagnosis:
        return examine_config(replace(read_config(path), machine=MachineFacts()))

    def test_a_good_file_names_directories_that_come_to_be(self, write: Any) -> None:
        found = self.of(write())
        assert (found.subject, found.exit_code, kinds(found)) == ("file", 0, ["directory_new"])
        assert "does not exist: the broker creates it" in found.findings[0].message

    def test_an_unknown_key_degrades_and_gets_a_hint(self, write: Any) -> None:
        found = self.of(write("num.partitons=3"))
        assert (found.exit_code, found.findings[0].kind) == (1, "config_unknown_key")
        assert "did you mean num.partitions?" in found.findings[0].message
        assert "server.properties" in found.findings[0].next

    def test_a_key_of_kafka_without_effect_is_noticed(self, write: Any) -> None:
        found = self.of(write("num.network.threads=3"))
        assert (found.exit_code, kinds(found)[0]) == (0, "config_warning")

    @pytest.mark.parametrize(
        ("line", "text"),
        [
            ("num.partitions=many", "num.partitions"),
            ("listeners=SSL://127.0.0.1:9093", "asks for SSL"),
            ("metadata.store=", "metadata.store is not set"),
        ],
    )
    def test_a_value_with_which_no_broker_starts(self, write: Any, line: str, text: str) -> None:
        found = self.of(write(line))
        assert (found.exit_code, kinds(found)) == (2, ["config_refused"])
        assert text in found.findings[0].message

    def test_a_missing_file(self, tmp_path: Path) -> None:
        found = self.of(str(tmp_path / "absent.properties"))
        assert (found.exit_code, kinds(found)) == (3, ["config_missing"])

    def test_replication_that_does_not_go_together(self, write: Any) -> None:
        lines = ("default.replication.factor=3", "min.insync.replicas=3")
        found = self.of(write(*lines, "offsets.topic.replication.factor=1"))
        assert kinds(found)[:2] == ["config_min_isr", "config_offsets_replicas"]
        assert "set min.insync.replicas=2" in found.findings[0].next

    def test_an_advertised_host_without_an_address(
        self, write: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def unknown(host: str | None, port: int) -> Any:
            raise OSError(f"{host}: Name or service not known")

        monkeypatch.setattr(socket, "getaddrinfo", unknown)
        found = self.of(write("advertised.listeners=PLAINTEXT://nowhere.invalid:9092"))
        assert (found.exit_code, found.findings[0].kind) == (1, "host_unresolved")
        assert "the advertised host nowhere.invalid cannot be resolved" in found.findings[0].message

    def test_the_directories_of_the_file_are_examined(self, write: Any, tmp_path: Path) -> None:
        (tmp_path / "data").touch()
        found = self.of(write())
        assert (found.exit_code, kinds(found)) == (2, ["directory_unreadable"])
        low = MachineFacts([ProcessFacts("a broker", 10)], [], None, 100)
        facts = ConfigFacts("f", config=read_config(write()).config, machine=low)
        assert kinds(examine_config(facts)) == ["open_files_low"]


class TestCommand:
    def test_one_subject_at_a_time(
        self, monkeypatch: pytest.MonkeyPatch, capfd: Any, tmp_path: Path
    ) -> None:
        assert run(monkeypatch, "doctor", str(tmp_path), "-b", "h:1") == 2
        assert "give PATH, --bootstrap-server or --dir" in capfd.readouterr().err

    def test_a_path_that_is_missing_exits_with_3(
        self, monkeypatch: pytest.MonkeyPatch, capfd: Any, tmp_path: Path
    ) -> None:
        assert run(monkeypatch, "doctor", str(tmp_path / "a.toml")) == 3
        assert "config_missing" not in (said := capfd.readouterr().out)
        assert said.startswith(f"unreachable: file {tmp_path}/a.toml; 1 finding\n")
        assert run(monkeypatch, "doctor", str(tmp_path / "a"), "-o", "json") == 3
        assert '"kind": "directory_unreadable"' in capfd.readouterr().out
