# Needs only Python >= 3.11 and make; every target installs what it uses.
PYTHON ?= $(shell python3.11 -c "print('python3.11')" 2>/dev/null || echo python3)
CORES := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
# The versions that CI tests and the README lists; without -py, an entry runs on $(PYTHON), which is 3.11 if installed.
MATRIX := 2.11.2 3.0.6 3.1.8 3.2.2 3.3.2 3.3.2-py3.12 3.3.2-py3.13
AIRFLOWS := 2.11.2 3.0.6 3.1.8 3.2.2 3.3.2
NEW := 3.3.2
OLD := 2.11.2
MIDDLE := 3.0.6
# The protocol, the clients and the batch engine do not use Airflow: on these versions, their tests are left out. The oldest is tested
# whole with the lowest dependencies (test-lowest).
BETWEEN := $(filter-out $(NEW),$(AIRFLOWS))
BIN := .venv/airflow-$(NEW)/bin
SITE_BIN := .venv/airflow-$(NEW)-site/bin
OLD_BIN := .venv/airflow-$(OLD)/bin
MIDDLE_BIN := .venv/airflow-$(MIDDLE)/bin
WORKBENCH := $(NEW)-workbench
WORKBENCH_BIN := .venv/airflow-$(WORKBENCH)/bin
# More workers than cores, because many tests wait; fewer where .ci/run runs something else at the same time. Tests selected with
# ARGS run one at a time, with readable output.
ALONE := -n $(shell expr 2 \* $(CORES))
PARALLEL := -n $(shell expr $(CORES) + $(CORES) / 2)
MEASURE := --cov --cov-report=
COVERAGE := --cov-append --cov-report=term --cov-fail-under=95
PROPERTIES := $(patsubst %,tests/unit/protocol/test_%.py,any_response guards secrets storable)
ON_AIRFLOW := $(filter-out %/__pycache__/ tests/unit/batch/ tests/unit/protocol/,$(wildcard tests/unit/*/)) \
  $(wildcard tests/unit/*.py) tests/unit/protocol/test_storable.py tests/docs tests/project
DOCTOR := tests/unit/doctor tests/wire/doctor
IN_TIME := tests/wire/batch/test_job.py tests/wire/test_ended.py tests/wire/test_waiting.py tests/docs/dags_examples tests/docs/guides

# Without bytecode, every process would compile all of Airflow.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help matrix-names env-new env-old env-middle env-workbench env-site demo test test-coverage test-matrix test-old test-lowest test-newest test-properties test-histories package test-wheel \
  test-airflow test-airflow-new test-airflow-old test-canary test-assets test-downloads test-waiting test-killed-upload \
  test-in-time test-approval test-doctor test-kill test-readers test-distributed test-triggerer test-neighbours \
  pictures test-ui test-site test-typed test-first-day bench up site format lint constraints clean
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

demo: env-new ## run one pipeline end to end on a real Airflow and the emulator
	@$(BIN)/python -m scripts.demo

test: env-new ## run the fast tests on the newest Airflow; ARGS="tests/x.py -k y" selects some
	@$(BIN)/python -m pytest $(if $(ARGS),$(ARGS),$(ALONE)) $(if $(MEASURED),$(MEASURE))

# With MEASURED=1, as in .ci/run, test measures its coverage, and test-coverage adds to that.
test-coverage: env-new ## run test and test-in-time with at least 95 % branch coverage
	@$(if $(MEASURED),,$(BIN)/python -m pytest $(PARALLEL) $(MEASURE))
	@$(BIN)/python -m pytest -m slow $(PARALLEL) $(IN_TIME) --cov $(COVERAGE)

test-old: test-on-$(OLD) ## run the fast tests on the oldest Airflow

# An entry of the matrix: test-on-3.1.8, test-on-3.3.2-py3.13. Exit status 3 of bootstrap.py (Python not installed) is not a failure.
test-on-%: ## run the fast tests on one version, such as test-on-3.1.8; accepts ARGS
	@$(PYTHON) scripts/bootstrap.py $* $(if $(filter $(NEW),$*),dev) || { status=$$?; [ $$status -eq 3 ] && exit 0; exit $$status; }; \
	[ ! -d .venv/airflow-$* ] || .venv/airflow-$*/bin/python -m pytest $(if $(ARGS),$(ARGS),$(PARALLEL) $(if $(filter $*,$(BETWEEN)),$(ON_AIRFLOW)))

test-matrix: ## run the fast tests on every version in the README
	@set -e; for name in $(MATRIX); do echo "== Airflow $$name"; $(MAKE) --no-print-directory test-on-$$name; done

matrix-names:
	@echo $(addprefix test-on-,$(filter-out $(NEW),$(MATRIX)))

test-lowest: test-on-$(OLD)-lowest ## run the fast tests with the lowest dependencies that pyproject.toml allows, on the oldest Airflow

test-newest: ## run the fast tests with the newest dependencies, pre-releases included, on the newest Airflow
	@$(PYTHON) scripts/bootstrap.py $(NEW)-newest
	@.venv/airflow-$(NEW)-newest/bin/python scripts/newest.py $(NEW)
	@.venv/airflow-$(NEW)-newest/bin/python -m pytest $(if $(ARGS),$(ARGS),$(PARALLEL))

test-properties: env-new ## test the parser and the guards with 7,000 random examples for each property
	@CLOUDSTORE_CASES=7000 $(BIN)/python -m pytest --timeout 1200 $(PARALLEL) $(PROPERTIES)

# In an environment of its own, because .ci/run uses the others meanwhile. Of the commit, because git hides some files of a checkout that
# a build would find. TAG reaches a test that compares it with the version and the changelog.
PACKAGE_BIN := .venv/airflow-$(NEW)-package/bin
package: ## build what is released into dist/, check it, and run the fast tests on the installed wheel; TAG=v0.1.0
	@[ -z "$$(git status --porcelain)" ] || { echo "A release is built from a commit: commit or remove these first."; git status --short; exit 1; }
	@$(PYTHON) scripts/bootstrap.py $(NEW)-package test,package
	@rm -rf dist build/commit && mkdir -p build/commit && git archive HEAD | tar -x -C build/commit
	@SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(PACKAGE_BIN)/python -m build --no-isolation --outdir dist build/commit
	@$(PACKAGE_BIN)/twine check --strict dist/*
	@$(PACKAGE_BIN)/check-wheel-contents dist
	@$(PACKAGE_BIN)/validate-pyproject pyproject.toml
	@$(MAKE) --no-print-directory test-built-on-$(NEW)

# The checkout comes last on the path: the tests find each other there, and the package where the wheel was installed.
test-built-on-%: ## run the fast tests on the wheel in dist/, on one version
	@$(PYTHON) scripts/bootstrap.py $*-wheel
	@.venv/airflow-$*-wheel/bin/python -m pip install -qq --disable-pip-version-check --no-deps --force-reinstall dist/*.whl
	@echo "$(CURDIR)" > "$$(.venv/airflow-$*-wheel/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/checkout.pth"
	@INSTALLED=1 .venv/airflow-$*-wheel/bin/python -P -m pytest -o pythonpath= $(if $(ARGS),$(ARGS),$(PARALLEL))

test-wheel: ## test the wheel with each Airflow version in an empty environment
	@set -e; for name in $(AIRFLOWS); do echo "== Airflow $$name"; \
	  $(MAKE) --no-print-directory test-on-$$name ARGS="-m slow tests/project/packaging"; done

# Half of these share one Airflow.
IN_AIRFLOW := $(addprefix tests/airflow/,approval canary downloads first_day killed_upload waiting)
test-airflow: test-airflow-new test-airflow-old ## run tests/airflow without assets and kills, in a full Airflow, newest and oldest
test-airflow-new: env-new
	@$(BIN)/python -m pytest -m slow $(or $(ARGS),$(IN_AIRFLOW))
# Airflow 3.0 resumes deferred tasks in a way of its own.
test-airflow-old: env-old env-middle
	@$(OLD_BIN)/python -m pytest -m slow $(or $(ARGS),$(IN_AIRFLOW))
	@$(if $(filter-out tests/airflow/waiting,$(ARGS)),,$(MIDDLE_BIN)/python -m pytest -m slow tests/airflow/waiting/test_waiting_on_airflow.py)

test-approval test-canary test-downloads test-first-day test-killed-upload test-waiting: test-%: ## run one folder of test-airflow
	@$(MAKE) --no-print-directory test-airflow ARGS=tests/airflow/$(subst -,_,$*)

test-readers: ## test that pandas, pyarrow, polars and DuckDB read files
	@$(PYTHON) scripts/bootstrap.py $(NEW)-readers test,readers
	@.venv/airflow-$(NEW)-readers/bin/python -m pytest -m slow tests/wire/test_readers.py

test-doctor: env-new env-old ## test the doctor's program and the README's DAG on six services, newest and oldest
	@$(BIN)/python -m pytest -m slow $(PARALLEL) $(DOCTOR)
	@$(OLD_BIN)/python -m pytest -m slow $(PARALLEL) $(DOCTOR)

test-assets: ## test assets, lineage and retry times, in a full Airflow, newest and oldest
	@set -e; for name in $(NEW) $(OLD); do $(PYTHON) scripts/bootstrap.py $$name-lineage test,lineage; \
	  .venv/airflow-$$name-lineage/bin/python -m pytest -m slow tests/airflow/assets; \
	  .venv/airflow-$$name-lineage/bin/python -m pytest tests/unit/test_lineage.py tests/project/test_beyond_the_docs.py; done

test-in-time: env-new ## test timeouts, waits, batches and ended tasks over real sockets, the examples and the guides
	@$(BIN)/python -m pytest -m slow $(PARALLEL) $(IN_TIME)

test-kill: env-new env-old ## kill a batch task fifty times, and twenty times while its store fails; ten times on the oldest Airflow
	@$(BIN)/python -m pytest -m slow -n 3 -rP tests/airflow/killed_batch
	@$(OLD_BIN)/python -m pytest -m slow -rP tests/airflow/killed_batch

test-histories: env-new ## compare batches in 2,500 simulated histories of faults with a model
	@CLOUDSTORE_HISTORIES=2500 $(BIN)/python -m pytest --timeout 1200 tests/unit/batch/test_simulation.py

test-distributed: env-workbench ## test a distributed Airflow whose nodes and components are killed, frozen and restarted
	@$(WORKBENCH_BIN)/python -m pytest -m slow -s tests/cluster/distributed

test-triggerer: env-workbench ## test 2,000 waits in one triggerer, with PostgreSQL and the connection in Airflow's database
	@$(WORKBENCH_BIN)/python -m pytest -m slow -s tests/cluster/triggerer

test-neighbours: env-workbench ## test with real front ends, a forward proxy and object stores
	@scripts/apt.sh nginx haproxy squid
	@scripts/npm.sh azurite@3.37.0
	@$(WORKBENCH_BIN)/python -m pytest -m slow tests/wire/neighbours

bench: env-new ## run the benchmarks; compare figures only within one run
	@$(BIN)/python benchmarks/imports.py
	@$(BIN)/python benchmarks/waiting.py
	@$(BIN)/python benchmarks/waiting.py --plain --rounds 7 --waiters 500 --interval 1 --seconds 6
	@$(BIN)/python benchmarks/batch.py
	@$(BIN)/python benchmarks/receipts.py
	@$(BIN)/python benchmarks/download.py
	@PYTHONPATH=. $(BIN)/python benchmarks/mapped.py

test-ui: env-new env-old ## test make up and the connection form in a browser, newest and oldest
	@scripts/apt.sh chromium
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints/airflow-$(NEW).txt playwright
	@$(OLD_BIN)/python -m pip install -qq --disable-pip-version-check -c constraints/airflow-$(OLD).txt playwright
	@$(BIN)/python -m pytest -m slow tests/ui
	@$(OLD_BIN)/python -m pytest -m slow tests/ui

pictures: env-site ## photograph Airflow's UI for the documentation
	@scripts/apt.sh chromium
	@rm -rf .pictures
	@$(SITE_BIN)/python -m scripts.pictures

test-site: site ## build the documentation and open every page in a browser, at two widths
	@scripts/apt.sh chromium
	@$(SITE_BIN)/python -m pytest -m slow tests/site

test-typed: env-new ## check the examples and all code blocks of the docs with mypy and pyright, strict
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints/airflow-$(NEW).txt basedpyright
	@$(BIN)/python -m pytest -m slow tests/docs/typed

env-site:
	@$(PYTHON) scripts/bootstrap.py $(NEW)-site test,site,ui
	@scripts/npm.sh @mermaid-js/tiny@12.0.0

site: env-site ## build the documentation into .site
	@$(SITE_BIN)/python -m sphinx -n -W -E -q -b html docs .site
	@echo "Open .site/index.html"

up: $(if $(filter celery,$(ENGINE)),env-workbench,env-new) ## run Airflow's UI with the example DAGs and the emulator; ENGINE=celery for two Celery workers
	@$(if $(filter celery,$(ENGINE)),$(WORKBENCH_BIN)/python -m scripts.up celery,$(BIN)/python -m scripts.up)

format: env-new ## sort imports, fix what ruff can, and format the code
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

lint: env-new ## run ruff (including layering), mypy strict, and actionlint and zizmor on .github
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/actionlint
	@$(BIN)/zizmor --offline --quiet .github

# Two Airflow versions break with newer dependencies; the provider's own may be newer.
AS_OF_3.0.6 := --exclude-newer 2025-09-01
AS_OF_3.2.2 := --exclude-newer 2026-06-15
# The newest file covers every extra; files without a date hold for every Python, by markers.
EXTRAS_$(OLD) := --extra test --extra ui --extra lineage
EXTRAS_$(NEW) := --extra dev --extra typed --extra ui --extra distributed --extra lineage --extra neighbours --extra package --extra readers --extra site
OURS := $(patsubst %,--exclude-newer-package apache-airflow-providers-%=2026-11-01,common-compat http)
COMPILE := uv pip compile --quiet --upgrade --python-version 3.11 --no-header --no-annotate --no-emit-index-url
constraints: $(addprefix constraints-,$(AIRFLOWS)) constraints-lowest ## pin the newest compatible dependencies, and the lowest (needs uv)
constraints-%:
	@echo "apache-airflow==$*" | $(COMPILE) $(if $(AS_OF_$*),$(AS_OF_$*) $(OURS),--universal) $(or $(EXTRAS_$*),--extra test) \
	  pyproject.toml - -o constraints/airflow-$*.txt
# The runtime dependencies at their floors, without an HTTP provider that needs a newer aiohttp; then, with these, the newest test tools.
LOWEST := constraints/airflow-$(OLD)-lowest.txt
AS_OF_LOWEST := --exclude-newer-package apache-airflow-providers-http=2025-09-01
constraints-lowest:
	@echo "apache-airflow==$(OLD)" | $(COMPILE) $(AS_OF_LOWEST) --resolution lowest-direct pyproject.toml - -o $(LOWEST)
	@echo "apache-airflow==$(OLD)" | $(COMPILE) $(AS_OF_LOWEST) -c $(LOWEST) --extra test pyproject.toml - -o $(LOWEST)

clean: ## remove everything that make installed
	rm -rf .venv .demo .pictures .site .up .npm
