# Every target makes what it needs. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
GEN := src/fairlead/standin/_gen
# Without byte code on disk every process of every test would compile all it imports.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help demo check test coverage test-pythons lint fmt campaign day soak fuzz bench proto clean node-test node-test-full node-up node-down e2e-node cluster-test cluster-test-full conformance page-test site image image-test chart-test manifests monitoring-test onefile

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

check: $(VENV)/.ready ## format, lint, types, layers and unit tests: before each commit
	@$(BIN)/python -m tests.check

test: $(VENV)/.ready ## all tests this machine can run; COVERAGE=1 traces them and holds each room to its floor
	@rm -f .coverage .coverage.*
	@$(BIN)/python -m tests.run $(if $(COVERAGE),--coverage --floors)

coverage: ## make test COVERAGE=1
	@$(MAKE) --no-print-directory test COVERAGE=1

test-pythons: $(VENV)/.ready ## unit tests on each other Python that is declared and present
	@$(BIN)/python -m tests.pythons

lint: $(VENV)/.ready ## ruff, mypy --strict, import layers
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports

fmt: $(VENV)/.ready ## format and fix what can be fixed
	@$(BIN)/ruff check --fix-only . && $(BIN)/ruff format .

node-test: $(VENV)/.ready ## Fairlead on real Kubernetes nodes, two at once, built and started here; needs root and Go
	@$(BIN)/python -m tests.toolchain node; \
	$(BIN)/python -m tests.again -m 'node and not alone' -n 2 --dist loadfile --durations=25 tests/node && \
	$(BIN)/python -m pytest -m 'node and alone' tests/node

node-test-full: $(VENV)/.ready ## the same, with the scenarios that take long, and Kubernetes' own specs
	@NODE_TEST_FULL=1 $(BIN)/python -m pytest -m node tests/node
	@$(BIN)/python -m tests.e2e_node

node-up: $(VENV)/.ready ## starts that node and leaves it running
	@$(BIN)/python -m tests.node.rig up

node-down: $(VENV)/.ready ## ends it and removes everything of it
	@$(BIN)/python -m tests.node.rig down

cluster-test: $(VENV)/.ready ## the scheduler extender under a true kube-scheduler, 1,000 nodes with kwok; needs Go
	@$(BIN)/python -m pytest -m cluster tests/cluster

cluster-test-full: $(VENV)/.ready ## the same with NODES=5000 and PODS=20000, measured; nodes used beside the default scheduler
	@$(BIN)/python -m tests.cluster.full --nodes $(or $(NODES),5000) --pods $(or $(PODS),20000)

e2e-node: $(VENV)/.ready ## Kubernetes' own device-plugin specs, with a Fairlead plugin; needs root and Go
	@$(BIN)/python -m tests.e2e_node

conformance: $(VENV)/.ready ## the conformance suite against our own plugins, and against broken ones
	@$(BIN)/python -m tests.again -m conformance -n 5 --dist loadgroup tests/peers tests/system tests/unit/standin/conformance

page-test: $(VENV)/.ready ## the page in a real browser, which is installed where apt and root allow it
	@$(BIN)/python -m tests.browser.provision && $(BIN)/python -m pytest -m browser tests/browser

site: $(VENV)/.ready ## the documentation as a site, in build/site
	@$(BIN)/python -m pip install --disable-pip-version-check -q -c requirements/constraints.txt -e '.[docs]' && $(BIN)/python -m docs.site

image: $(VENV)/.ready ## the container image, as an archive in build/image; needs root and buildah
	@$(BIN)/python -m deploy.image

image-test: $(VENV)/.ready ## builds the image and runs what is in it; buildah is installed where apt and root allow it
	@$(BIN)/python -m tests.image.provision && $(BIN)/python -m pytest -m image tests/image

chart-test: $(VENV)/.ready ## the Helm chart with every dialect and feature; helm is built first, which needs Go
	@$(BIN)/python -m pip install --disable-pip-version-check -q -c requirements/constraints.txt -e '.[chart]' && $(BIN)/python -m pytest -m chart -n 2 tests/chart

manifests: $(VENV)/.ready ## renders deploy/manifests and the chart's own files again
	@$(BIN)/python -m tests.chart.render

monitoring-test: $(VENV)/.ready ## alerts and dashboard by promtool, and a real Prometheus, which is unpacked where there is apt
	@$(BIN)/python -m tests.monitoring.provision && $(BIN)/python -m pytest -m monitoring tests/monitoring

onefile: $(VENV)/.ready ## Fairlead as one executable file
	@$(BIN)/python -m deploy.onefile

campaign: $(VENV)/.ready ## 10,000 seeded faults against the daemon and a kubelet; SEED=N for others
	@$(BIN)/python -m tests.campaign --events 10000 --seed $(or $(SEED),1)

day: $(VENV)/.ready ## 24 hours of a node's time with metrics scraped and the page open: nothing may stay behind; HOURS=N for others
	@$(BIN)/python -m tests.campaign.day --hours $(or $(HOURS),24) --seed $(or $(SEED),1)

soak: $(VENV)/.ready ## the same with new seeds for SECONDS=600, or as long as asked
	@$(BIN)/python -m tests.campaign --events 2000 --seed $(or $(SEED),$$(date +%s)) --seconds $(or $(SECONDS),600)

fuzz: $(VENV)/.ready ## 1,000,000 cases against everything that others write to; CASES=N for fewer
	@cases=$(or $(CASES),1000000); \
	$(BIN)/python -m tests.fuzz.wire --cases $$(( cases / 2 )) --seed $(or $(SEED),1) && \
	$(BIN)/python -m tests.fuzz.surface --cases $$(( cases - cases / 2 )) --seed $(or $(SEED),1)

bench: $(VENV)/.ready ## ratios against the peers, in one run; ONLY=amd for one group
	@$(BIN)/python -m bench $(if $(ONLY),--only $(ONLY))

proto: $(VENV)/.ready ## regenerate the stand-in's protobuf classes
	@mkdir -p $(GEN) && $(BIN)/python -m grpc_tools.protoc -Iproto --python_out=$(GEN) --pyi_out=$(GEN) proto/*.proto && touch $(GEN)/__init__.py

clean: ## remove everything that make made
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage* build dist
