"""Findings about brokers: reachable addresses, clocks, versions, and what the controller sees.

The functions are pure. A clock difference counts only if it exceeds the error of its measurement,
which is half of the round trip time. Whether brokers reach each other is seen from two facts:
brokers acknowledge the controller's commands, and followers' fetches arrive at leaders.
`partition_findings` has the findings about fetches.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Sequence

from tidelog.core.protocol_level import NEWEST, is_level, level_of
from tidelog.core.wording import brokers_text
from tidelog.local.doctor.cluster_facts import BrokerFacts, ClusterFacts
from tidelog.local.doctor.diagnosis import degraded, notice, some
from tidelog.local.health import ClusterPlace, Finding
from tidelog.wire.registry import API, FIRST_OWN_KEY

#: Difference of clocks in ms from which timestamps and retention by time are noticeably wrong.
CLOCK_NOTICE_MS = 500
#: Difference of clocks in ms from which the logs of several brokers cannot be compared.
CLOCK_DEGRADED_MS = 60_000


def of_brokers(facts: ClusterFacts, place: ClusterPlace) -> Iterator[Finding]:
    """Yield the findings about brokers."""
    yield from _silent(facts.brokers)
    yield from _loopback(facts.brokers)
    yield from _overdue(facts)
    yield from _clocks(facts.brokers)
    yield from _versions(facts.brokers)
    yield from _levels(facts.brokers, place)


def _silent(brokers: Sequence[BrokerFacts]) -> Iterator[Finding]:
    for each in brokers:
        if each.silence:
            message = (
                f"broker {each.broker_id} is registered, and does not respond at its advertised"
                f" address {each.address}: {each.silence}"
            )
            remedy = (
                f"on this machine: nc -vz {each.host} {each.port}; then correct"
                f" advertised.listeners of broker {each.broker_id}, its firewall, or restart it"
            )
            yield degraded("broker_silent", message, remedy, brokers=[each.broker_id])


def _loopback(brokers: Sequence[BrokerFacts]) -> Iterator[Finding]:
    """Yield a finding about brokers that advertise a loopback address."""
    looped = [each for each in brokers if is_loopback(each.host)]
    if not looped or len(looped) == len(brokers):
        return
    ids = [each.broker_id for each in looped]
    message = (
        f"{brokers_text(ids, 'advertises', 'advertise')} a loopback address"
        f" ({some([each.address for each in looped])}), and other brokers do not: clients and"
        " brokers of other machines connect to themselves"
    )
    remedy = (
        "set advertised.listeners=PLAINTEXT://HOST:PORT in the broker's server.properties, with an"
        " address that the other machines reach, and restart it"
    )
    yield degraded("loopback_advertised", message, remedy, brokers=ids)


def is_loopback(host: str) -> bool:
    """Return whether an advertised host is a loopback address, which only its machine can reach."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a host name, not an address
        return False


def _overdue(facts: ClusterFacts) -> Iterator[Finding]:
    late = [each.broker_id for each in facts.brokers if each.is_overdue]
    for broker_id in late:
        controller = facts.metadata.controller_id
        here = "answers" if facts.answers(broker_id) else "does not answer"
        message = (
            f"broker {broker_id} has acknowledged no command of the controller, broker"
            f" {controller}, for controller.socket.timeout.ms; it {here} on this machine"
        )
        remedy = (
            f"on the machine of broker {controller}: nc -vz to the inter-broker listener of broker"
            f" {broker_id}; the log of broker {controller} has the error of the connection"
        )
        yield degraded("commands_overdue", message, remedy, brokers=[broker_id, controller])


def _clocks(brokers: Sequence[BrokerFacts]) -> Iterator[Finding]:
    """Yield a finding for each broker with a wrong clock.

    If the clocks of the brokers agree and only this machine's differs, yield a single finding.
    """
    known = [(each, each.clock_ahead_ms) for each in brokers if each.clock_ahead_ms is not None]
    wrong = [(each, ahead) for each, ahead in known if _sure(each, ahead) >= CLOCK_NOTICE_MS]
    spread = max((ahead for _, ahead in known), default=0) - min(
        (ahead for _, ahead in known), default=0
    )
    if wrong and len(wrong) == len(known) > 1 and spread < CLOCK_NOTICE_MS:
        message = (
            f"the clock of this machine is {_off(-wrong[0][1])} those of all brokers, which agree"
        )
        ids = [each.broker_id for each, _ in wrong]
        yield notice("clock_of_client", message, "on this machine: timedatectl", brokers=ids)
        return
    for each, ahead in wrong:
        report = degraded if _sure(each, ahead) >= CLOCK_DEGRADED_MS else notice
        message = (
            f"the clock of broker {each.broker_id} is {_off(ahead)} this machine's"
            f" (measured to {each.clock_doubt_ms:,} ms): timestamps and retention by time are off"
        )
        remedy = f"on the machine of broker {each.broker_id}: timedatectl set-ntp true"
        yield report("clock_differs", message, remedy, brokers=[each.broker_id])


def _sure(broker: BrokerFacts, ahead_ms: int) -> int:
    """Return the least by which the clocks certainly differ, given the error of the measurement."""
    return abs(ahead_ms) - broker.clock_doubt_ms


def _off(ahead_ms: int) -> str:
    return f"{abs(ahead_ms):,} ms {'ahead of' if ahead_ms > 0 else 'behind'}"


def _versions(brokers: Sequence[BrokerFacts]) -> Iterator[Finding]:
    """Yield one finding if brokers serve different versions of Kafka's APIs."""
    known = [each for each in brokers if each.versions]
    differing = []
    for key in sorted({key for each in known for key in each.versions if key < FIRST_OWN_KEY}):
        ranges: dict[tuple[int, int] | None, list[int]] = {}
        for each in known:
            ranges.setdefault(each.versions.get(key), []).append(each.broker_id)
        if len(ranges) > 1:
            name = API[key].name if key in API else f"API {key}"
            differing.append(f"{name} ({'; '.join(_ranges(ranges))})")
    if not differing:
        return
    message = f"brokers serve different versions of {len(differing)} APIs: {some(differing)}"
    remedy = (
        "finish the rolling upgrade: install one release on every machine, then restart the brokers"
        " one after the other"
    )
    ids = [each.broker_id for each in known]
    yield notice("versions_differ", message, remedy, brokers=ids)


def _ranges(ranges: dict[tuple[int, int] | None, list[int]]) -> Iterator[str]:
    for served, ids in ranges.items():
        text = "not served" if served is None else f"{served[0]} to {served[1]}"
        yield f"{brokers_text(ids)}: {text}"


def _levels(brokers: Iterable[BrokerFacts], place: ClusterPlace) -> Iterator[Finding]:
    """Yield a finding if any broker's inter.broker.protocol.version is below the newest level."""
    by_level: dict[str, list[int]] = {}
    for each in brokers:
        level = each.protocol_level
        if level is not None and each.serves_own_apis and is_level(level):
            by_level.setdefault(level_of(level), []).append(each.broker_id)
    old = {level: ids for level, ids in by_level.items() if level != NEWEST}
    if not old:
        return
    ids = [broker_id for each in old.values() for broker_id in each]
    levels = "; ".join(f"{brokers_text(each)}: {level}" for level, each in by_level.items())
    message = f"inter.broker.protocol.version is below {NEWEST}: {levels}"
    remedy = (
        "once every broker runs the new release, remove inter.broker.protocol.version from each"
        f" server.properties and restart one broker after the other; tidelog health{place.option}"
    )
    yield notice("protocol_level_old", message, remedy, brokers=ids)
