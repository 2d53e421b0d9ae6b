# Every target makes what it needs. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
GEN := src/fairlead/standin/_gen
.PHONY: help demo test lint fmt campaign soak fuzz bench proto clean node-test node-test-full node-up node-down e2e-node conformance

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

# One stamp for the environment: rebuilt when the pins or the project file change.
$(VENV)/.ready: pyproject.toml requirements/constraints.txt
	@start=$$(date +%s); \
	echo "· creating $(VENV) with $$($(PYTHON) --version)"; \
	$(PYTHON) -c 'import sys; sys.exit("Fairlead needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 ...") if sys.version_info < (3, 11) else None'; \
	$(PYTHON) -m venv $(VENV) && \
	echo "· installing pinned dependencies (about a minute the first time)" && \
	$(BIN)/python -m pip install --disable-pip-version-check -q -c requirements/constraints.txt -e '.[dev]' && \
	touch $@ && echo "· ready in $$(( $$(date +%s) - start )) s"

demo: $(VENV)/.ready ## a simulated 8-GPU node, an embedded kubelet and the real daemon, on your screen
	@$(BIN)/fairlead demo

test: $(VENV)/.ready ## all tests this machine can run, with coverage floors
	@$(BIN)/python -m tests.run

lint: $(VENV)/.ready ## ruff, mypy --strict, import layers
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

fmt: $(VENV)/.ready ## format and fix what can be fixed
	@$(BIN)/ruff check --fix-only . && $(BIN)/ruff format .

node-test: $(VENV)/.ready ## Fairlead on a real Kubernetes node, built and started here; needs root and Go
	@$(BIN)/python -m pytest -m node tests/node

node-test-full: $(VENV)/.ready ## the same, with the scenarios that take long, and Kubernetes' own specs
	@NODE_TEST_FULL=1 $(BIN)/python -m pytest -m node tests/node
	@$(BIN)/python -m tests.e2e_node

node-up: $(VENV)/.ready ## starts that node and leaves it running
	@$(BIN)/python -m tests.node.rig up

node-down: $(VENV)/.ready ## ends it and removes everything of it
	@$(BIN)/python -m tests.node.rig down

e2e-node: $(VENV)/.ready ## Kubernetes' own device-plugin specs, with a Fairlead plugin; needs root and Go
	@$(BIN)/python -m tests.e2e_node

conformance: $(VENV)/.ready ## the conformance suite against our own plugins, and against broken ones
	@$(BIN)/python -m pytest -m conformance -n 2 tests/system/test_conformance*.py tests/system/test_sample_plugin.py tests/peers tests/unit/standin/conformance

campaign: $(VENV)/.ready ## 10,000 seeded faults against the daemon and a kubelet; SEED=N for others
	@$(BIN)/python -m tests.campaign --events 10000 --seed $(or $(SEED),1)

soak: $(VENV)/.ready ## the same with new seeds for SECONDS=600, or as long as asked
	@$(BIN)/python -m tests.campaign --events 2000 --seed $(or $(SEED),$$(date +%s)) --seconds $(or $(SECONDS),600)

fuzz: $(VENV)/.ready ## 1,000,000 cases against everything that others write to; CASES=N for fewer
	@cases=$(or $(CASES),1000000); \
	$(BIN)/python -m tests.fuzz.wire --cases $$(( cases / 2 )) --seed $(or $(SEED),1) && \
	$(BIN)/python -m tests.fuzz.surface --cases $$(( cases - cases / 2 )) --seed $(or $(SEED),1)

bench: $(VENV)/.ready ## ratios against the peers, in one run
	@$(BIN)/python -m bench

proto: $(VENV)/.ready ## regenerate the stand-in's protobuf classes
	@mkdir -p $(GEN) && $(BIN)/python -m grpc_tools.protoc -Iproto --python_out=$(GEN) --pyi_out=$(GEN) proto/*.proto && touch $(GEN)/__init__.py

clean: ## remove everything that make made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage* build dist
