"""`python -m bench [part ...] [--beside VERSION] [--store STORE]`: docs/measurements.md's tables.

Parts: throughput produce walk failover clients scale controller shutdown isr flush groups offsets
metrics console compaction starts first_use memory unread reassign jbod simulation spark lake.
With `--beside` Apache Kafka of that version runs next to us and is measured in turns, where Java,
Maven and a registry are; where they are not, one line says so and the parts go on without. The
parts scale, controller and isr measure both stores, or with `--store` one of them. With `--against`
each part runs in turns with another checkout, so that a change is measured where it is made;
produce runs both clusters at the same time. The parts spark and lake take Spark's official
connector beside ours, and the cases named with `--cases` alone.
"""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Iterable, Sequence

from bench import (
    against,
    console,
    controller,
    directory_moves,
    failover,
    first_use,
    flush,
    groups,
    isr,
    isr_slow_reads,
    jbod,
    joining,
    log,
    memory,
    metrics,
    offsets,
    produce,
    reassign,
    returning,
    scale,
    shutdown,
    simulation,
    starts,
    throughput,
    unread,
    walk,
)
from bench.rig import MIB
from bench.systems import TIDELOG, System

PARTS = (
    "throughput",
    "produce",
    "walk",
    "failover",
    "clients",
    "scale",
    "controller",
    "shutdown",
    "isr",
    "flush",
    "groups",
    "offsets",
    "metrics",
    "console",
    "compaction",
    "starts",
    "first_use",
    "memory",
    "unread",
    "reassign",
    "jbod",
    "simulation",
    "spark",
    "lake",
)


def main() -> None:
    """Run the parts asked for, print Markdown."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("parts", nargs="*", default=[], help=f"of {' '.join(PARTS)}; default all")
    parser.add_argument("--rounds", type=int, default=5, help="runs per figure (default 5)")
    parser.add_argument("--mib", type=int, default=512, help="MiB per run (default 512)")
    parser.add_argument(
        "--volume-mib", type=int, default=10 * 1024, help="of reassign: MiB moved (default 10,240)"
    )
    parser.add_argument("--beside", metavar="VERSION", help="Apache Kafka to compare with: 3.9.2")
    parser.add_argument("--against", metavar="CHECKOUT", help="another checkout to compare with")
    parser.add_argument("--store", choices=scale.STORES, help="of scale, controller, isr: only it")
    parser.add_argument(
        "--cases", metavar="TEXT", help="of spark, lake: those whose title has the text"
    )
    parser.add_argument(
        "--topics", type=int, default=console.TOPICS, help="of console: topics (default 3,000)"
    )
    parser.add_argument("--clients", metavar="TEXT", help="of clients: those whose name has it")
    parser.add_argument("--kills", action="store_true", help="of clients: producers at kills alone")
    options = parser.parse_args()
    stores = (options.store,) if options.store else scale.STORES
    unknown = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"unknown part {unknown[0]!r}; there are {' '.join(PARTS)}")
    beside = f" --beside {options.beside}" if options.beside else ""
    store = f" --store {options.store}" if options.store else ""
    cases = f" --cases '{options.cases}'" if options.cases else ""
    cases += f" --clients '{options.clients}'" if options.clients else ""
    cases += " --kills" if options.kills else ""
    cases += f" --topics {options.topics}" if options.topics != console.TOPICS else ""
    print(
        f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()}; "
        f"command: python -m bench {' '.join([*options.parts, ''])}--rounds {options.rounds} "
        f"--mib {options.mib} --volume-mib {options.volume_mib}{beside}{store}{cases}\n"
    )
    systems = [TIDELOG, *(_kafka(options.beside) if options.beside else [])]
    for part in options.parts or PARTS:
        texts: Iterable[str]
        if options.against and part != "produce":
            texts = against.run(part, options.rounds, _given(options, parser), options.against)
        elif part == "produce":
            texts = produce.run(options.rounds, options.mib * MIB, options.against)
        elif part == "spark":
            texts = _spark(options.rounds, options.mib * MIB, options.cases or "")
        elif part == "lake":
            texts = _lake(options.rounds, options.mib * MIB, options.cases or "")
        elif part == "console":
            texts = console.run(options.rounds, options.topics)
        elif part == "clients":
            texts = _clients(systems, options.rounds, options.clients or "", options.kills)
        else:
            texts = _tables(
                part,
                systems,
                options.rounds,
                options.mib * MIB,
                options.volume_mib * MIB,
                stores,
            )
        for text in texts:
            print(text, flush=True)


def _tables(
    part: str,
    systems: list[System],
    rounds: int,
    run_bytes: int,
    volume_bytes: int,
    stores: Sequence[str],
) -> list[str]:
    match part:
        case "throughput":
            return throughput.run(systems, rounds, run_bytes)
        case "walk":
            return walk.run(rounds)
        case "failover":
            return failover.run(systems, rounds)
        case "scale":
            return scale.run(rounds, stores)
        case "controller":
            return controller.run(rounds, stores)
        case "shutdown":
            return shutdown.run(rounds)
        case "isr":
            return [
                *isr.run(rounds),
                *joining.run(rounds, stores),
                *isr_slow_reads.run(),
                *returning.run(rounds, run_bytes, stores),
            ]
        case "flush":
            return flush.run(rounds)
        case "groups":
            return groups.run(systems, rounds)
        case "offsets":
            return offsets.run(systems, rounds)
        case "metrics":
            return metrics.run(rounds, run_bytes)
        case "compaction":
            return log.compactions(rounds)
        case "starts":
            return starts.run(rounds)
        case "first_use":
            return first_use.run(rounds)
        case "memory":
            return memory.run(systems, run_bytes)
        case "unread":
            return unread.run(systems, rounds)
        case "reassign":
            return reassign.run(systems, rounds, volume_bytes)
        case "jbod":
            return [*jbod.run(rounds), *directory_moves.run(rounds, run_bytes)]
        case _:
            return simulation.run()


def _given(options: argparse.Namespace, parser: argparse.ArgumentParser) -> list[str]:
    """Return the options that differ from their defaults, for a turn of one part."""
    words: list[str] = []
    for name in ("mib", "volume_mib", "store", "cases", "clients", "topics"):
        value = getattr(options, name)
        if value != parser.get_default(name):
            words += [f"--{name.replace('_', '-')}", str(value)]
    return [*words, *(["--kills"] if options.kills else [])]


def _clients(systems: Sequence[System], rounds: int, names: str, kills: bool) -> list[str]:
    from bench import failover_clients  # Loaded here alone: it needs the clients, Java and Go.

    return failover_clients.run(systems, rounds, names, kills)


def _spark(rounds: int, run_bytes: int, cases: str) -> Iterable[str]:
    from bench import spark  # Loaded here alone: it needs PySpark.

    return spark.run(rounds, run_bytes, cases)


def _lake(rounds: int, run_bytes: int, cases: str) -> Iterable[str]:
    from bench import lake  # Loaded here alone: it needs PySpark.

    return lake.run(rounds, run_bytes, cases)


def _kafka(version: str) -> list[System]:
    """Apache Kafka where it can be had."""
    # Loaded here alone: it needs the tests' sources, and Java.
    from tests.support.clients.absent import Absent

    from bench import kafka

    try:
        found = kafka.kafka(version)
    except Absent as absent:
        print(f"Apache Kafka {version} is not measured beside: {absent}\n", flush=True)
        return []
    print(
        f"{found.name}: three nodes, each broker and controller, {kafka.HEAP} of heap each,"
        f" {kafka.java_version()}\n",
        flush=True,
    )
    return [found]


if __name__ == "__main__":
    main()
