# `make demo` and `make test` need nothing but Python 3.11 or newer: the first thing they do is make
# a virtual environment here and install into it, with the exact versions of constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Tests start hundreds of processes, each of which would compile the package again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo setup test slow lint types smoke bench fuzz docs dist clean
.DELETE_ON_ERROR:

demo: $(VENV)/.run
	$(BIN)/allometry demo

setup: $(VENV)/.dev

# torch comes first and by its pinned version alone: other requirements then find it satisfied.
$(VENV)/.run: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) $$(grep '^torch==' constraints.txt)
	$(INSTALL) -e '.[train]'
	touch $@

$(VENV)/.dev: $(VENV)/.run
	$(INSTALL) -e '.[dev,docs]'
	touch $@

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python docs/check_words.py

types: $(VENV)/.dev
	$(BIN)/basedpyright

test: lint types
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow" $(PYTEST)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir build/site
	$(MAKE) smoke

# The command line in an environment without the tools of development.
smoke: $(VENV)/.dev
	bench/smoke.sh $(PYTHON)

slow: $(VENV)/.dev
	$(BIN)/pytest -m slow $(PYTEST)

# Ten minutes over all readers, guided by coverage where Atheris installs; then 5,000 command lines.
fuzz: $(VENV)/.dev
	$(INSTALL) -e '.[fuzz]' || true
	$(BIN)/python bench/fuzz.py --seconds 600
	$(BIN)/python bench/malformed.py --inputs 5000

bench: $(VENV)/.dev
	for file in $(filter-out bench/fuzz.py bench/malformed.py,$(wildcard bench/*.py)); do \
	  $(BIN)/python $$file || exit 1; done

docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Wheel and source archive; the same commit gives the same bytes.
dist: $(VENV)/.dev
	rm -rf dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m hatchling build -d dist

clean:
	rm -rf $(VENV) build dist site demo .pytest_cache .ruff_cache .hypothesis
