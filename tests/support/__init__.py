"""What tests of more than one folder use: fakes, harnesses, values, models.

A *fake* stands in for a port or a peer and remembers what it was asked. A *harness* runs real code
with fakes around it, and its methods are what tests do to it. *Values* are messages, records and
states with everything defaulted that a test does not speak of. Modules are named after the package
of `src/tidelog` whose tests they serve. Nothing here imports a folder of tests.
"""
