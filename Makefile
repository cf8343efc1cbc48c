# Everything runs in a virtual environment that is made on first use.
PYTHON ?= python3
VENV ?= .venv
PYTEST ?= $(VENV)/bin/pytest
# processes that share the tests, each with a broker of its own; torch gets one thread in each
JOBS ?= 2

IMAGE ?= oasr-worker:0.1.0
# `deploy/pin-images` writes the base image's digest to it
-include .env
BUILD = docker build $(if $(BASE_IMAGE),--build-arg BASE_IMAGE=$(BASE_IMAGE)) \
	--build-arg REVISION=$(shell git rev-parse HEAD 2>/dev/null || echo unknown) \
	--build-arg CREATED=$(shell date -u +%Y-%m-%dT%H:%M:%SZ)

export PIP_DISABLE_PIP_VERSION_CHECK = 1

INSTALLED = $(VENV)/installed

.PHONY: help demo test lint format test-unit test-kafka test-storm test-faults test-docker test-containers test-kubernetes chaos fuzz bench image image-cuda clean
.DEFAULT_GOAL := help

help: ## show the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST)

demo: $(INSTALLED) ## broker, worker and playing calls at once; Ctrl-C stops it
	@$(VENV)/bin/oasr-worker demo $(ARGS)

test: lint test-unit test-kafka ## everything but the tests that need a container engine or a quiet machine

lint: $(INSTALLED) ## ruff and mypy
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy

format: $(INSTALLED) ## let ruff format the code
	$(VENV)/bin/ruff check --fix
	$(VENV)/bin/ruff format

test-unit: $(INSTALLED) ## tests without a broker
	OMP_NUM_THREADS=1 $(PYTEST) -q -n $(JOBS) --dist loadfile --ignore=tests/kafka --ignore=tests/docker --ignore=tests/faults --ignore=tests/containers --ignore=tests/kubernetes $(ARGS)

test-kafka: $(INSTALLED) ## tests on a broker, started if none is named
	OMP_NUM_THREADS=1 $(PYTEST) -q -n $(JOBS) --dist loadfile -m 'not storm' tests/kafka $(ARGS)

test-storm: $(INSTALLED) ## workers and brokers die and freeze for minutes; wants a machine that is not busy
	OMP_NUM_THREADS=1 $(PYTEST) -q -m storm tests/kafka $(ARGS)

test-faults: $(INSTALLED) ## injected broker errors on a mock cluster; wants a machine that is not busy
	OMP_NUM_THREADS=1 $(PYTEST) -q tests/faults $(ARGS)

test-docker: $(INSTALLED) ## tests that need a container engine; fail without one
	OASR_REQUIRE_DOCKER=1 $(PYTEST) -q tests/docker $(ARGS)

test-containers: $(INSTALLED) ## the image and all of docker-compose.yml on a container engine; makes what it needs
	tests/containers/run $(VENV)/bin/python $(ARGS)

test-kubernetes: $(INSTALLED) ## the chart on a real Kubernetes node, which is built and started; as root
	tests/kubernetes/run $(VENV)/bin/python $(ARGS)

chaos: $(INSTALLED) ## calls, workers and brokers in trouble; ARGS=--help tells the sizes
	@OMP_NUM_THREADS=1 $(VENV)/bin/python -m tests.support.chaos_cli $(ARGS)

fuzz: $(INSTALLED) ## hostile messages, logs and recordings by the million; ARGS=--help tells the numbers
	@OMP_NUM_THREADS=1 $(VENV)/bin/python -m tests.support.fuzz_cli $(ARGS)

bench: $(INSTALLED) ## the benchmarks as tables (ARGS: names of some, --json FILE for their lines)
	@$(VENV)/bin/python benchmarks/table.py $(ARGS)

image: ## the container image for the CPU
	$(BUILD) --target cpu $(if $(TORCH_INDEX),--build-arg TORCH_INDEX=$(TORCH_INDEX)) -t $(IMAGE) $(ARGS) .

image-cuda: ## the container image for GPUs
	$(BUILD) --target cuda -t $(IMAGE)-cuda $(ARGS) .

clean: ## remove the virtual environment and all caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist *.egg-info

$(INSTALLED): pyproject.toml
	@echo "installing into $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed (make PYTHON=python3.11)")'
	@$(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/pip install --quiet -e '.[test,dev]'
	@touch $@
