# The two commands of a new user: `make demo` and `make test`. VENV may point to an environment kept elsewhere.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-slow check format docs bench clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("sparselabel needs Python 3.11 or newer, found " + sys.version.split()[0] + ": name another one, as in `make PYTHON=python3.12 demo`") if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(STAMP)
	$(BIN)/sparselabel demo --out demo

test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto

test-slow: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP)
	$(BIN)/python -m tools.method_pages
	$(BIN)/python -m mkdocs build --strict --quiet

bench: $(STAMP)
	$(BIN)/python -m benchmarks

clean:
	rm -rf demo site build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache
