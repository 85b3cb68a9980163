# fleethpa: `make demo` shows the main job working, `make test` runs the tests. Both need Python >= 3.11 and pip only.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.stamp

.DEFAULT_GOAL := help
.PHONY: help setup demo dev test check format bench clean

help:  ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)  ## Create .venv with the locked dependencies; the command is .venv/bin/fleethpa

$(STAMP): requirements-dev.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fleethpa needs Python 3.11 or newer; try: make PYTHON=python3.11 setup")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: setup  ## The main job, seen working: embedded broker, three simulated clusters, under two minutes
	$(BIN)/fleethpa demo

dev: setup  ## Keep the demo stack up for your own commands (kubectl included); Ctrl-C ends it
	$(BIN)/fleethpa dev

test: setup  ## The fast tier: unit, conformance and pipeline tests
	$(BIN)/pytest -q

check: setup  ## Format, lint, types and import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup  ## Rewrite the code in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup  ## Speed and memory: evaluations, folding, the whole pipeline
	$(BIN)/python -m tests.bench

clean:  ## Remove the virtual environment and build products
	rm -rf .venv build .mypy_cache .ruff_cache .pytest_cache
