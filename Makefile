# The two commands of a new user: `make demo` and `make test`. VENV may point to an environment kept elsewhere.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin

.PHONY: demo test test-slow fuzz torture check format docs bench bench-rivals lock sbom audit clean

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("sparselabel needs Python 3.11 or newer, found " + sys.version.split()[0] + ": name another one, as in `make PYTHON=python3.12 demo`") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

# The package alone, for the demo; with the developers' tools, for everything else.
$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

# `make LOCKED=1 test`: every file must have the SHA-256 that constraints.sha256 knows.
LOCKED ?=
$(VENV)/.installed-dev: pyproject.toml constraints.txt constraints.sha256 | $(BIN)/python
	$(if $(LOCKED),$(BIN)/python -m tools.lock install,$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]')
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

# Kills, double starts, full disks, flipped bits and requests for so many minutes: the table of docs/reliability.md.
# `make torture MINUTES=480 ATTACKS="kills commands --add"`: these alone, added to what the table has.
MINUTES ?= 5
ATTACKS ?=
torture: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tools.torture $(MINUTES) $(ATTACKS)

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

# The digests of the tested versions, from pip's index, after a change of constraints.txt.
lock: | $(BIN)/python
	$(BIN)/python -m tools.lock write

# What is installed, with versions, licenses and where it came from; needs nothing but pip.
sbom: $(VENV)/.installed-dev
	$(BIN)/python -m pip --quiet inspect --local > sbom.json
	$(BIN)/python -m tools.sbom sbom.json

# Known vulnerabilities of the tested versions, where a database can be reached.
audit: $(VENV)/.installed-dev
	$(BIN)/python -m tools.sbom --audit constraints.txt

bench-rivals: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks.rivals

clean:
	rm -rf demo site build sbom.json dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache
