"""The demo from start to end: cluster, producer and faults, ingest, proof, audit, plot, verdict.

Exit code 0 only if nothing is lost or doubled and every expectation holds: more than 10,000 records
acknowledged before, between and after the kills, two changes of leaders, one of the controller,
30 seconds of producing. Whatever happens, nothing is left running.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from dataclasses import dataclass
from types import FrameType
from typing import Annotated, Final

import typer
from examples.demo.flights import TOTAL, read_flights
from examples.demo.observing import Observer
from examples.demo.plot import Moment, draw
from examples.demo.producing import FlightProducer
from examples.demo.scenario import Scenario
from examples.demo.story import Story

from tidelog.core.errors import TidelogError
from tidelog.local import LocalCluster
from tidelog.runtime.blocking import BlockingClient

TOPIC: Final = "flights"
PARTITIONS: Final = 6
REPLICAS: Final = 3
#: Minimum number of records acknowledged in each phase, and minimum time of producing.
PHASE_RECORDS: Final = 10_000
LEAST_SECONDS: Final = 30.0
_PACE_SECONDS: Final = 34.0


@dataclass(frozen=True, slots=True)
class Places:
    """Paths of everything that the demo creates."""

    directory: str

    @property
    def cluster(self) -> str:
        """The brokers' directory."""
        return os.path.join(self.directory, "cluster")

    @property
    def table(self) -> str:
        """The Delta table."""
        return os.path.join(self.directory, "flights")

    @property
    def plot(self) -> str:
        """The plot."""
        return os.path.join(self.directory, "demo.png")

    @property
    def audit(self) -> str:
        """The page of the audit of the brokers' files."""
        return os.path.join(self.directory, "audit.html")

    @property
    def spark_log(self) -> str:
        """The log of Spark's Java process."""
        return os.path.join(self.directory, "spark.log")


@dataclass(frozen=True, slots=True)
class Measured:
    """Measurements of the demo's producing part."""

    phases: tuple[int, int, int]
    leader_changes: int
    controller_changes: int
    slowest_s: float
    seconds: float
    acknowledged: int
    distance: int

    def rows(self) -> list[tuple[str, str, str, bool]]:
        """Return rows of name, value, expectation, and whether the expectation holds."""
        before, between, after = self.phases
        wanted = f"over {PHASE_RECORDS:,}"
        return [
            ("acknowledged before the first kill", f"{before:,}", wanted, before > PHASE_RECORDS),
            ("acknowledged between the kills", f"{between:,}", wanted, between > PHASE_RECORDS),
            ("acknowledged after the second kill", f"{after:,}", wanted, after > PHASE_RECORDS),
            (
                "acknowledged in all",
                f"{self.acknowledged:,}",
                f"{TOTAL:,}",
                self.acknowledged == TOTAL == sum(self.phases),
            ),
            ("leader changes", str(self.leader_changes), "2 or more", self.leader_changes >= 2),
            (
                "controller changes",
                str(self.controller_changes),
                "1 or more",
                self.controller_changes >= 1,
            ),
            ("slowest acknowledgement", f"{self.slowest_s * 1000:,.0f} ms", "", True),
            (
                "producing took",
                f"{self.seconds:.1f} s",
                f"{LEAST_SECONDS:.0f} s or more",
                self.seconds >= LEAST_SECONDS,
            ),
        ]


def run_demo(
    output: Annotated[
        str, typer.Option("--output", help="Directory for the cluster, the table and the plot.")
    ] = "demo-output",
    seconds: Annotated[
        float, typer.Option(min=LEAST_SECONDS, help="Pace: seconds over which to produce.")
    ] = _PACE_SECONDS,
    store: Annotated[
        str,
        typer.Option(help="Metadata store: embedded, zookeeper or zookeeper://host:port/chroot."),
    ] = "embedded",
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the brokers' data directories.")
    ] = False,
) -> None:
    """Run three brokers and real flights through two kills; PySpark, a proof and a plot."""
    story = Story()
    places = Places(os.path.abspath(output))
    story.title("tidelog: 336,776 flights, three brokers, two kills, one proof")
    signal.signal(signal.SIGTERM, _terminate)
    try:
        _clear(places)
        verdict, good = _run_story(story, places, seconds, store)
        if good and not keep:
            shutil.rmtree(places.cluster)
        story.verdict(verdict, good)
    except TidelogError as error:
        story.verdict(f"failed: {error}", good=False)
        good = False
    raise typer.Exit(0 if good else 1)


def _terminate(number: int, frame: FrameType | None) -> None:
    """Raise on SIGTERM as on an interrupt, so that brokers and Java are stopped at the end."""
    sys.exit(128 + number)


def _clear(places: Places) -> None:
    """Remove the results of an earlier demo, including brokers that still run."""
    if os.path.isdir(places.cluster):
        LocalCluster.existing(places.cluster).down()
        shutil.rmtree(places.cluster)
    shutil.rmtree(places.table, ignore_errors=True)
    os.makedirs(places.directory, exist_ok=True)


def _run_story(story: Story, places: Places, seconds: float, store: str) -> tuple[str, bool]:
    """Run the whole story; return the verdict, and whether it is good."""
    where = "an embedded metadata store" if store == "embedded" else f"a metadata store: {store}"
    story.chapter(f"Three brokers on {where}")
    cluster = LocalCluster(places.cluster, brokers=REPLICAS, store=store)
    try:
        cluster.up()
        story.line(f"ready; bootstrap: {cluster.bootstrap}")
        measured = _produce(story, places, cluster, seconds)
        story.chapter("Into a Delta table with PySpark")
        verdict, good = _ingest_and_prove(story, places, cluster, measured)
    finally:
        cluster.down()
    story.line("the brokers are stopped")
    return verdict, good


def _produce(story: Story, places: Places, cluster: LocalCluster, seconds: float) -> Measured:
    story.chapter(
        f"Topic {TOPIC}: {PARTITIONS} partitions, {REPLICAS} replicas, min.insync.replicas 2"
    )
    with BlockingClient(cluster.bootstrap, "tidelog-demo") as client:
        client.create_topic(TOPIC, PARTITIONS, REPLICAS, {"min.insync.replicas": "2"})
        client.await_topic(TOPIC, REPLICAS)
    story.line("made; every partition has a leader and a full ISR")
    story.chapter("Flights of 2013 out of New York, keyed by carrier: idempotent, acks=all")
    producer = FlightProducer(cluster.bootstrap, TOPIC, read_flights(), TOTAL, seconds)
    observer = Observer(cluster.bootstrap, TOPIC, REPLICAS)
    observer.start()
    try:
        with story.bar("flights acknowledged", TOTAL) as bar:
            scenario = Scenario(cluster, producer, observer, story, bar, TOPIC, TOTAL)
            producer.start()
            scenario.run()
    finally:
        producer.stop()
        observer.stop()
    draw(
        places.plot,
        producer.began_at,
        producer.acknowledged_at,
        observer.samples,
        scenario.moments,
        REPLICAS,
        producer.held,
    )
    story.line(f"drawn: {places.plot}")
    return _measure(producer, observer, scenario.moments)


def _measure(producer: FlightProducer, observer: Observer, moments: list[Moment]) -> Measured:
    first, second = (moment.at for moment in moments if moment.is_kill)
    last = max(producer.acknowledged_at)
    return Measured(
        phases=(
            producer.acknowledged_between(0.0, first),
            producer.acknowledged_between(first, second),
            producer.acknowledged_between(second, float("inf")),
        ),
        leader_changes=observer.leader_changes(),
        controller_changes=observer.controller_changes(),
        slowest_s=producer.slowest_s(),
        seconds=last - producer.began_at,
        acknowledged=producer.acknowledged,
        distance=producer.distance,
    )


def _ingest_and_prove(
    story: Story, places: Places, cluster: LocalCluster, measured: Measured
) -> tuple[str, bool]:
    from examples.demo import proving

    from tidelog.spark.session import start_session, stop_session

    spark = start_session("tidelog-demo", quick=True, log_path=places.spark_log)
    try:
        story.line("Spark is up")
        report = proving.ingest_flights(spark, story, cluster.bootstrap, TOPIC, places.table)
        story.line(f"{report.proof.rows:,} rows in {len(report.files)} files: {places.table}")
        story.chapter("The proof, from the table alone: in Spark, and in DuckDB")
        proof = proving.prove_flights(spark, places.table, TOTAL)
        distance = proving.distance_of(spark, places.table)
        again = proving.counts_in_duckdb(places.table)
        story.chapter("The audit of the brokers' files: every replica, read and compared")
        audited = proving.audit_logs(spark, story, cluster, places.audit)
    finally:
        stop_session(spark)
    rows = measured.rows()
    numbers = range(TOTAL)
    rows += [
        ("audit: damaged places", str(dict(audited.facts)["damage"]), "0", audited.holds),
        ("sequence: count", f"{proof.count:,}", f"{TOTAL:,}", proof.count == TOTAL),
        ("sequence: distinct", f"{proof.distinct:,}", f"{TOTAL:,}", proof.distinct == TOTAL),
        ("sequence: sum", f"{proof.total:,}", f"{sum(numbers):,}", proof.total == sum(numbers)),
        ("sequence: minimum", str(proof.smallest), "0", proof.smallest == numbers[0]),
        ("sequence: maximum", str(proof.largest), str(numbers[-1]), proof.largest == numbers[-1]),
        (
            "DuckDB: count, distinct, miles",
            ", ".join(f"{each:,}" for each in again),
            f"{TOTAL:,}, {TOTAL:,}, {measured.distance:,}",
            again == (TOTAL, TOTAL, measured.distance),
        ),
        ("miles flown", f"{distance:,}", f"{measured.distance:,}", distance == measured.distance),
    ]
    story.table([(name, value, wanted) for name, value, wanted, _ in rows])
    missed = [name for name, _, _, holds in rows if not holds]
    if missed:
        story.line(f"not as expected: {', '.join(missed)}", style="red")
    return proof.verdict(), proof.holds and report.proof.holds and not missed


def main() -> None:
    """Run the demo as `python -m examples.demo`."""
    typer.run(run_demo)
