# `make help` lists the targets. Everything a target needs is set up by the target.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: test-long run-env dev-env help run test check unit e2e cluster controlplane bench manifests manifests-check lock clean security sbom prometheus

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CODE := quota_translator tests e2e bench docs
# Modules are compiled when they are first imported; to compile all of them here costs ten seconds.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile \
  --only-binary :all: --require-hashes

# Quiet, and soon over where there is no network.
APT := DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=1 -o Acquire::http::Timeout=15 \
  -o DPkg::Lock::Timeout=60
APT_PROMETHEUS := -y --no-install-recommends prometheus

# Compiled modules are kept, whatever the environment says: tests start the program hundreds of times.
export PYTHONPYCACHEPREFIX := $(CURDIR)/build/pycache
unexport PYTHONDONTWRITEBYTECODE

E2E := $(BIN)/python -m pytest e2e -q

# Prints what a step took: $(call step,name,command)
define step
	@start=$$(date +%s); echo "==> $(1)"; { $(2); } || exit 1; echo "    $(1): $$(( $$(date +%s) - start )) s"
endef

# The command itself, without the build tools that an installation of the package would need.
define launcher
site=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
echo "$(CURDIR)" > "$$site/quota-translator.pth"; \
printf '#!/bin/sh\nexec "%s" -P -m quota_translator "$$@"\n' "$(CURDIR)/$(BIN)/python" > $(BIN)/quota-translator; \
chmod +x $(BIN)/quota-translator
endef

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | awk -F'\t' '{printf "  make %-16s %s\n", $$1, $$2}'

run: run-env ## the main job, no cluster: check the guide's tree and write its Kueue objects
	@$(BIN)/python -m quota_translator run --local examples/guide --output out/guide --once

test: check unit e2e ## everything: lint, types, layers, unit tests, the real control plane
	@echo "==> all tests passed"

check: dev-env manifests-check security ## lint, format, types, layers, known vulnerabilities
	$(call step,ruff: lint and format,$(BIN)/ruff check $(CODE) && $(BIN)/ruff format --check $(CODE))
	$(call step,mypy: types,$(BIN)/mypy)
	$(call step,import-linter: layers,$(BIN)/lint-imports)

security: dev-env ## bandit on the code, pip-audit on what it needs at run time
	$(call step,bandit: dangerous constructs,$(BIN)/bandit -q -r quota_translator -c pyproject.toml)
	$(call step,pip-audit: known vulnerabilities,$(BIN)/python -m tests.advisories)

sbom: dev-env ## write out/sbom.json: what the program needs at run time (CycloneDX)
	@mkdir -p out
	@$(BIN)/python -W ignore -m cyclonedx_py requirements --output-reproducible --pyproject pyproject.toml \
	  --spec-version 1.6 -o out/sbom.json requirements/run.txt
	@echo "==> out/sbom.json"

unit: dev-env prometheus ## unit and property tests, with the coverage gate on core/
	$(call step,unit tests,$(BIN)/python -m pytest tests -n 2 --cov --cov-report= --durations=10 -q)
	$(call step,coverage of core/,$(BIN)/python -m tests.coverage_gate)

test-long: dev-env ## what takes longer: 10,000 steps of the state machine
	$(call step,10000 steps,MACHINE_STEPS=10000 $(BIN)/python -m pytest tests/machine -q)

# They wait for real clocks beside a whole control plane, so what fails on a busy machine is run once
# more, alone. What fails twice has failed; what needed it is seen in the output.
e2e: dev-env controlplane prometheus ## end-to-end tests on a real API server and a real Kueue
	$(call step,end-to-end tests,$(E2E) -n 2 --dist loadfile --no-loadscope-reorder --durations=30 \
	  || { echo "==> once more and alone: what failed"; $(E2E) --last-failed --last-failed-no-failures none; })

# Two tests need it; without it they are skipped, and say so.
prometheus: ## install Debian's prometheus package, where this is root and it is missing
	@if command -v promtool >/dev/null && command -v prometheus >/dev/null; then echo "==> prometheus: found, skipped"; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	    && { $(APT) install $(APT_PROMETHEUS) || { $(APT) update && $(APT) install $(APT_PROMETHEUS); }; } \
	      >/dev/null 2>&1 </dev/null; then \
	  service prometheus stop >/dev/null 2>&1 || true; \
	  echo "==> prometheus: installed; its own daemon does not run"; \
	else echo "==> prometheus: not found and not to be installed: two tests will be skipped"; fi

controlplane: dev-env ## build etcd, kube-apiserver, Kueue and the rest, unless they are cached
	$(call step,control plane,$(BIN)/python -m e2e.controlplane build)

cluster: controlplane ## start a real control plane for yourself, until Ctrl-C
	@$(BIN)/python -m e2e.controlplane up

bench: dev-env ## measure speed and memory; prints a table and writes bench/results
	@$(BIN)/python -m bench

manifests: dev-env ## generate the CRD, docs/api.md, docs/options.md and the chart's values
	@$(BIN)/python -m docs.generate

manifests-check: dev-env ## fail when a generated file differs from the models
	@$(BIN)/python -m docs.generate --check

lock: dev-env ## write the lock files again from pyproject.toml
	@for kind in run dev; do \
	  echo "==> requirements/$$kind.txt"; \
	  extra=$$([ $$kind = dev ] && echo "--extra dev" || true); \
	  $(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-header \
	    --no-emit-index-url --no-emit-trusted-host $$extra -o requirements/$$kind.txt pyproject.toml; \
	done

clean: ## remove what the targets made here (not the cached binaries)
	rm -rf $(VENV) out build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage*

# The environment, or a line that says it is there already.
run-env dev-env: %-env:
	@if $(MAKE) --question $(VENV)/$*.stamp 2>/dev/null; then \
	  echo "==> packages of requirements/$*.txt: installed already, skipped"; \
	else $(MAKE) --no-print-directory $(VENV)/$*.stamp; fi

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or later is needed, not %s; set PYTHON=python3.11" % sys.version.split()[0])'
	@echo "==> environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/run.stamp: requirements/run.txt | $(VENV)/bin/python
	$(call step,packages of requirements/run.txt,$(PIP) -r requirements/run.txt)
	@$(launcher)
	@touch $@

$(VENV)/dev.stamp: requirements/dev.txt pyproject.toml | $(VENV)/bin/python
	$(call step,packages of requirements/dev.txt,$(PIP) -r requirements/dev.txt && $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .)
	@touch $@ $(VENV)/run.stamp
