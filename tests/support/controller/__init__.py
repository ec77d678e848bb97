"""Controllers: a harness with the simulated store, and the states and requests given to them."""
