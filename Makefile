# Every target does its own set-up: it needs a Python of at least 3.11 and pip, nothing else.
# Another interpreter: make test PYTHON=python3.12

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo test lint docs format clean

help: ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /:/' | awk -F: '{ printf "make %-8s %s\n", $$1, $$2 }'

demo: $(VENV)/.ready-demo ## search, ask through both frameworks, climb a tier, kill and resume a session: no key, no network
	@folder=$$(mktemp -d) && store=$$folder/memory.db && part() { printf '\n\n=== %s\n\n' "$$*"; } && \
	  part "1 of 4: a real text is put into a file, and searched by words, by meaning, by both" && \
	  $(BIN)/rlm-memory --db $$store demo && \
	  part "2 of 4: LangChain answers from that file, and a memory that is used climbs" && \
	  $(BIN)/python -m langchain_rlm.demo $$store && \
	  part "3 of 4: LlamaIndex answers from it too, and finds what LangChain has added" && \
	  $(BIN)/python -m llamaindex_rlm.demo $$store && \
	  part "4 of 4: a session of Python is killed in the middle of its work, and goes on" && \
	  $(BIN)/python -m rlm_memory.checkpoints.demo && \
	  part "That is all. The file is still there; what would move the note of part 2 again:" && \
	  echo "$(BIN)/rlm-memory --db $$store explain demo-note"

test: $(VENV)/.ready-dev ## run all tests
	$(BIN)/python -m pytest

lint: $(VENV)/.ready-dev ## check style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tests/typing_api.py
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

docs: $(VENV)/.ready-dev ## build the API reference into build/reference
	$(BIN)/python docs/reference.py build/reference

format: $(VENV)/.ready-dev ## put the code into its form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove .venv and all that tools have left
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.ready-dev: pyproject.toml $(VENV)/.created
	@echo "Installing rlm-memory with all that its tests need (once, a few minutes at most)"
	@$(BIN)/python -m pip install -qq --editable '.[dev]'
	@touch $(VENV)/.ready-demo $@

$(VENV)/.ready-demo: pyproject.toml $(VENV)/.created
	@echo "Installing rlm-memory with all that its demo needs (once, a minute at most)"
	@$(BIN)/python -m pip install -qq --editable '.[cli,offline,langchain,llamaindex]'
	@touch $@

# The second way is for systems whose venv comes without pip, Debian's for one.
$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("rlm-memory needs Python 3.11 or newer, and \
	$(PYTHON) is %d.%d. Name another one: make $(MAKECMDGOALS) PYTHON=python3.12" % sys.version_info[:2])'
	@$(PYTHON) -m venv --clear $(VENV) >/dev/null 2>&1 || { \
	  $(PYTHON) -m venv --clear --without-pip $(VENV) && \
	  $(PYTHON) -m pip --python $(BIN)/python install -qq pip; }
	@touch $@
