# Everything here needs Python 3.11 and pip; what else is needed goes into .venv, whose stamp makes the second run quick.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
STAMP := $(VENV)/.installed
RUN := $(VENV)/bin
ARGS ?=

.PHONY: help demo test check clauses bench mutants soak freeze docs format

help: ## what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# A Python without ensurepip (Debian's) makes an environment without pip; then the outer pip fills it.
$(STAMP): pyproject.toml
	@test -x $(RUN)/python || $(PYTHON) -m venv $(VENV) 2>/dev/null \
	  || { rm -rf $(VENV) && $(PYTHON) -m venv --without-pip $(VENV); }
	@$(RUN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m pip --python $(RUN)/python install --quiet pip
	@$(RUN)/python -m pip install --quiet --editable '.[embedded,test]'
	@touch $@

demo: $(STAMP) ## watch held operations, then an agent that survives its workers, on a Postgres of their own
	@$(RUN)/python -m examples.accounts.demo $(ARGS)
	@$(RUN)/python -m examples.agent.demo

check: $(STAMP) ## lint, format and types
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy

test: check ## lint, types and the whole suite
	$(RUN)/pytest -n 2 $(ARGS)

clauses: $(STAMP) ## which promises are kept, after a full run of the tests
	@$(RUN)/python -m tools.clauses $(ARGS)

mutants: $(STAMP) ## remove each safeguard in turn and see the tests fail
	@$(RUN)/python -m tools.mutants $(ARGS)

bench: $(STAMP) ## measure; writes bench/out/latest.json
	@$(RUN)/python -m bench $(ARGS)

soak: $(STAMP) ## the tests that run for long; SEEDS=… says how many of each simulation
	$(if $(SEEDS),UNDERSEAL_SIM_SEEDS=$(SEEDS) )$(RUN)/pytest -m soak $(ARGS)

docs: $(STAMP) ## write docs/sql-reference.md from the catalog
	@$(RUN)/python -m tools.sql_reference

freeze: $(STAMP) ## copy sql/*/tables.sql into revision 0001, while 0.1.0 is unreleased
	@$(RUN)/python -m tools.freeze

format: $(STAMP) ## let ruff format and mend
	$(RUN)/ruff check --fix .
	$(RUN)/ruff format .
