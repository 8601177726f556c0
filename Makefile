# `make help` lists the targets; each is one command that also works typed by hand.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
export REGDEM_VENV := $(VENV)

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint format types docs bench bless clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/pytest: pyproject.toml
	$(PYTHON) -m venv --without-pip $(VENV)
	$(PYTHON) -m pip --python $(BIN)/python install -q -e '.[dev,tools,docs]'
	@touch $@

setup: $(BIN)/pytest  ## Install regdem and everything development needs into .venv

demo:  ## Install and demote the kernel in examples/
	$(PYTHON) tools/quickstart.py

test: setup  ## Run the tests on two processes
	$(BIN)/python -m pytest -n 2

lint: setup  ## ruff (rules and format) and the import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

format: setup  ## Let ruff mend and format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: setup  ## pyright in strict mode
	$(BIN)/pyright

docs: setup  ## Build the documentation into build/site, warnings are errors
	$(BIN)/mkdocs build --strict

bench: setup  ## Print the speed figures of this machine
	$(BIN)/python bench/speed_inspect.py

bless: setup  ## Rewrite the expected outputs of the golden tests
	$(BIN)/python -m pytest --bless

clean:  ## Remove what the targets above made, the environment excepted
	rm -rf build dist out .pytest_cache .ruff_cache .hypothesis .import_linter_cache
