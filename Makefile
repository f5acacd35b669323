# Every target sets itself up: it makes .venv if there is none and installs into it when
# pyproject.toml or constraints.txt changed. A second call installs nothing.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
LOG    := $(VENV)/setup.log
# What only the documents need is installed by the first target that builds them.
DOCS   := $(VENV)/.ready-docs
# The frameworks of peers.integrations are installed by the first target that runs the tests.
TEST   := $(VENV)/.ready-test

.PHONY: help demo test slow check format docs bench chaos clean

help: ## show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 16

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	    echo "gossip needs Python 3.10 or newer, and $(PYTHON) is $$($(PYTHON) --version 2>&1)." \
	         "Say which to use: make PYTHON=python3.11 ..." >&2; exit 1; }
	@echo "Setting up $(VENV): installing constraints.txt, once; a few minutes, for torch is large ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { \
	    echo "$(PYTHON) cannot make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[dev]' >$(LOG) 2>&1 || { \
	    cat $(LOG) >&2; echo "Setting up $(VENV) failed; what pip said stands above, and in $(LOG)." >&2; exit 1; }
	@touch $@

$(DOCS): $(READY)
	@echo "Setting up $(VENV) for the documents, once; some seconds ..."
	@$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[docs]' >$(LOG) 2>&1 || { \
	    cat $(LOG) >&2; echo "Setting up $(VENV) failed; what pip said stands above, and in $(LOG)." >&2; exit 1; }
	@touch $@

$(TEST): $(READY)
	@echo "Setting up $(VENV) for the tests, once; a minute, for transformers, lightning and ray are large ..."
	@$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[transformers,lightning,accelerate,peft,readers,ray,ray-train,kubernetes]' >$(LOG) 2>&1 || { \
	    cat $(LOG) >&2; echo "Setting up $(VENV) failed; what pip said stands above, and in $(LOG)." >&2; exit 1; }
	@touch $@

demo: $(READY) ## see it work
	@$(BIN)/python -m launch.demo

# Some tests wait for processes: half as many workers again as there are cores.
WORKERS = PYTEST_XDIST_AUTO_NUM_WORKERS=$$(( $$(nproc) * 3 / 2 ))

test: $(TEST) ## run the tests
	$(WORKERS) $(BIN)/python -m pytest

slow: $(TEST) ## run the slow ones: more seeds, peers and messages of the same
	$(BIN)/python -m pytest -m 'slow and not chaos'

check: $(READY) docs ## formatting, lint, types, and the links of the documents
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Not --quiet: warnings that are not shown are not counted, and fail nothing. The theme advertises its successor at
# every start; decision 31 says why it stays for now.
docs: $(DOCS) ## build the documents as a site, in build/site; a broken link fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "Open build/site/index.html; for the search: $(BIN)/python -m http.server -d build/site -b 127.0.0.1"

format: $(READY) ## let ruff put the code in shape
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY) ## run the short benchmarks and their bars: planning, command_line, codecs, simulator, engine
	$(BIN)/python -m benchmarks

chaos: $(READY) ## run the fault matrix: real processes, one fault each, and what must hold
	$(BIN)/python -m benchmarks.chaos

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
