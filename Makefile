# Two commands for a newcomer: `make demo` and `make test`. Each target sets up what it needs.

.DEFAULT_GOAL := help
.PHONY: help bridge setup demo test test-all test-full coverage test-unit test-property test-integration test-conformance test-dashboards test-helm test-kubernetes test-examples test-soak test-stalls test-clock test-fuzz test-fuzz-differential test-fuzz-pipeline lint site changelog bench soak soak-processes attack fuzz fuzz-differential fuzz-pipeline mutation audit docs pictures lock lock-jars clean dist images image-archives test-images
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV_VERSION := 0.13.9
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/kafka-client-telemetry
COVERAGE_DATA := .coverage-data
STAMP := $(VENV)/.ready
PYTEST := $(BIN)/python -m pytest
MYPY_CACHE_DIR ?= $(CACHE)/mypy
RUFF_CACHE_DIR ?= $(CACHE)/ruff
export MYPY_CACHE_DIR RUFF_CACHE_DIR
# The tests start some hundred Python processes. Without bytecode each compiles all its modules again.
export PYTHONDONTWRITEBYTECODE :=

help: ## Say what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

$(STAMP): pyproject.toml requirements.lock requirements-dev.lock receiver/native/_speedups.c
	@command -v $(PYTHON) >/dev/null || { echo "python3 is missing: install Python 3.11 or newer (Debian: apt-get install python3 python3-venv)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$$($(PYTHON) --version) is too old: Python 3.11 or newer is needed (name it with PYTHON=...)"; exit 1; }
	@echo "==> [setup] Python environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { echo "the venv module is missing (Debian: apt-get install python3-venv)"; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@echo "==> [setup] locked dependencies"
	@$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements-dev.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

setup: $(STAMP) ## Prepare .venv and the real parts that tests and demo use (cached in the user's cache folder)
	@$(BIN)/python -m tests.testbed setup
	@$(BIN)/python -m spark_streaming.jars

demo: setup ## Carry real clients' metrics into a real collector and PostgreSQL, live in the terminal (DEMO_SECONDS=60 ends by itself)
	@$(BIN)/python -m examples.demo

test: $(STAMP) ## What CI runs for each change, in at most 6 minutes on 2 cores: lint, types, and the tests that are not marked `full`
	@$(BIN)/python -m tests

# `test` comes first: it finds most defects in the least time.
ALL_TESTS := test test-full coverage test-examples test-kubernetes test-images test-dashboards test-soak test-stalls test-clock test-fuzz test-fuzz-differential test-fuzz-pipeline attack audit

test-all: $(STAMP) ## Everything: `make test`, then each longer target, and a table of how each ended (some hours)
	@$(BIN)/python -m tests.targets $(ALL_TESTS)

test-full: $(STAMP) ## The tests marked `full`, which `make test` leaves out: security matrix, crash tests, release, chart, Prometheus, ...; properties and fuzzing at random: SEED
	@$(BIN)/python -m tests --full $(if $(SEED),--seed $(SEED))

coverage: $(STAMP) ## Measure branch coverage of receiver, plugins and spark_streaming under the tests of `make test`, and check the minimum
	@rm -rf $(COVERAGE_DATA) && mkdir -p $(COVERAGE_DATA)
	@$(BIN)/python -m coverage run -m tests --no-lint; tests=$$?; \
		$(BIN)/python -m coverage combine --quiet && $(BIN)/python -m coverage report && exit $$tests

test-unit test-property test-integration test-conformance: test-%: setup
	@$(if $(filter integration,$*),$(BIN)/python -m tests.testbed setup --parts prometheus,alertmanager,grafana-schema)
	@$(PYTEST) tests/$*

test-dashboards: setup ## Run every panel's query on 30 days of 10,000 generated clients: each within 200 ms, also while loads arrive (half an hour, 10 GB of disk)
	@DASHBOARDS_AT_FULL_SIZE=1 $(PYTEST) tests/integration/rollup/test_dashboards.py

test-helm: $(STAMP) ## Try the Helm chart: lint, helm-unittest, Kubernetes' schemas, pod security, wrong values
	@$(BIN)/python -m tests.testbed setup --parts helm
	@$(PYTEST) tests/helm

test-kubernetes: $(STAMP) ## Install the Helm chart's features into a real API server, and run it in pods of a real node, as root (built once: half an hour of CPU)
	@$(BIN)/python -m tests.testbed setup --parts kubernetes
	@$(BIN)/python -m tests.testbed setup --parts node,prometheus --optional
	@$(BIN)/python -m tests.testbed setup --parts network-policies --optional
	@$(PYTEST) tests/kubernetes

test-examples: setup ## Run every example whole, with real parts in the place of containers and pods (some minutes)
	@$(BIN)/python -m tests.testbed setup --parts examples,prometheus,helm
	@ALL_EXAMPLES=1 $(PYTEST) tests/examples

MARKDOWN := README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md docs

lint: $(STAMP) ## Lint, formatting, types, import layers, spelling, Markdown
	@echo "==> [lint] ruff, mypy, import-linter, codespell, mdformat"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m tests.project.source
	@$(BIN)/lint-imports --no-logo --cache-dir $(CACHE)/import-linter
	@$(BIN)/codespell
	@$(BIN)/mdformat --check $(MARKDOWN)

bench: setup ## Measure pass-through, pushes, memory and the roll-up beside HAProxy and a real broker (about an hour)
	@$(BIN)/python -m tests.testbed setup --parts haproxy
	@$(BIN)/python -m benchmarks

soak: setup ## Kill collectors and the sidecar at random under load and count what is lost: MINUTES=10, SEED
	@$(BIN)/python -m tests.soak --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED))

soak-processes: setup ## Kill core and relays under the traffic of real clients: MINUTES=10, RATE=1000
	@$(BIN)/python -m tests.soak.processes --minutes $(or $(MINUTES),10) --rate $(or $(RATE),1000)

attack: $(STAMP) ## Attack a receiver beside an innocent client, and HAProxy as the baseline: ATTACKS=a,b, SECONDS=5 (some minutes)
	@$(BIN)/python -m tests.testbed setup --parts haproxy
	@$(BIN)/python -m tests.attacks --seconds $(or $(SECONDS),5) $(if $(ATTACKS),--attacks $(ATTACKS))

fuzz: $(STAMP) ## Mutate inputs of everything that reads bytes: INPUTS=1000000 (some minutes), SEED, TARGETS=a,b, PROCESSES=2
	@$(if $(TARGETS),,$(BIN)/python -m spark_streaming.jars)
	@$(if $(TARGETS),,DECODER_FUZZ_INPUTS=$$(( $(or $(INPUTS),1000000) / 50 )) DECODER_FUZZ_SEED="$(SEED)" \
		$(PYTEST) -o timeout=0 tests/unit/spark_streaming/test_decoder.py -k broken_bytes)
	@$(BIN)/python -m tests.fuzz --inputs $(or $(INPUTS),1000000) --processes $(or $(PROCESSES),2) \
		$(if $(SEED),--seed $(SEED)) $(if $(TARGETS),--targets $(TARGETS))

fuzz-differential: $(STAMP) ## Send generated requests to a real broker directly and through the gateway, and compare: ROUNDS=2000, SEED, ROUND, PROCESSES=1
	@$(BIN)/python -m tests.testbed setup --parts broker
	@$(BIN)/python -m tests.fuzz.differential --processes $(or $(PROCESSES),1) $(if $(ROUNDS),--rounds $(ROUNDS)) \
		$(if $(SEED),--seed $(SEED)) $(if $(ROUND),--round $(ROUND))

fuzz-pipeline: setup ## Take hostile and good pushes through core, spool and roll-up: PUSHES=10000000 (hours), SEED, FOLDER (a run goes on in it), ARGUMENTS
	@$(BIN)/python -m tests.fuzz.pipeline $(if $(PUSHES),--pushes $(PUSHES)) $(if $(SEED),--seed $(SEED)) \
		$(if $(FOLDER),--folder $(FOLDER)) $(ARGUMENTS)

mutation: $(STAMP) ## Change the pure core at random and list what no unit test notices: PACKAGES=wire,telemetry,session, FILES=/limits, TESTS=folder, MUTANTS=400, SEED
	@$(BIN)/python -m tests.mutation $(if $(PACKAGES),--packages $(PACKAGES)) $(if $(FILES),--files $(FILES)) \
		$(if $(TESTS),--tests $(TESTS)) $(if $(MUTANTS),--mutants $(MUTANTS)) $(if $(SEED),--seed $(SEED))

test-soak: ## Two short soaks
	@$(MAKE) --no-print-directory soak soak-processes MINUTES=2

test-stalls: $(STAMP) ## The tests of `make test`, while their processes stand still at random: SEED (some ten minutes)
	@$(BIN)/python -m tests.stalls $(if $(SEED),--seed $(SEED))

test-clock: $(STAMP) ## The roll-up's tests of `make test`, by a clock that starts at some time of the day and goes fast: START=23:58 (some ten minutes)
	@$(BIN)/python -m tests.clock $(if $(START),--start $(START))

test-fuzz: ## A long run of the fuzzer
	@$(MAKE) --no-print-directory fuzz INPUTS=1000000

test-fuzz-differential: ## A run of the differential fuzzer
	@$(MAKE) --no-print-directory fuzz-differential ROUNDS=10000

test-fuzz-pipeline: ## A short run of the pipeline's fuzzer
	@$(MAKE) --no-print-directory fuzz-pipeline PUSHES=100000

audit: $(STAMP) ## Check the locks for hashes, and what is locked for known vulnerabilities where a database can be reached
	@$(BIN)/python -m tests.audit

docs: $(STAMP) ## Write the generated dashboards, alerts, chart values table and schema, console types anew
	@$(BIN)/python -m deploy.dashboards
	@$(BIN)/python -m deploy.chart
	@$(BIN)/python -m deploy.console

site: $(STAMP) ## Build the docs site into build/site, strictly: warnings and broken links are errors
	@$(BIN)/python -m deploy.site

changelog: $(STAMP) ## Print the changelog of the next release from the fragments in docs/changes
	@$(BIN)/towncrier build --draft --version $(VERSION)

pictures: setup ## Draw the console and the dashboards into docs/images, with Grafana's components, of a made-up fleet or of POSTGRES=postgresql://... (PROMETHEUS=http://...)
	@CONSOLE_PICTURES=$(CURDIR)/docs/images $(BIN)/python -m pytest -q tests/console -k culprit
	@$(BIN)/python -m tests.testbed setup --parts grafana-ui
	@$(BIN)/python -m tests.dashboards$(if $(POSTGRES),.draw --postgres "$(POSTGRES)") $(if $(PROMETHEUS),--prometheus "$(PROMETHEUS)") --out docs/images

bridge: $(STAMP) ## Build the plugin for brokers: plugins/broker_bridge/build/kafka-telemetry-bridge.jar
	@$(BIN)/python -m deploy.broker_bridge

ENGINE ?= docker
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

dist: $(STAMP) ## Build the wheel and the sdist into dist/
	@$(BIN)/python -m hatchling build --directory dist

images: ## Build the images of receiver, roll-up, bridge and test kit with ENGINE=docker; without one, as OCI archives in dist/images (root, debootstrap)
	@if command -v $(ENGINE) >/dev/null && $(ENGINE) info >/dev/null 2>&1; then \
		for name in receiver rollup bridge testkit; do $(ENGINE) build --file deploy/images/$$name/Dockerfile \
			--build-arg VERSION=$(VERSION) --build-arg REVISION=$$(git rev-parse HEAD) \
			--build-arg RECEIVER=ghcr.io/kafka-client-telemetry/receiver:$(VERSION) \
			--tag ghcr.io/kafka-client-telemetry/$$name:$(VERSION) . || exit 1; done; \
	else \
		echo "images: $(ENGINE) does not answer; building OCI archives without an engine"; \
		$(MAKE) --no-print-directory image-archives; \
	fi

image-archives: $(STAMP) ## Build the images as OCI archives in dist/images, without an engine and a daemon (root, debootstrap)
	@$(BIN)/python -m tests.images dist/images

test-images: setup ## Build the images' root folders without an engine and run them: as root, with debootstrap; 10 minutes, 10 GB of disk
	@command -v debootstrap >/dev/null || { echo "debootstrap is missing (Debian: apt-get install debootstrap)"; exit 1; }
	@$(PYTEST) tests/images/test_files.py tests/images/built.py

clean: ## Remove what was built in this folder (the cache folder stays)
	rm -rf $(VENV) dist $(COVERAGE_DATA) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

LOCK := $(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header --universal --python-version 3.11
IMAGE_LOCK := $(LOCK) --no-annotate --constraint requirements.lock

lock: ## Lock the dependencies of pyproject.toml anew, with hashes: all, for development, and those of each image
	@$(LOCK) --all-extras pyproject.toml --output-file requirements.lock
	@$(LOCK) --all-extras pyproject.toml --group dev --output-file requirements-dev.lock
	@$(IMAGE_LOCK) pyproject.toml --extra kafka-topic --extra spool-files --output-file deploy/images/receiver/requirements.lock
	@$(IMAGE_LOCK) pyproject.toml --extra rollup --output-file deploy/images/rollup/requirements.lock
	@$(LOCK) --no-annotate deploy/images/build.in --output-file deploy/images/build.lock
	@$(MAKE) --no-print-directory lock-jars

lock-jars: $(STAMP) ## Lock the jars of spark_streaming/decoder/pom.xml anew, for the pyspark that is locked; part of `make lock`
	@$(BIN)/python -m spark_streaming.jars --lock
