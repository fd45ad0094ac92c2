# Nothing but Python 3.11 or later and the package registry is needed: `make demo`, `make test`.
PORT ?= 8000
VENV ?= .venv
PYTHON ?= $(firstword $(foreach p,python3.11 python3.12 python3.13 python3 python,$(if $(shell $(p) -c 'import ensurepip, sys; sys.version_info >= (3, 11) and print(1)' 2>/dev/null),$(p))))
BIN := $(VENV)/bin
TESTS ?= tests
PYTEST_OPTIONS ?= -n 3 --dist load --maxschedchunk 1

export UV_PYTHON_DOWNLOADS := never
export UV_NO_PROGRESS := 1
# As pip does: a company's own certificates are in the system's store, its registry in pip's configuration.
export UV_SYSTEM_CERTS := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: setup demo test check lock chaos

setup: $(VENV)/.installed

# The stamp is written last: an installation that was cut short is done again.
$(VENV)/.installed: requirements.lock
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or later with venv was found. Install one, or name it: make setup PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet uv
	index="$${PIP_INDEX_URL:-$$($(BIN)/python -m pip config get global.index-url 2>/dev/null)}"; \
	test -z "$$index" || export UV_DEFAULT_INDEX="$$index"; \
	$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock
	@touch $@

demo: setup
	@exec $(BIN)/python manage.py demo --port $(PORT)

test: setup
	$(BIN)/python -m pytest $(PYTEST_OPTIONS) $(TESTS)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python manage.py makemigrations --check --dry-run
	AGENTMEMORY_HTTPS=true $(BIN)/python manage.py check --deploy --fail-level WARNING

# Versions and hashes for every platform; no registry's address gets into the file.
lock: setup
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-emit-find-links --no-annotate --no-header --extra vectors --extra dev pyproject.toml -o requirements.lock

# Kills what can be killed, again and again, looks for what was lost, and tells each round.
ROUNDS ?= 20
chaos: setup
	ROUNDS=$(ROUNDS) $(BIN)/python -m pytest -p no:xdist -rA --show-capture=stdout tests/faults tests/e2e/test_worker_process.py \
		tests/sessions_exec/test_explored.py tests/sessions_exec/test_execution_model.py
