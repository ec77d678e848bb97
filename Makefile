# Everything runs in .venv, which is made from the lock files when they change. `make help` lists it.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
PARTS  ?=
MINUTES ?= 60
HOURS  ?=
EXAMPLES ?= 20
RULES  ?=
STORE  ?= embedded

# Two levels of tools: what a user needs, and all that the tests need as well. Both have the compiled
# extensions, which are built again when their sources change.
BUILT     := pyproject.toml hatch_build.py $(shell find src -name '*.c' | sort)
RUN_SUM   := $(shell cat requirements.lock $(BUILT) | cksum | cut -d' ' -f1)
TEST_SUM  := $(shell cat requirements.lock requirements-test.lock $(BUILT) | cksum | cut -d' ' -f1)
RUN_READY  := $(VENV)/.ready-$(RUN_SUM)
TEST_READY := $(VENV)/.ready-test-$(TEST_SUM)
SITE_READY := $(VENV)-site/.ready-$(shell cksum < website/requirements.lock | cut -d' ' -f1)

.DEFAULT_GOAL := help
.PHONY: help demo check test docs screenshots site bench matrix soak mutants fuzz lock clean

help:  ## show this list
	@grep -E '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+): .*## /\1\t/' | expand -t 8

demo: $(RUN_READY)  ## three brokers, real flights through two kills, PySpark, a proof, an audit, a plot (STORE=zookeeper)
	$(BIN)/python -m examples.demo --store $(STORE)

check: $(TEST_READY)  ## lint, types, contracts, tidy and unit tests: two minutes
	$(BIN)/python tests/run.py check $(PARTS)

test: $(TEST_READY)  ## everything that proves it, with the time of each part
	$(BIN)/python tests/run.py test $(PARTS)

docs: $(TEST_READY)  ## write every generated page again, from declarations and from what searches and clients left
	$(BIN)/tidelog configs reference > docs/configuration.md
	$(BIN)/python -m tidelog.cli.reference docs/reference/cli.md
	$(BIN)/python -m tests.tidy.metrics_page
	$(BIN)/python -m tests.support.reader_versions
	$(BIN)/python -m tests.support.rules
	$(BIN)/python -m tests.support.mutilations.page
	$(BIN)/python -m tests.sim.fault_table
	$(BIN)/python -m tests.support.mutants page
	$(BIN)/python -m tests.mutation page
	$(BIN)/python -m tests.sim.coverage --write
	$(BIN)/python -m tests.clients.matrix.document --kept

site: $(SITE_READY)  ## the documentation with search, for a browser, into build/site
	NO_MKDOCS_2_WARNING=1 $(VENV)-site/bin/mkdocs build -q -f website/mkdocs.yml
	@echo build/site/index.html

screenshots: $(TEST_READY)  ## the console's pages in a real Chromium, as PNG files in demo-output/console
	TIDELOG_SCREENSHOTS=demo-output/console $(BIN)/python tests/run.py console

bench: $(RUN_READY)  ## speed of produce, consume, groups and compaction, failover, start and memory as tables
	$(BIN)/python -m bench

soak: $(TEST_READY)  ## mutants, larger models, all clients, chaos, then the simulator over fresh seeds: an hour, or MINUTES=n, or HOURS=n
	$(BIN)/python -m tests.sim.soak --minutes $(if $(HOURS),$$(( $(HOURS) * 60 )),$(MINUTES))

mutants: $(TEST_READY)  ## one line changed for every rule: an assertion of its tests must fail (RULES="V12 A4")
	$(BIN)/python -m tests.support.mutants try $(RULES)

matrix: $(TEST_READY)  ## every feature with every client that this machine can run, into docs/compatibility.md
	$(BIN)/python -m tests.clients.matrix.document

fuzz: $(TEST_READY)  ## EXAMPLES=20 times as many drawn tests, then mutants guided by coverage for MINUTES=60, kept in tests/fuzz/corpus
	TIDELOG_TEST_EXAMPLES=$(EXAMPLES) $(BIN)/python tests/run.py fuzz unit wire_oracles store
	$(BIN)/python -m tests.fuzz.session --minutes $(MINUTES)

lock: $(VENV)/pyvenv.cfg  ## resolve the dependencies of pyproject.toml into the lock files again
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip -q install pip-tools dependency-groups
	$(VENV)-lock/bin/python -m dependency_groups build demo > $(VENV)-lock/build.in
	$(VENV)-lock/bin/python -m dependency_groups build demo test > $(VENV)-lock/test.in
	$(VENV)-lock/bin/pip-compile $(LOCK_OPTIONS) --extra zookeeper --extra spark --extra console --extra top -o requirements.lock pyproject.toml $(VENV)-lock/build.in
	$(VENV)-lock/bin/pip-compile $(LOCK_OPTIONS) -c requirements.lock --all-extras -o requirements-test.lock pyproject.toml $(VENV)-lock/test.in
	$(VENV)-lock/bin/pip-compile $(LOCK_OPTIONS) -o website/requirements.lock website/requirements.in
	rm -rf $(VENV)-lock

# pip-compile reads no dependency groups (PEP 735): they are written to files for it.
LOCK_OPTIONS := --quiet --upgrade --generate-hashes --no-emit-index-url --no-emit-find-links \
	--no-emit-trusted-host --no-header --strip-extras --allow-unsafe

clean:  ## remove what was installed and made here
	rm -rf $(VENV) $(VENV)-* build dist demo-output .coverage* .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; say which with make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

$(RUN_READY): $(VENV)/pyvenv.cfg
	$(call install,requirements.lock)
	touch $@

$(TEST_READY): $(VENV)/pyvenv.cfg
	$(call install,requirements-test.lock)
	touch $@ $(RUN_READY)

$(SITE_READY): website/requirements.lock
	$(PYTHON) -m venv --clear $(VENV)-site
	$(VENV)-site/bin/python -m pip -q --disable-pip-version-check install --require-hashes -r $<
	touch $@

# Some packages come as source: what builds them is installed first, from the same lock file, so
# that nothing is fetched without a hash.
define install
	sed -n '/^setuptools==/,/# via/p' $(1) > $(VENV)/build.txt
	$(PIP) install -q --require-hashes --no-deps -r $(VENV)/build.txt
	$(PIP) install -q --require-hashes --no-build-isolation -r $(1)
	$(PIP) install -q --no-deps --no-build-isolation -e .
	rm -f $(VENV)/.ready-* $(VENV)/build.txt
endef
