# Two commands on a fresh machine: `make demo` and `make test`. Everything they need goes into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
WORKERS ?= 2

.PHONY: demo test soak bench format clean

demo: $(VENV)/.installed
	$(BIN)/python -m examples.demo.tour $(if $(ONCE),--once)

test: $(VENV)/.development
	$(BIN)/python -m tests.interop.npm
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n $(WORKERS)

soak: $(VENV)/.development
	WAYPOST_SOAK_ROUNDS=$(or $(ROUNDS),200) $(BIN)/python -m pytest -n $(WORKERS) --timeout 3600 tests/chaos

bench: $(VENV)/.development
	$(BIN)/python -m benchmarks $(ARGS)

format: $(VENV)/.development
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --constraint constraints.txt --editable '.[demo]'
	touch $@

$(VENV)/.development: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --constraint constraints.txt --editable '.[dev]'
	touch $@ $(VENV)/.installed
