# One door for people and CI. Bare `make` prints the targets.
# Variables: PYTHON (the interpreter that creates .venv), VENV, CI=true (what cannot run becomes a failure).

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CODE := scheduler plugins e2e supply tests conftest.py

.DEFAULT_GOAL := help
.PHONY: help install demo demo-dashboard browser pictures test test-fast lint format types walls unit e2e controlplane oracle conformity conformity-schedule mutants race bench bench-micro bench-explain bench-guard bench-large fuzz chaos chaos-mutants failovers soak sbom vulnerabilities wheel lock clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

install: $(VENV)/installed ## create .venv from requirements.lock and install dra-scheduler into it

# The stamp is newer than the lock file and pyproject.toml exactly when the environment matches them.
$(VENV)/installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo 'Python 3.11 or newer is needed; set PYTHON=' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --quiet --no-deps --no-build-isolation --editable .
	@# As pip does for a wheel: else every start compiles all modules where PYTHONDONTWRITEBYTECODE is set (0.5 s).
	$(BIN)/python -m compileall -q scheduler plugins
	@touch $@

demo: install ## run the scheduler on a small made-up GPU cluster, no cluster needed
	$(BIN)/dra-scheduler demo

demo-dashboard: install ## the same, left running with its dashboard for a browser
	$(BIN)/dra-scheduler demo --dashboard

test: lint types walls unit e2e ## everything: lint, types, walls, unit and embedded-server tests, real control plane

test-fast: lint types walls ## the same without slow tests and without the control plane
	$(BIN)/pytest tests -m "not slow and not e2e" --numprocesses=auto --dist=worksteal

lint: install ## ruff: rules
	$(BIN)/ruff check $(CODE)

format: install ## ruff: rewrite what it can
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

types: install ## mypy --strict
	$(BIN)/mypy

walls: install ## import-linter: who may import whom
	$(BIN)/lint-imports --no-cache

unit: install ## unit tests and tests on the embedded API server
	$(BIN)/pytest tests

# Go builds the control plane; KUBEBUILDER_ASSETS names a folder of ready binaries instead.
# Without both, the suites are skipped in plain sight, and fail under CI=true.
e2e: install browser ## suites on a real Kubernetes control plane
	@if [ -n "$$KUBEBUILDER_ASSETS" ] || command -v go >/dev/null 2>&1; then \
	  $(MAKE) --no-print-directory controlplane && $(BIN)/pytest e2e/suites; \
	elif [ "$$CI" = true ]; then \
	  echo 'FAILED: CI=true, but neither Go nor KUBEBUILDER_ASSETS is there: the real control plane cannot run' >&2; exit 1; \
	else \
	  echo '*** SKIPPED: the suites on the real control plane need Go or KUBEBUILDER_ASSETS ***'; \
	fi

# Debian's Chromium, as root with apt-get; elsewhere install one by hand, or name one in CHROMIUM. Without it the
# browser's tests are skipped in plain sight, and fail under CI=true.
browser: ## find Chromium for the dashboard's tests and pictures; CI=true: install it (Debian, 20 s)
	@if [ -n "$$CHROMIUM" ] || command -v chromium >/dev/null || command -v chromium-browser >/dev/null \
	    || command -v google-chrome >/dev/null; then exit 0; fi; \
	if [ "$$CI" = true ] && command -v apt-get >/dev/null; then \
	  apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends chromium fonts-dejavu-core; \
	else \
	  echo '*** no Chromium: the dashboard is not tested in a browser (apt-get install chromium) ***'; \
	fi

pictures: install ## make the pictures of docs/pictures again (needs Chromium)
	$(BIN)/python -m e2e.pictures docs/pictures

controlplane: install ## build etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl (11 min cold)
	$(BIN)/python e2e/controlplane/build.py

oracle: install ## the same plus the Go program that gives upstream's answers
	$(BIN)/python e2e/controlplane/build.py --oracle

# N: random allocator cases, CEL: random expressions, SEED: repeat a run, SAVE: a file that found cases are added to.
N ?= 3000
CEL ?= 5000
conformity: install ## our allocator and CEL against upstream's code: make conformity N=20000 [SEED=, SAVE=]
	$(BIN)/python -m e2e.conformity.run --allocate $(N) --cel $(CEL) $(if $(SEED),--seed $(SEED)) $(if $(SAVE),--save $(SAVE))

SCHEDULE ?= $(if $(filter command line environment,$(origin N)),$(N),1500)
conformity-schedule: install ## whole attempts against kube-scheduler's framework: make conformity-schedule N=5000 [SEED=, SAVE=]
	$(BIN)/python -m e2e.conformity.schedule_run --cases $(SCHEDULE) $(if $(SEED),--seed $(SEED)) $(if $(SAVE),--save $(SAVE))

mutants: install ## seeded faults in our rules, each must be noticed by one conformity run of the CI size (10 min)
	$(BIN)/python -m e2e.conformity.mutants $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m e2e.conformity.schedule_mutants $(if $(SEED),--seed $(SEED))

bench: install controlplane ## both schedulers side by side on the real control plane: make bench [ARGS='plain device --rounds 1']
	$(BIN)/python -m e2e.bench $(ARGS)

# ROUNDS, PODS for each of the two schedulers, DEVICES for both; GUARD= runs it without the guard.
GUARD ?= --guard
race: install controlplane ## kube-scheduler and we on the same devices, with the guard or (GUARD=) without: make race [PODS= DEVICES= ROUNDS=]
	$(BIN)/python -m e2e.race $(GUARD) --pods $(or $(PODS),1000) --devices $(or $(DEVICES),1200) --rounds $(or $(ROUNDS),5)

bench-micro: install ## CPU of single steps at 100 to 15,000 nodes, with pytest-benchmark: make bench-micro [ARGS='-k decide']
	$(BIN)/pytest e2e/bench/test_micro.py --timeout 1800 --benchmark-timer=time.thread_time \
	  --benchmark-columns=min,median,iqr,max,rounds --benchmark-sort=fullname --benchmark-disable-gc $(ARGS)

bench-explain: install controlplane ## how long an explanation takes, and what ten a second cost the Pods that are being scheduled
	$(BIN)/python -m e2e.bench.explaining $(ARGS)

bench-guard: install controlplane ## what the guard adds to an allocation, p50 and p99, and how many it answers per second
	$(BIN)/python -m e2e.bench.guard

bench-large: install controlplane ## the same for 5,000 nodes: 10,000 Pods, 8 devices a node, restart with 10,000 Pods: make bench-large [ARGS=]
	$(BIN)/python -m e2e.bench --large $(ARGS)

# RUNS: mutants per kind, and a multiple of it as inputs per parser; equal seeds repeat a run.
FUZZ_RUNS = $(if $(filter command line environment,$(origin RUNS)),$(RUNS),10000)
fuzz: install ## hostile input: mutated objects of every kind, coverage-guided fuzzing of every parser: make fuzz RUNS=10000 [SEED=1]
	$(BIN)/python -m e2e.fuzz --runs $(FUZZ_RUNS) --seed $(if $(SEED),$(SEED),1)

# RUNS, SEED of the first run, SECONDS of faults per run; MINUTES of the soak.
RUNS ?= 10
SECONDS ?= 8
chaos: install controlplane ## random faults before the real API server, judged by the history: make chaos RUNS=100 [SEED=1]
	$(BIN)/python -m e2e.chaos --runs $(RUNS) --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

chaos-mutants: install controlplane ## faults put into the scheduler on purpose, chaos must find each (10 min)
	$(BIN)/python -m e2e.chaos.mutants $(if $(SEED),--seed $(SEED))

TAKEOVERS ?= 20
failovers: install controlplane ## leaders killed, cut off, frozen: longest and median takeover, writes of ex-leaders: make failovers [TAKEOVERS=20]
	$(BIN)/python -m e2e.failovers --takeovers $(TAKEOVERS)

MINUTES ?= 60
soak: install controlplane ## churn of 20 Pods/s: memory, handles, tasks, queue, latency stay flat: make soak MINUTES=60
	$(BIN)/python -m e2e.soak --minutes $(MINUTES)

sbom: install ## what the image holds: CycloneDX bill of materials and licence list, into dist
	$(BIN)/python -m supply.sbom

# Exit code 3: the check could not run, which is no success. DB: a folder, zip or file of OSV records, for no network.
vulnerabilities: install ## known vulnerabilities of what the lock files pin: make vulnerabilities [DB=osv.zip]
	$(BIN)/python -m supply.vulnerabilities $(if $(DB),--database $(DB))

wheel: install ## build the wheel into dist/
	$(BIN)/python -m build --wheel --no-isolation --outdir dist

# The locks must name the public index's files only, so local package folders are switched off.
PIP_COMPILE = PIP_FIND_LINKS= CUSTOM_COMPILE_COMMAND='make lock' $(VENV)/lock/bin/pip-compile --quiet --generate-hashes \
  --strip-extras --allow-unsafe --no-emit-index-url --no-emit-trusted-host --no-emit-find-links

ATHERIS_MARKER = sys_platform == 'linux' and platform_machine == 'x86_64' and python_version < '3.14'
lock: install ## pin the dependencies of pyproject.toml again (two files); UPGRADE=--upgrade takes newer ones
	$(PYTHON) -m venv $(VENV)/lock
	$(VENV)/lock/bin/python -m pip install --quiet pip-tools
	$(PIP_COMPILE) $(UPGRADE) --extra dev -o requirements.lock pyproject.toml
	@# pip-compile drops the markers of an extra's packages: atheris has wheels for one platform only.
	sed -i "s/^\(atheris==[^ ;]*\) /\1 ; $(ATHERIS_MARKER) /" requirements.lock
	$(PIP_COMPILE) -c requirements.lock -o requirements-runtime.lock pyproject.toml
	rm -rf $(VENV)/lock

clean: ## remove .venv, build results and caches of this tree
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find scheduler plugins -name __pycache__ -prune -exec rm -r {} +
