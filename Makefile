# The front door. Each target does its own set-up: Python with venv, make and a package index are enough.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
OUT    ?= lab-out

.PHONY: help lab test lint clean

help:
	@echo "make lab    the crash lab: $(VENV)/.lab-ready
	$(BIN)/semel lab matrix --out $(OUT)

test: $(VENV)/.ready
	$(BIN)/python -m pytest

lint: $(VENV)/.ready
	$(BIN)/ruff format --check src tests
	$(BIN)/ruff check src tests
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) $(OUT) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
