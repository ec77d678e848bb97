"""A program: drawn sets of options, read by Spark's own Kafka connector and by tidelog's source.

    option_sets.py BOOTSTRAP JARS SCRATCH SETS

SETS is a file with a JSON list of sets of options, which `draw_options` draws. The results go to
SCRATCH/found.json: of each set and connector the rows, or the moment of the refusal.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidelog.spark.session import start_session, stop_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Options = dict[str, str]
#: Offsets that the partitions of the topic have, from log start to end; timestamps are 1,000 times
#: the offset, and BASE_MS later.
HELD: Final = {0: (20, 100), 1: (0, 50), 2: (0, 0)}
BASE_MS: Final = 1_700_000_000_000
_OFFSETS: Final = (-3, -2, -1, 0, 10, 20, 30, 49, 50, 51, 100, 101, 150)
_TIMES: Final = (-2, -1, 0, *(BASE_MS + 1_000 * offset for offset in (0, 20, 30, 49, 50, 99, 150)))


def draw_options(draws: random.Random, topic: str) -> Options:
    """Draw one set of options of a batch query on a topic with the offsets HELD."""
    options = _selection(draws, topic)
    for edge in ("starting", "ending"):
        for form in ("Offsets", "Timestamp", "OffsetsByTimestamp"):
            if draws.random() < (0.45 if form == "Offsets" else 0.2):
                options[edge + form] = _bound(draws, topic, form)
    for name, values in (
        ("failOnDataLoss", ("true", "false", "false", "maybe")),
        ("minPartitions", ("1", "2", "3", "5", "10", "40", "0", "x")),
        ("maxRecordsPerPartition", ("1000", "100", "30", "7", "0", "x")),
        ("startingOffsetsByTimestampStrategy", ("error", "latest", "Latest", "none")),
        ("includeHeaders", ("true", "false")),
        ("kafka.isolation.level", ("read_committed", "read_uncommitted")),
    ):
        if draws.random() < 0.25:
            options[name] = draws.choice(values)
    return options


def _selection(draws: random.Random, topic: str) -> Options:
    drawn = draws.random()
    if drawn < 0.6:
        return {"subscribe": topic}
    if drawn < 0.8:
        numbers = draws.choice(([0], [1], [0, 1], [0, 1, 2], [2], [0, 7]))
        return {"assign": json.dumps({topic: numbers})}
    return {"subscribePattern": draws.choice((f"^{topic}$", topic[:-1], "nothing-has-this"))}


def _bound(draws: random.Random, topic: str, form: str) -> str:
    if form == "Timestamp":
        return str(draws.choice(_TIMES))
    if form == "Offsets" and draws.random() < 0.3:
        return draws.choice(("earliest", "latest", "EARLIEST", "latest ", "none"))
    values = _OFFSETS if form == "Offsets" else _TIMES
    numbers = [0, 1, 2] if draws.random() < 0.85 else draws.choice(([0], [0, 1], [0, 1, 2, 3]))
    return json.dumps({topic: {str(number): draws.choice(values) for number in numbers}})


#: Differences of the two connectors, each with a pattern of tidelog's refusal, or of the other's.
LISTED: Final = (
    ("an offset below -2 is refused", r"has the offset -3 for"),
    ("an end before the start is refused", r"which is after|must name the same partitions"),
    ("words are checked that the other leaves alone", r"expected (true|error|a number)"),
)


#: tidelog's refusal of a partition that does not exist.
_ABSENT: Final = r"option assign names \S+; topic"
#: tidelog's refusal of a partition whose start lies beyond its end, also with minPartitions.
_LOST: Final = r"DataLossError: \S+-(\d+) should be read"
#: Parts of the connector's refusals of a start beyond the end: of some partition, or of this one.
_BEYOND: Final = "failed"
_BEYOND_OF: Final = r"start offset \d+ is greater than .* partition (\d+)"


def difference(kafka: Any, tidelog: Any, options: Options) -> str | None:
    """Return what differs and is not listed: rows, a refusal, or more tasks."""
    if "refused" in kafka and "refused" in tidelog:
        return None  # at load() or at the first action: see the guide
    if "refused" in tidelog:
        if re.search(_ABSENT, tidelog["why"]):
            return None  # the connector reads the other partitions, or nothing
        lost = re.search(_LOST, tidelog["why"])
        if lost is not None and all(number != int(lost[1]) for number, _ in kafka["rows"]):
            return None
        if any(re.search(pattern, tidelog["why"]) for _, pattern in LISTED):
            return None if not kafka["rows"] else f"kafka has {len(kafka['rows'])} rows"
        return f"tidelog refuses: {tidelog['why']}"
    if "refused" in kafka:
        beyond = re.search(_BEYOND_OF, kafka["why"])
        read = {partition for partition, _ in tidelog["rows"]}
        is_listed = not read and re.search(_BEYOND, kafka["why"])
        if is_listed or (beyond is not None and int(beyond[1]) not in read):
            return None
        return f"kafka refuses: {kafka['why']}"
    if kafka["rows"] != tidelog["rows"]:
        return f"kafka has {len(kafka['rows'])} rows, tidelog {len(tidelog['rows'])}"
    # The connector compares the limit with the difference of -2 and -1, earliest and latest.
    is_unsplit = "maxRecordsPerPartition" in options and "minPartitions" not in options
    if tidelog["tasks"] > max(1, kafka["tasks"]) and not is_unsplit:
        return f"kafka has {kafka['tasks']} tasks, tidelog {tidelog['tasks']}"
    return None


def read(spark: SparkSession, connector: str, servers: str, options: Mapping[str, str]) -> Any:
    """Read with a connector: the rows and the number of tasks, or the refusal and its moment."""
    reader = spark.read.format(connector).options(**options)
    reader = reader.option("kafka.bootstrap.servers", servers)
    reader = reader.option("kafkaConsumer.pollTimeoutMs", "3000")
    moment = "load"
    try:
        frame = reader.load()
        moment = "read"
        rows = frame.select("partition", "offset").collect()
        tasks = frame.rdd.getNumPartitions()
    except Exception as error:  # the refusal is the result
        return {"refused": moment, "why": str(error)[:1500]}
    return {"rows": sorted([row.partition, row.offset] for row in rows), "tasks": tasks}


def main(bootstrap: str, jars: str, scratch: str, sets: str) -> None:
    paths = ",".join(str(path) for path in sorted(Path(jars).glob("*.jar")))
    log_path = f"{scratch}/jvm.log"
    conf = {"spark.jars": paths}
    spark = start_session("option-sets", quick=True, log_path=log_path, conf=conf)
    drawn: Sequence[Options] = json.loads(Path(sets).read_text(encoding="utf-8"))
    try:
        found = [
            {name: read(spark, name, bootstrap, options) for name in ("kafka", "tidelog")}
            for options in drawn
        ]
    finally:
        stop_session(spark)
    Path(scratch, "found.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
