# Everything sets itself up: Python >= 3.11 and make are all that is needed.
PYTHON ?= $(shell python3.11 -c "print('python3.11')" 2>/dev/null || echo python3)
CORES := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
# What CI runs and the README shows; an entry without a Python runs on $(PYTHON), which is 3.11 wherever there is one.
MATRIX := 2.11.2 3.0.6 3.1.8 3.2.2 3.3.2 3.3.2-py3.12 3.3.2-py3.13
AIRFLOWS := 2.11.2 3.0.6 3.1.8 3.2.2 3.3.2
NEW := 3.3.2
OLD := 2.11.2
MIDDLE := 3.0.6
BIN := .venv/airflow-$(NEW)/bin
OLD_BIN := .venv/airflow-$(OLD)/bin
MIDDLE_BIN := .venv/airflow-$(MIDDLE)/bin
WORKBENCH := $(NEW)-workbench
WORKBENCH_BIN := .venv/airflow-$(WORKBENCH)/bin
CASES ?= 2000
# More workers than cores, because many tests wait; a test that is asked for by name runs alone, where its output can be read.
PARALLEL := -n $(shell expr $(CORES) + $(CORES) / 2)
COVERAGE := --cov-report=term --cov-fail-under=95
PROPERTIES := $(patsubst %,tests/protocol/test_%.py,any_response encodings identifiers storable)
IN_TIME := tests/batch/test_job.py tests/clients/test_limits.py tests/test_waiting.py tests/dags_examples tests/howto

# Without bytecode every process of every Airflow would compile Airflow anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help matrix-names env-new env-old env-middle env-workbench demo test test-coverage test-matrix test-old test-properties test-histories test-differential test-wheel \
  test-canary test-assets test-downloads test-odd-responses test-waiting test-killed-upload test-in-time test-kill test-distributed neighbours test-neighbours \
  test-ui test-typed test-first-day bench up docs format lint constraints clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z-]+%?:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z%-]+):.*## (.*)/make \1\t\2/' | expand -t 24

env-new:
	@$(PYTHON) scripts/bootstrap.py $(NEW) dev
env-old:
	@$(PYTHON) scripts/bootstrap.py $(OLD)
env-middle:
	@$(PYTHON) scripts/bootstrap.py $(MIDDLE)
env-workbench: # with a database, a message queue, and emulated object stores
	@$(PYTHON) scripts/bootstrap.py $(WORKBENCH) test,distributed,neighbours

demo: env-new ## one pipeline from end to end on a real Airflow, against the emulator
	@$(BIN)/python -m scripts.demo

test: env-new ## the tests on Airflow 3; ARGS="tests/x.py -k y" runs only those
	@$(BIN)/python -m pytest $(if $(ARGS),$(ARGS),$(PARALLEL))

test-coverage: env-new ## the same and those of test-in-time, with branch coverage of at least 95 %
	@$(BIN)/python -m pytest $(PARALLEL) --cov --cov-report=
	@$(BIN)/python -m pytest -m slow $(PARALLEL) $(IN_TIME) --cov --cov-append $(COVERAGE)

test-old: test-on-$(OLD) ## the tests on Airflow 2.11

# An Airflow version of the matrix, with or without a Python: test-on-3.1.8, test-on-3.3.2-py3.13.
# Status 3 of the set-up says that this machine has no such Python, and is no failure.
test-on-%: ## the tests on one version of the matrix, such as test-on-3.1.8; takes ARGS too
	@$(PYTHON) scripts/bootstrap.py $* $(if $(filter $(NEW),$*),dev) || { status=$$?; [ $$status -eq 3 ] && exit 0; exit $$status; }; \
	[ ! -d .venv/airflow-$* ] || .venv/airflow-$*/bin/python -m pytest $(if $(ARGS),$(ARGS),$(PARALLEL))

test-matrix: ## the tests on every version of the matrix
	@set -e; for name in $(MATRIX); do echo "== Airflow $$name"; $(MAKE) --no-print-directory test-on-$$name; done

matrix-names:
	@echo $(addprefix test-on-,$(filter-out $(NEW),$(MATRIX)))

test-properties: env-new ## 7,000 random examples for each property of the parser and the guards
	@CLOUDSTORE_CASES=7000 $(BIN)/python -m pytest --timeout 1200 $(PARALLEL) $(PROPERTIES)

test-wheel: ## the wheel beside each Airflow version in an empty environment
	@set -e; for name in $(AIRFLOWS); do echo "== Airflow $$name"; \
	  $(MAKE) --no-print-directory test-on-$$name ARGS="-m slow tests/packaging"; done

test-canary: env-new env-old ## secrets on a whole Airflow, on both versions
	@$(BIN)/python -m pytest -m slow tests/canary
	@$(OLD_BIN)/python -m pytest -m slow tests/canary

test-downloads: env-new env-old ## downloads that break, and Airflow's own transfer, on a whole Airflow, on both versions
	@$(BIN)/python -m pytest -m slow tests/downloads
	@$(OLD_BIN)/python -m pytest -m slow tests/downloads

test-waiting: env-new env-old env-middle ## deferred waits on a whole Airflow, on three versions
	@$(BIN)/python -m pytest -m slow tests/waiting
	@$(OLD_BIN)/python -m pytest -m slow tests/waiting
	@$(MIDDLE_BIN)/python -m pytest -m slow tests/waiting --deselect tests/waiting/test_short_waits.py

test-assets: ## assets, a watcher with a killed triggerer, lineage and retry times on a whole Airflow, on both versions
	@set -e; for name in $(NEW) $(OLD); do $(PYTHON) scripts/bootstrap.py $$name-lineage test,lineage; \
	  .venv/airflow-$$name-lineage/bin/python -m pytest -m slow tests/assets; \
	  .venv/airflow-$$name-lineage/bin/python -m pytest tests/test_lineage.py; done

test-in-time: env-new ## what takes its time: limits, waits and batches over real sockets, the examples and the how-tos
	@$(BIN)/python -m pytest -m slow $(PARALLEL) $(IN_TIME)

test-kill: env-new ## a batch task killed fifty times, twice, and twenty times while its stores fail, on a whole Airflow
	@$(BIN)/python -m pytest -m slow -n 2 --dist worksteal -rP tests/batch/test_killed.py

test-odd-responses: env-new env-old ## odd responses to every operator on a whole Airflow, on both versions
	@$(BIN)/python -m pytest -m slow tests/odd_responses
	@$(OLD_BIN)/python -m pytest -m slow tests/odd_responses

test-killed-upload: env-new env-old ## an upload killed while it is sent, on a whole Airflow, on both versions
	@$(BIN)/python -m pytest -m slow tests/killed_upload
	@$(OLD_BIN)/python -m pytest -m slow tests/killed_upload

test-histories: env-new ## batches through 2,500 simulated histories of faults, against a model
	@CLOUDSTORE_HISTORIES=2500 $(BIN)/python -m pytest tests/batch/test_simulation.py

test-differential: env-new ## random raw responses through both clients, against an oracle; CASES=10000 for more
	@CLOUDSTORE_CASES=$(CASES) $(BIN)/python -m pytest -m slow -s tests/differential

test-distributed: env-workbench ## tasks across machines and a lost machine, on PostgreSQL, Redis and two Celery workers
	@$(WORKBENCH_BIN)/python -m pytest -m slow -s tests/distributed

neighbours: # what Debian and npm have of them, where this machine may install it
	@scripts/neighbours.sh

test-neighbours: env-workbench neighbours ## real front ends, a forward proxy and object stores
	@$(WORKBENCH_BIN)/python -m pytest -m slow tests/neighbours

bench: env-new ## the benchmarks; figures of a shared machine, to be compared within a run
	@$(BIN)/python benchmarks/waiting.py
	@$(BIN)/python benchmarks/batch.py
	@$(BIN)/python benchmarks/download.py
	@PYTHONPATH=. $(BIN)/python benchmarks/mapped.py

test-ui: env-new env-old ## the first day in a browser: make up with one click, and the connection form
	@scripts/apt.sh chromium
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints/airflow-$(NEW).txt playwright
	@$(OLD_BIN)/python -m pip install -qq --disable-pip-version-check -c constraints/airflow-$(OLD).txt playwright
	@$(BIN)/python -m pytest -m slow tests/ui
	@$(OLD_BIN)/python -m pytest -m slow tests/ui

test-typed: env-new ## mypy and pyright, both strict, over the examples and every code block of the docs
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints/airflow-$(NEW).txt basedpyright
	@$(BIN)/python -m pytest -m slow tests/typed

test-first-day: env-new env-old ## the README's first DAG as it is written, on a whole Airflow
	@$(BIN)/python -m pytest -m slow tests/first_day
	@$(OLD_BIN)/python -m pytest -m slow tests/first_day

docs: env-new ## make docs/reference.md from the docstrings
	@$(BIN)/python -m scripts.reference

up: $(if $(filter celery,$(ENGINE)),env-workbench,env-new) ## Airflow's own UI with the example DAGs, the connection and the emulator; ENGINE=celery for two Celery workers
	@$(if $(filter celery,$(ENGINE)),$(WORKBENCH_BIN)/python -m scripts.up celery,$(BIN)/python -m scripts.up)

format: env-new ## let ruff sort the imports, mend what it can, and lay the code out
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

lint: env-new ## ruff (with import layering), mypy, and actionlint for CI's workflow
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/actionlint

# Two Airflow versions break with what their dependencies have become since; the provider's own need not be that old.
AS_OF_3.0.6 := --exclude-newer 2025-09-01
AS_OF_3.2.2 := --exclude-newer 2026-06-15
# The newest has what every extra needs; its file holds for every Python by markers, as do those that need no date.
EXTRAS_2.11.2 := --extra test --extra ui --extra lineage
EXTRAS_3.3.2 := --extra dev --extra typed --extra ui --extra distributed --extra lineage --extra neighbours
OURS := $(patsubst %,--exclude-newer-package apache-airflow-providers-%=2026-11-01,common-compat http)
constraints: $(addprefix constraints-,$(AIRFLOWS)) ## pin the newest versions that fit (needs uv)
constraints-%:
	@echo "apache-airflow==$*" | uv pip compile --quiet --upgrade --python-version 3.11 --no-header --no-annotate --no-emit-index-url \
	  $(if $(AS_OF_$*),$(AS_OF_$*) $(OURS),--universal) $(or $(EXTRAS_$*),--extra test) pyproject.toml - -o constraints/airflow-$*.txt

clean: ## remove what make set up
	rm -rf .venv .demo .up .neighbours
