# Everything sets itself up: Python >= 3.11 and make are all that is needed.
PYTHON ?= python3
NEW := 3.3.2
OLD := 2.11.2
MIDDLE := 3.0.6
BIN := .venv/airflow-$(NEW)/bin
OLD_BIN := .venv/airflow-$(OLD)/bin
MIDDLE_BIN := .venv/airflow-$(MIDDLE)/bin

.PHONY: help env-new env-old env-middle demo test test-old test-properties test-wheel test-canary test-waiting test-kill test-distributed neighbours test-neighbours bench up lint constraints clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/make \1\t\2/' | expand -t 20

env-new:
	@$(PYTHON) scripts/bootstrap.py $(NEW)
env-old:
	@$(PYTHON) scripts/bootstrap.py $(OLD)
env-middle:
	@$(PYTHON) scripts/bootstrap.py $(MIDDLE)

demo: env-new ## one pipeline from end to end on a real Airflow, against the emulator
	@$(BIN)/python -m scripts.demo

test: env-new ## the tests on Airflow 3, with coverage
	@$(BIN)/python -m pytest --cov --cov-report=term --cov-fail-under=95

test-old: env-old ## the tests on Airflow 2.11
	@$(OLD_BIN)/python -m pytest

test-properties: env-new ## 21,000 random answers through the parser
	@CLOUDSTORE_CASES=7000 $(BIN)/python -m pytest tests/protocol/test_any_answer.py

test-wheel: env-new ## the wheel beside Airflow in an empty environment
	@$(BIN)/python -m pytest -m slow tests/packaging

test-canary: env-new env-old ## secrets on a whole Airflow, on both versions
	@$(BIN)/python -m pytest -m slow tests/canary
	@$(OLD_BIN)/python -m pytest -m slow tests/canary

test-waiting: env-new env-old env-middle ## deferred waits on a whole Airflow, on three versions
	@$(BIN)/python -m pytest -m slow tests/waiting
	@$(OLD_BIN)/python -m pytest -m slow tests/waiting
	@$(MIDDLE_BIN)/python -m pytest -m slow tests/waiting

test-kill: env-new ## a batch task killed fifty times, twice, on a whole Airflow
	@$(BIN)/python -m pytest -m slow -s tests/batch

test-distributed: ## tasks across machines and a lost machine, on PostgreSQL, Redis and two Celery workers
	@.venv/airflow-$(NEW)-distributed/bin/python -m pytest -m slow -s tests/distributed

neighbours: ## Azurite, for test-neighbours; the other programs are apt-get install nginx haproxy squid
	@if command -v npm >/dev/null; then npm install --silent --no-audit --no-fund --prefix .neighbours azurite; \
	else echo "NOT RUN: npm is not installed, so there is no Azurite: apt-get install npm"; fi

test-neighbours: neighbours ## real front ends, a forward proxy and object stores
	@.venv/airflow-$(NEW)-neighbours/bin/python -m pytest -m slow tests/neighbours

bench: env-new ## the benchmarks; figures of a shared machine, to be compared within a run
	@$(BIN)/python benchmarks/waiting.py
	@$(BIN)/python benchmarks/batch.py
	@PYTHONPATH=. $(BIN)/python benchmarks/mapped.py

up: env-new ## Airflow's own UI with the example DAGs, the connection and the emulator; ENGINE=celery for two Celery workers
	@$(if $(filter celery,$(ENGINE)),.venv/airflow-$(NEW)-distributed/bin/python -m scripts.up celery,$(BIN)/python -m scripts.up)

lint: env-new ## ruff (with import layering) and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

# Airflow 3.0 breaks with what its dependencies have become since.
AS_OF := --exclude-newer 2025-09-01 $(patsubst %,--exclude-newer-package apache-airflow-providers-%=2026-11-01,common-compat http)
constraints: ## pin the newest versions that fit (needs uv)
	for version in $(NEW) $(OLD); do \
	  echo "apache-airflow==$$version" | uv pip compile --quiet --upgrade --universal --python-version 3.11 --extra dev \
	    --no-header --no-annotate --no-emit-index-url pyproject.toml - -o constraints/airflow-$$version.txt || exit 1; done
	@echo "apache-airflow==$(MIDDLE)" | uv pip compile --quiet --upgrade --python-version 3.11 --extra dev \
	  --no-header --no-annotate --no-emit-index-url $(AS_OF) pyproject.toml - -o constraints/airflow-$(MIDDLE).txt

clean: ## remove what make set up
	rm -rf .venv .demo .up .neighbours
