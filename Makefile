# One command each; `make help` lists them. Everything runs inside .venv, which `setup` builds from the lock file.
PYTHON ?= python3
BIN := .venv/bin
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help setup up test test-slow test-soak test-cloud sglang test-sglang check lint bench bench-smoke docs lock clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' Makefile | awk -F':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

.venv/.done: requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "hexcloud needs Python 3.11 or newer: make PYTHON=python3.11 setup")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps -e .
	touch $@

setup: .venv/.done ## Build .venv from the lock file

up: setup ## Run the main job on this machine to its end (about 10 minutes) and print the report
	$(BIN)/hexcloud up examples/main_job.yaml --yes

test: setup ## Pass all tests of the default tier, on every core
	$(BIN)/pytest -n auto --dist loadfile

test-slow: setup ## The slow tier: whole runs with real processes, and their faults
	$(BIN)/pytest -m slow -n 2 --dist loadfile

test-soak: setup ## Proofs refuted and searches tried at length, minutes each: not in CI
	$(BIN)/pytest -m soak --hypothesis-profile=anew

.venv-sglang/.done: $(wildcard deploy/sglang-cpu/*.t* deploy/sglang-cpu/*/*.py)
	@$(PYTHON) -c 'import platform, sys; machine = (sys.platform, platform.machine()); sys.exit(0 if machine == ("linux", "x86_64") else f"SGLang has no wheel for {machine}")'
	$(PYTHON) -m venv .venv-sglang
	.venv-sglang/bin/pip install -qq --disable-pip-version-check -r deploy/sglang-cpu/requirements.txt
	.venv-sglang/bin/pip install -qq --disable-pip-version-check --no-deps -r deploy/sglang-cpu/requirements-no-deps.txt
	.venv-sglang/bin/pip install -qq --disable-pip-version-check --no-deps --force-reinstall deploy/sglang-cpu
	touch $@

sglang: .venv-sglang/.done ## Build SGLang's own environment for a CPU (2 GB; Linux, x86_64)

test-sglang: setup ## The sglang tier: the real server on this CPU; skipped, with the reason, where it cannot be built
	-$(MAKE) sglang
	$(BIN)/pytest -m sglang

test-cloud: setup ## The cloud tier: real SkyPilot on an emulated EC2 (root, Debian; 10 to 15 minutes)
	$(BIN)/pytest -m cloud -v -s --durations=0 --durations-min=1 tests/e2e/cloud

lint: setup ## Format, ruff, mypy strict, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test ## Everything a pull request must pass (house rules are tests: tests/layout)

bench: setup ## Run every benchmark
	@for file in benchmarks/*.py; do $(BIN)/python $$file || exit 1; done

bench-smoke: setup ## Run every benchmark on small inputs
	@for file in benchmarks/*.py; do $(BIN)/python $$file --smoke || exit 1; done

docs: setup ## Write docs/cli.md from the program itself
	$(BIN)/python docs/generate_cli.py

lock: ## Write requirements.lock anew from pyproject.toml (base, cloud, tasks and dev)
	rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock && .venv-lock/bin/pip install --quiet uv
	echo "torch==2.13.0" | .venv-lock/bin/uv pip compile --quiet --no-header --no-annotate --extra cloud --extra dev --extra tasks \
		pyproject.toml - | grep -viE '^(nvidia|triton|cuda)' | sort -f > requirements.lock
	rm -rf .venv-lock

clean: ## Remove what the tools left
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
