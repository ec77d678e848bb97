"""Group coordinators without a broker: a harness, and random walks with invariants."""
