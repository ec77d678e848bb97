"""The commands of docs/guide/testing.md, typed into a shell."""

from __future__ import annotations

import json
from pathlib import Path

from tests.guide.documents import ROOT, Terminal, sections

GUIDE = ROOT / "docs" / "guide" / "testing.md"


def test_faults_by_http_from_a_shell(tmp_path: Path) -> None:
    commands = sections(GUIDE)["Tests in other languages"].named["faults"]
    printed = [json.loads(line) for line in Terminal(tmp_path).run(commands).splitlines()]
    topic, made, leader, cluster, lost = printed
    assert (topic, made["name"], lost["name"]) == ({"name": "orders"}, "lost", "lost")
    assert leader["leader"] in (1, 2, 3)
    assert [broker["state"] for broker in cluster["brokers"]] == ["stopped", "running", "running"]
