# make run    set up and run the first job        make check   ruff, mypy, import-linter
# make test   set up and run the tests            make bench   figures of docs/performance.md
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' && echo $$p && break; done)
BIN := .venv/bin
# Compiled once instead of at every start of a command.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test check bench clean

run: .venv/.examples
	@$(BIN)/python examples/tour.py

test: .venv/.dev
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh tests/install-components.sh
	$(BIN)/python -m pytest -n 4 --dist loadgroup $(TESTS)

check: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/.dev
	@sh bench/install-peers.sh
	$(BIN)/python -m bench

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer found" >&2; exit 2; }
	@$(PYTHON) -m venv .venv || { rm -rf .venv; \
		echo "hint: on Debian and Ubuntu: apt install python3-venv" >&2; exit 2; }

.venv/.examples: .venv/bin/python pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[examples]'
	@touch $@

.venv/.dev: .venv/bin/python pyproject.toml
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev,examples]'
	@touch $@

clean:
	rm -rf .venv build src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
