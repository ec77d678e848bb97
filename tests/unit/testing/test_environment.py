"""Ports that are reserved for a cluster which starts later."""

from __future__ import annotations

import os
import socket

import pytest

from tidelog.core.types import Endpoint
from tidelog.local.listeners import check_free
from tidelog.local.ports import LOOPBACK
from tidelog.testing.environment import Reservation, bootstrap_at, put


def test_reserved_ports_are_for_brokers_and_nobody_else() -> None:
    reservation = Reservation(3)
    ports = range(reservation.first_port, reservation.first_port + 3)
    try:
        check_free({port: (Endpoint("PLAINTEXT", LOOPBACK, port),) for port in ports})
        for port in ports:  # as `free_ports` looks for ports
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind((LOOPBACK, port))
    finally:
        reservation.close()
    with socket.socket() as other:
        other.bind((LOOPBACK, reservation.first_port))


def test_the_address_of_a_reservation_is_that_of_its_brokers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FIRST_OF_A_TEST", "")
    monkeypatch.setenv("SECOND_OF_A_TEST", "")
    reservation = Reservation(2)
    reservation.close()
    address = bootstrap_at(reservation.first_port, 2)
    assert address == reservation.bootstrap
    assert address.split(",")[1] == f"{LOOPBACK}:{reservation.first_port + 1}"
    put(["FIRST_OF_A_TEST", "SECOND_OF_A_TEST"], address)
    assert os.environ["FIRST_OF_A_TEST"] == os.environ["SECOND_OF_A_TEST"] == address
