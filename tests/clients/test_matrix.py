"""Every feature with every client: the compatibility matrix (matrix/table.py), run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.clients import thorough
from tests.clients.matrix.driver import Driver
from tests.clients.matrix.harness import ClientHarness
from tests.clients.matrix.table import CLIENTS, FEATURES, Check, Client, Feature, cell
from tests.support.clients.absent import Absent

from tidelog.local import LocalCluster

CELLS = [
    pytest.param(client, feature, id=f"{client.name}-{feature.name}")
    for client in CLIENTS
    for feature in FEATURES
    if thorough.IS_WANTED or not client.thorough
    if callable(cell(client, feature))
]
Drivers = Callable[[Client], Driver]


@pytest.fixture(scope="module")
def drivers(cluster: LocalCluster) -> Iterator[Drivers]:
    """The clients, each made when it is first needed; one that cannot be had says so each time."""
    made: dict[str, Driver | Absent] = {}

    def driver(client: Client) -> Driver:
        if client.name not in made:
            try:
                made[client.name] = client.make(cluster.bootstrap)
            except Absent as absent:
                made[client.name] = absent
        found = made[client.name]
        if isinstance(found, Absent):
            pytest.skip(f"{client.name}: {found}")
        return found

    try:
        yield driver
    finally:
        for each in made.values():
            if not isinstance(each, Absent):
                each.close()


@pytest.mark.parametrize(("client", "feature"), CELLS)
def test_feature(
    client: Client,
    feature: Feature,
    cluster: LocalCluster,
    drivers: Drivers,
    record_property: Callable[[str, object], None],
) -> None:
    for broker in cluster.broker_ids:
        cluster.start(broker)  # one that a failed check left dead fails no other
    driver = drivers(client)
    record_property("client_version", driver.version)
    check = cell(client, feature)
    assert callable(check)
    run: Check = check
    run(ClientHarness(cluster, driver, f"matrix.{client.name}.{feature.name}"))


def test_the_table_names_only_features_that_there_are() -> None:
    names = [feature.name for feature in FEATURES]
    assert len(names) == len(set(names))
    assert [
        (client.name, name) for client in CLIENTS for name in client.exceptions if name not in names
    ] == []
