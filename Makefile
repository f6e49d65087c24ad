# The only set-up on a fresh machine: `make test` or `make demo`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.gbfix-installed

.PHONY: demo test lint format install benchmarks-install clean

demo: $(STAMP)
	$(BIN)/python benchmarks/demo.py

test: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict gbfix transforms

format: $(STAMP)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

install: $(STAMP)

# The benchmarks alone need transformers, to rewrite it and to run its models.
benchmarks-install: $(STAMP)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[benchmarks]"

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info
