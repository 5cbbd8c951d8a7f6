# The two commands of a new user: `make demo` and `make test`. VENV may point to an environment kept elsewhere.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin

.PHONY: demo test test-slow fuzz check format docs bench clean

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("sparselabel needs Python 3.11 or newer, found " + sys.version.split()[0] + ": name another one, as in `make PYTHON=python3.12 demo`") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# The package alone, for the demo; with the developers' tools, for everything else.
$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(VENV)/.installed $@

demo: $(VENV)/.installed
	$(BIN)/sparselabel demo --out demo

test: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto

test-slow: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow

# Mutated inputs of every format: `make fuzz COUNT=20000 SECONDS=60 PROCESSES=4`.
COUNT ?= 1000000
SECONDS ?= 86400
PROCESSES ?= 2
fuzz: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz --count $(COUNT) --seconds $(SECONDS) --processes $(PROCESSES)

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.installed-dev
	$(BIN)/python -m tools.method_pages
	$(BIN)/python -m tools.api_page
	$(BIN)/python -m mkdocs build --strict --quiet

bench: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks

clean:
	rm -rf demo site build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache
