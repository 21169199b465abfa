# Needs only Python >= 3.11 and make; every target installs what it uses.
PYTHON ?= $(shell python3.11 -c "print('python3.11')" 2>/dev/null || echo python3)
CORES := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
# The versions that CI tests and the README lists; without -py, an entry runs on $(PYTHON), which is 3.11 if installed.
MATRIX := 2.11.0 2.11.2 3.0.6 3.1.8 3.2.2 3.3.2 3.3.2-py3.12 3.3.2-py3.13
AIRFLOWS := 2.11.0 2.11.2 3.0.6 3.1.8 3.2.2 3.3.2
NEW := 3.3.2
OLD := 2.11.0
MIDDLE := 3.0.6
# The protocol, the clients and the batch engine do not use Airflow: on these versions, their tests are left out. The oldest is tested
# whole, because what was pinned on its day are the floors.
BETWEEN := $(filter-out $(NEW) $(OLD),$(AIRFLOWS))
BIN := .venv/airflow-$(NEW)/bin
SITE_BIN := .venv/airflow-$(NEW)-site/bin
PACKAGE_BIN := .venv/airflow-$(NEW)-package/bin
# More workers than cores, because many tests wait; fewer where .ci/run runs something else at the same time. Tests selected with
# ARGS run one at a time, with readable output.
ALONE := -n $(shell expr 2 \* $(CORES))
PARALLEL := -n $(shell expr $(CORES) + $(CORES) / 2)
MEASURE := --cov --cov-report=
COVERAGE := --cov-append --cov-report=term --cov-fail-under=95
PROPERTIES := $(patsubst %,tests/unit/protocol/test_%.py,any_response guards secrets storable)
ON_AIRFLOW := $(filter-out %/__pycache__/ tests/unit/batch/ tests/unit/protocol/,$(wildcard tests/unit/*/)) \
  $(wildcard tests/unit/*.py) tests/unit/protocol/test_storable.py tests/docs tests/project

# Without bytecode, every process would compile all of Airflow.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help matrix-names chromium neighbours demo test test-coverage test-random test-airflow package up bench site \
  format lint constraints clean
.DEFAULT_GOAL := help
.SECONDARY:

help: ## list the targets
	@grep -hE '^[a-z-]+%?:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+)%:/\1NAME:/; s/^([a-zA-Z-]+):.*## (.*)/make \1\t\2/' | expand -t 24
	@echo; echo "The parts of the slow tests: $(SLOW)" | fold -s -w 120

# An environment, such as env-3.3.2 or env-3.3.2-site, whose last word says what it is for.
EXTRAS := workbench:test,distributed,neighbours site:test,site package:test,package
COMMA := ,
variant = $(lastword $(subst -, ,$1))
bootstrap = $(PYTHON) scripts/bootstrap.py $1 $(if $(filter $(NEW),$1),test$(COMMA)dev,$(patsubst $(variant):%,%,$(filter $(variant):%,$(EXTRAS))))
env-%:
	@$(call bootstrap,$*)
chromium:
	@scripts/apt.sh chromium

demo: env-$(NEW) ## run one pipeline end to end on a real Airflow and the emulator
	@$(BIN)/python -m scripts.demo

test: env-$(NEW) ## run the fast tests on the newest Airflow; ARGS="tests/x.py -k y" selects some
	@$(BIN)/python -m pytest $(if $(ARGS),$(ARGS),$(ALONE)) $(if $(MEASURED),$(MEASURE))

# With MEASURED=1, as in .ci/run, test measures its coverage, and test-coverage adds to that.
test-coverage: env-$(NEW) ## run test and test-in-time with at least 95 % branch coverage
	@$(if $(MEASURED),,$(BIN)/python -m pytest $(PARALLEL) $(MEASURE))
	@$(BIN)/python -m pytest -m slow $(PARALLEL) $(PATHS_in-time) --cov $(COVERAGE)

# An entry of the matrix: test-on-3.1.8, test-on-3.3.2-py3.13. Exit status 3 of bootstrap.py (Python not installed) is not a failure.
test-on-%: ## run the fast tests with the dependencies of a release day: 3.1.8, 3.3.2-py3.13; or with the newest: 3.3.2-newest
	@$(PYTHON) scripts/bootstrap.py $* $(if $(filter $(NEW),$*),test$(COMMA)dev) || { status=$$?; [ $$status -eq 3 ] && exit 0; exit $$status; }; \
	$(if $(filter %-newest,$*),.venv/airflow-$*/bin/python scripts/newest.py $(NEW) || exit;) \
	[ ! -d .venv/airflow-$* ] || .venv/airflow-$*/bin/python -m pytest $(if $(ARGS),$(ARGS),$(PARALLEL) $(if $(filter $*,$(BETWEEN)),$(ON_AIRFLOW)))

matrix-names:
	@echo $(addprefix test-on-,$(filter-out $(NEW),$(MATRIX)))

test-random: env-$(NEW) ## test parser and guards with 2,000 random examples a property, and batches in 1,000 simulated histories of faults
	@CLOUDSTORE_CASES=2000 $(BIN)/python -m pytest --timeout 1200 $(PARALLEL) $(PROPERTIES)
	@CLOUDSTORE_HISTORIES=1000 $(BIN)/python -m pytest --timeout 1200 tests/unit/batch/test_simulation.py

# In an environment of its own, because .ci/run uses the others meanwhile. Of the commit, because git hides some files of a checkout that
# a build would find. TAG reaches a test that compares it with the version and the changelog.
package: env-$(NEW)-package ## build what is released into dist/, check it, and run the fast tests on the installed wheel; TAG=v0.1.0
	@[ -z "$$(git status --porcelain)" ] || { echo "A release is built from a commit: commit or remove these first."; git status --short; exit 1; }
	@rm -rf dist build/commit && mkdir -p build/commit && git archive HEAD | tar -x -C build/commit
	@SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(PACKAGE_BIN)/python -m build --no-isolation --outdir dist build/commit
	@$(PACKAGE_BIN)/twine check --strict dist/*
	@$(PACKAGE_BIN)/check-wheel-contents dist
	@$(PACKAGE_BIN)/validate-pyproject pyproject.toml
	@$(MAKE) --no-print-directory test-built-on-$(NEW)

# The checkout comes last on the path: the tests find each other there, and the package where the wheel was installed.
test-built-on-%: env-%-wheel ## run the fast tests on the wheel in dist/, on one version
	@.venv/airflow-$*-wheel/bin/python -m pip install -qq --disable-pip-version-check --no-deps --force-reinstall dist/*.whl
	@echo "$(CURDIR)" > "$$(.venv/airflow-$*-wheel/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/checkout.pth"
	@INSTALLED=1 .venv/airflow-$*-wheel/bin/python -P -m pytest -o pythonpath= $(if $(ARGS),$(ARGS),$(PARALLEL) $(ON_AIRFLOW))

# The slow tests, by name: the environments that each runs in (without an entry, the newest and the oldest), its tests, and what it needs.
SLOW := test-airflow-new test-airflow-old test-airflow-middle test-distributed test-doctor test-in-time test-kill \
  test-neighbours test-triggerer test-ui test-wheel
PATHS_airflow-new := $(filter-out %/__pycache__/ %/killed_batch/,$(wildcard tests/airflow/*/))
ON_airflow-new := $(NEW)
# And the examples and guides, with the imports of Airflow 2; on its last release, which most teams have.
PATHS_airflow-old := $(PATHS_airflow-new) tests/docs/dags_examples tests/docs/guides
ON_airflow-old := 2.11.2
# Airflow 3.0 resumes deferred tasks in a way of its own.
PATHS_airflow-middle := tests/airflow/waiting tests/airflow/yetishare
ON_airflow-middle := $(MIDDLE)
PATHS_distributed := tests/cluster/distributed -s
ON_distributed := $(NEW)-workbench
PATHS_doctor := tests/unit/doctor $(PARALLEL)
ON_doctor := $(NEW)
PATHS_in-time := tests/wire/batch/test_job.py tests/docs/dags_examples tests/docs/guides
ON_in-time := $(NEW)
PATHS_kill := tests/airflow/killed_batch -rP
PATHS_neighbours := tests/wire/neighbours
ON_neighbours := $(NEW)-workbench
PATHS_triggerer := tests/cluster/triggerer -s
ON_triggerer := $(NEW)-workbench
PATHS_ui := tests/ui
WITH_ui := playwright
# In an empty environment.
PATHS_wheel := tests/project/packaging

slow = echo "== Airflow $1"; $(call bootstrap,$1); $(if $(WITH_$2),$(call install,$1,$(WITH_$2));) $(call run_slow,$1,$2)
install = .venv/airflow-$1/bin/python -m pip install -qq --disable-pip-version-check -c constraints/airflow-$1.txt $2
run_slow = .venv/airflow-$1/bin/python -m pytest -m slow $(or $(ARGS),$(PATHS_$2))
test-%: ## run one part of the slow tests, named below; ARGS selects some of its tests
$(SLOW): test-%:
	@set -e; $(foreach name,$(or $(ON_$*),$(NEW) $(OLD)),$(call slow,$(name),$*);)

test-airflow: test-airflow-new test-airflow-old test-airflow-middle ## run tests/airflow without kills, in a full Airflow: newest, oldest, 3.0
test-ui: chromium
test-neighbours: neighbours
neighbours:
	@scripts/apt.sh nginx haproxy
	@scripts/npm.sh azurite@3.37.0

bench: env-$(NEW) ## run the benchmarks; compare figures only within one run
	@$(BIN)/python benchmarks/imports.py
	@$(BIN)/python benchmarks/waiting.py
	@$(BIN)/python benchmarks/waiting.py --plain --rounds 7 --waiters 500 --interval 1 --seconds 6
	@$(BIN)/python benchmarks/batch.py
	@$(BIN)/python benchmarks/download.py
	@PYTHONPATH=. $(BIN)/python benchmarks/mapped.py

site: env-$(NEW)-site ## build the documentation into .site
	@$(SITE_BIN)/python -m sphinx -n -W -E -q -b html docs .site
	@echo "Open .site/index.html"

up: env-$(NEW) ## run Airflow's UI with the example DAGs and the emulator
	@$(BIN)/python -m scripts.up

format: env-$(NEW) ## sort imports, fix what ruff can, format the code, and write the reference's pages
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .
	@$(BIN)/python -m scripts.reference

lint: env-$(NEW) ## run ruff (including layering), mypy strict, actionlint and zizmor on .github, and check the reference's pages
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m scripts.reference --check
	@$(BIN)/actionlint
	@$(BIN)/zizmor --offline --quiet .github

# When Airflow's official constraints of a version were made: they pin what was newest on that day.
DAY_2.11.0 := 2025-05-22
DAY_2.11.2 := 2026-03-15
DAY_3.0.6 := 2025-08-30
DAY_3.1.8 := 2026-03-14
DAY_3.2.2 := 2026-05-30
DAY_3.3.2 := 2026-09-18
# The newest file covers every extra. Files hold for every Python, by markers.
EXTRAS_$(OLD) := --extra test --extra ui
EXTRAS_$(NEW) := --extra test --extra dev --extra ui --extra distributed --extra neighbours --extra package --extra site
COMPILE := uv pip compile --quiet --upgrade --universal --python-version 3.11 --no-header --no-annotate --no-emit-index-url pyproject.toml -
# First what Airflow and the package had on the day; then, with that, the newest test tools.
constraints: $(addprefix constraints-,$(AIRFLOWS)) ## pin the dependencies of each Airflow's release day, and the newest test tools with them (needs uv)
constraints-%:
	@echo "apache-airflow==$*" | $(COMPILE) --exclude-newer $(DAY_$*) -o constraints/airflow-$*.txt
	@echo "apache-airflow==$*" | $(COMPILE) -c constraints/airflow-$*.txt $(or $(EXTRAS_$*),--extra test) -o constraints/airflow-$*.txt

clean: ## remove everything that make installed
	rm -rf .venv .demo .site .up .npm
