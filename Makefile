# The few commands a user or a contributor needs. `make demo` and `make test` set up everything themselves, in .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# More options for pytest, e.g. `make test PYTEST_ARGS="-k filters -x"`.
PYTEST_ARGS ?=
# Nothing may reach for a model hub while tests run.
QUIET := HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
# Each of two workers takes its half in order, so that what a module's tests share is made once, and then helps the other.
TWO := -n 2 --dist worksteal
# Compiling all 24,000 files of the extras takes two minutes; the quarter that is ever imported compiles as it is, and
# that must be kept, whatever the shell says.
INSTALL := -m pip install --quiet --no-compile
export PYTHONDONTWRITEBYTECODE :=
# The release whose plain wheel is the CPU build; installed first and alone, so that nothing else chooses a CUDA build.
TORCH := torch==2.13.0

.PHONY: help install demo test test-long lint types docs-check bench clean

help: ## Say what the commands are
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(VENV)/.full ## Set up everything the checks below need, in .venv

demo: $(VENV)/.base ## Set up, index the bundled sample collection, answer four questions
	$(BIN)/suwen demo .demo/index

test: $(VENV)/.full ## Set up and run all tests, the documentation's blocks among them
	$(QUIET) $(BIN)/python -m pytest $(TWO) $(PYTEST_ARGS)

test-long: $(VENV)/.full ## The same with soaks and the full kill runs
	$(QUIET) $(BIN)/python -m pytest $(TWO) -m "long or not long" $(PYTEST_ARGS)

lint: $(VENV)/.full ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.full ## Check types, strictly
	$(BIN)/mypy

docs-check: $(VENV)/.full ## Run every command and code block of README.md and docs/, and follow their links
	$(QUIET) $(BIN)/python -m pytest tests/real/test_readme.py $(PYTEST_ARGS)

bench: ## Say which speed and memory scripts there are
	@for script in benchmarks/*.py; do printf '%s\n    %s\n' "$$script" "$$(sed -n '1s/^"*//; 1s/"*$$//p' $$script)"; done
	@echo "Run one with: $(BIN)/python benchmarks/NAME.py (after make test has set up $(VENV))"

clean: ## Remove what these commands made
	rm -rf $(VENV) .demo .postgres .milvus build dist

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "suwen needs Python 3.11 or newer: name one with make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python $(INSTALL) -c constraints.txt -e .
	@touch $@

$(VENV)/.full: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python $(INSTALL) $(TORCH)
	$(BIN)/python $(INSTALL) -c constraints.txt -e '.[train,parquet,eval,curate,serve,files,ocr,milvus,ray,dev]'
	@command -v cc >/dev/null || $(BIN)/python $(INSTALL) -c constraints.txt ziglang
	@touch $@ $(VENV)/.base
