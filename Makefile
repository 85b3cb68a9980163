# fleethpa: `make demo` shows the main job working, `make test` runs the tests. Both need Python >= 3.11 and pip only.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.stamp

.DEFAULT_GOAL := help
.PHONY: help setup demo day dev test test-all test-pythons test-pythons-short test-slow test-laws test-kafka test-kafka-short test-hostile test-prometheus test-kubernetes test-kubernetes-short test-upstream acceptance test-page screenshots chaos mutate check format bench bench-fleet bench-policies generated manifests dist docs lock clean

help:  ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-22s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP)  ## Create .venv with the locked dependencies; the command is .venv/bin/fleethpa

$(STAMP): requirements/dev.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fleethpa needs Python 3.11 or newer; try: make PYTHON=python3.13 setup")'
	$(PYTHON) -m venv .venv
	@echo "Installing the locked dependencies into .venv, once; it takes a minute or a few, and pip says what it does:"
	$(BIN)/pip install --disable-pip-version-check --require-hashes -r requirements/dev.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: setup  ## The main job, seen working: embedded broker, three simulated clusters, under two minutes
	$(BIN)/fleethpa demo

day: setup  ## The archive of a recorded day in build/day: every analysis has something to find in it
	$(BIN)/fleethpa demo day

dev: setup  ## Keep the demo stack up for your own commands (kubectl included); Ctrl-C ends it
	$(BIN)/fleethpa dev

# Files in their order: those of processes that mostly wait come early, and the short ones fill the gaps. More workers than
# cores, since in about half of their time they wait; each further one collects all tests once more. Rewritten test
# modules are cached, also where the environment forbids Python to: half of what collecting costs.
test: setup  ## The fast tier: unit, conformance and pipeline tests
	PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -q -m 'not kafka and not slow and not page' --ignore tests/kafka --ignore tests/kubernetes --ignore tests/page --ignore tests/prometheus --ignore tests/slow -n 5 --dist loadfile --no-loadscope-reorder

test-pythons: setup  ## The fast tier on each further Python, 3.11 to 3.14, that is here, and: the same log gives the same bytes on all
	$(BIN)/python -m tests.pythons

test-pythons-short: setup  ## The same with a part of the tests, in less than four minutes; .ci/run runs this
	$(BIN)/python -m tests.pythons --short --limit-s 150

test-all: test check docs test-pythons-short test-slow test-laws test-kafka test-hostile test-kubernetes-short test-upstream test-prometheus test-page  ## Every tier; .ci/run chooses among them by what changed (tests/tiers.py)

test-slow: setup  ## What a person does, at full length: documented commands, releases, clusters that are handed over, damaged archives, benches
	PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -q -m "slow and not kafka and not kubernetes and not page" tests/slow -n 4 --dist loadfile --no-loadscope-reorder

test-laws: setup  ## All laws with all their examples, models to their depth, processes that hang: what the fast tier tries a part of
	PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -q --hypothesis-profile whole -m "(slow or hypothesis) and not kafka and not kubernetes and not page" --ignore tests/slow -n 4 --dist loadfile --no-loadscope-reorder

test-kafka: setup  ## The tests that need a real Apache Kafka (from Maven Central; needs a JDK and mvn), a short chaos run among them
	$(BIN)/pytest -q -m "kafka and not hostile" tests/kafka -n 2 --dist loadfile

test-kafka-short: setup  ## The same without those that wait for minutes; .ci/run runs these
	$(BIN)/pytest -q -m "kafka and not hostile and not slow" tests/kafka -n 2 --dist loadfile

test-prometheus: setup  ## HPAs decided from a real Prometheus (needs the binary; on Debian apt-get install prometheus)
	$(BIN)/pytest -q -m prometheus tests/prometheus

test-hostile: setup  ## A fleet under attack on a real Apache Kafka with permissions: tenants, producers, stolen credentials (JDK and mvn)
	$(BIN)/pytest -q -m hostile tests/kafka

# The build takes about fifteen minutes on two cores the first time, and nothing after that: the binaries stay in the user's cache.
test-kubernetes: setup  ## The tests on a real Kubernetes control plane (built once from Go modules; needs go)
	$(BIN)/python -m tests.kubernetes.binaries
	$(BIN)/pytest -q -m kubernetes tests/kubernetes

test-kubernetes-short: setup  ## The same without those that wait for minutes (stand-in, found clusters, troubles); .ci/run runs these
	$(BIN)/python -m tests.kubernetes.binaries
	$(BIN)/pytest -q -m "kubernetes and not long" tests/kubernetes -n 2 --dist loadfile

# The first build takes as long as that of the control plane, and its program stays in the user's cache, too.
SEED ?= 1
COUNT ?= 10000
test-upstream: setup  ## Engine and API rules beside upstream's compiled code, on fresh cases (SEED=n, COUNT=n; needs go)
	$(BIN)/python -m tests.upstream --seed $(SEED) --count $(COUNT)

MINUTES ?= 5
acceptance: setup  ## Two real clusters from shadow to enforce and through troubles, as a table (about 20 minutes; MINUTES=n in shadow)
	$(BIN)/python -m tests.kubernetes.binaries
	$(BIN)/python -m tests.kubernetes.acceptance --minutes $(MINUTES)

DEMO_ARCHIVE := build/demo/archive
$(DEMO_ARCHIVE):
	$(BIN)/fleethpa demo

test-page: setup $(DEMO_ARCHIVE)  ## The page in a real browser: nine questions, hostile names, accessibility (needs Chromium)
	$(BIN)/pytest -q -m page tests/page

DAY_ARCHIVE := build/day/archive
$(DAY_ARCHIVE):
	$(BIN)/fleethpa demo day

screenshots: setup $(DEMO_ARCHIVE) $(DAY_ARCHIVE)  ## Pictures of every view of the demo's archive, light and dark, wide and narrow; those of docs/ of the recorded day (needs Chromium)
	$(BIN)/python -m tests.page.screenshots $(DEMO_ARCHIVE) build/screenshots --docs docs/images --day $(DAY_ARCHIVE)

FAULTS ?= 20
chaos: setup  ## Kills, pauses, rebalances and broker faults against Apache Kafka (FAULTS=200 for the full run)
	$(BIN)/python -m tests.kafka.chaos --faults $(FAULTS)

mutate: setup  ## Mutation testing of the algorithm and of quantities: a seeded sample (python -m tests.mutation --full for all)
	$(BIN)/python -m tests.mutation --sample 200 --minutes 10

# What a change elsewhere breaks most easily: bars, names, maps, what is declared once, and generated files.
CHECKED := tests/unit/docs/test_house.py tests/unit/docs/test_names.py tests/unit/docs/test_architecture_page.py \
	tests/unit/docs/test_cli_reference.py tests/unit/docs/test_documented_modules.py tests/unit/schemas/test_decision_forms.py \
	tests/unit/state/test_attached.py tests/unit/state/test_attached_entry.py tests/unit/state/test_declared_settings.py \
	tests/unit/state/test_partition_golden.py tests/unit/ingest/test_ingest_golden.py tests/unit/ingest/test_ingest_agents.py \
	tests/unit/docs/test_site.py tests/unit/docs/test_generated.py tests/unit/docs/test_ingest_docs.py \
	tests/unit/docs/test_audit_questions.py tests/unit/cli/test_attached_verb.py \
	tests/unit/cli/test_cli_replay.py::test_the_published_schema_of_history_knows_every_change \
	tests/unit/cli/test_hostile_texts.py::test_every_verb_is_known_to_this_file \
	tests/unit/cli/test_wrong_invocations.py::test_the_table_covers_every_verb_that_can_be_called_wrongly \
	tests/unit/hub/test_hub_writing.py::test_every_write_verb_has_a_kind_or_refuses_the_hub_by_name

check: setup  ## Format, lint, types, import contracts, names and bars; the tests of further tiers are planned: they import, and have their fixtures
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q --continue-on-collection-errors $(CHECKED)
	@mkdir -p build
	$(BIN)/pytest -qq --setup-plan -p no:cacheprovider tests/kafka tests/kubernetes tests/page tests/prometheus tests/slow >build/plan.txt 2>&1 || { cat build/plan.txt; exit 1; }

format: setup  ## Rewrite the code in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup  ## Speed and memory: evaluations, folding, the whole pipeline
	$(BIN)/python -m tests.bench

HPAS ?= 2000
CLUSTERS ?= 20
BROKER ?= kafka
bench-fleet: setup  ## All processes together with a generated fleet (HPAS, CLUSTERS, BROKER=embedded): CPU, memory, latency, a load step
	$(BIN)/python -m tests.bench.fleet --hpas $(HPAS) --clusters $(CLUSTERS) --broker $(BROKER)

bench-policies: setup  ## Specs that people deploy by habit over recorded loads, with the scores of the literature
	$(BIN)/python -m tests.experiments.policies

generated: setup  ## The pages and schemas that are made from the code: references, limits, rules reached, published schemas
	$(BIN)/python -m tests.generated

manifests: setup  ## What in compose/ follows from the code: the chart's files and the plain manifests (helm, or go to build it)
	$(BIN)/python -m tests.kubernetes.manifests

dist: setup  ## dist/: wheel, source, chart, image context, list of packages (CycloneDX) and checksums of the last commit
	$(BIN)/python -m tests.dist

# The pages keep their places, so that links are the same here and in the repository.
docs:  ## build/docs/site: README and docs/ as a site that needs no network; fails on a broken link (python3 -m http.server -d build/docs/site)
	$(PYTHON) -m venv build/docs-env
	build/docs-env/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.lock
	rm -rf build/docs && mkdir -p build/docs/src
	git ls-files -z README.md SECURITY.md CONTRIBUTING.md CHANGELOG.md LICENSE docs examples schemas/json | tar -cf - --null -T - | tar -xf - -C build/docs/src
	NO_MKDOCS_2_WARNING=1 build/docs-env/bin/mkdocs build --quiet --strict
	! grep -rlE --include='*.html' '<(script|img|link rel=.stylesheet.)[^>]*(src|href)=.https?://' build/docs/site

lock:  ## Renew the lock files from pyproject.toml (needs uv)
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-header -q --extra page --extra prometheus --extra mcp --extra lab pyproject.toml -o requirements/run.lock
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-header -q --extra page --extra prometheus --extra mcp --extra lab --extra dev pyproject.toml -o requirements/dev.lock
	# Without dependencies: botocore asks for a python-dateutil older than the Kubernetes client does.
	printf '%s\n' aws-msk-iam-sasl-signer-python boto3 botocore jmespath s3transfer | uv pip compile --no-deps --universal --python-version 3.11 --generate-hashes --no-header -q - -o requirements/msk.lock
	$(PYTHON) -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['build-system']['requires'])" | uv pip compile --universal --python-version 3.11 --generate-hashes --no-header -q -c requirements/dev.lock - -o requirements/build.lock
	$(PYTHON) -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['docs'])" | uv pip compile --universal --python-version 3.11 --generate-hashes --no-header -q - -o requirements/docs.lock

clean:  ## Remove the virtual environment and build products
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache
