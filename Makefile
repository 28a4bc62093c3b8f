# Every target does its own set-up in $(VENV); a second call finds it done.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --no-compile -c constraints.txt
# What every command imports; pip would compile all packages, one after the other. Some files of
# these packages are templates that no Python can compile.
COMPILED := torch torchvision timm sympy numpy pandas pyarrow scipy sklearn safetensors accelerate \
	huggingface_hub pydantic typer click rich jinja2 plotly PIL matplotlib openvino
COMPILE = cd $$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
	&& { $(abspath $(BIN))/python -m compileall -qq -j 0 $(COMPILED) || true; }
RUNTIME := $(VENV)/.runtime-ready
READY := $(VENV)/.dev-ready
BROWSER := $(VENV)/.browser-tried
JOBS ?= auto
ARGS ?=
SECONDS ?= 300
KILLS ?= 50
RUNS ?= 200
FLIPS ?= 500
CALLS ?= 1000
WORKERS ?= 1
SEED ?= 0
.DEFAULT_GOAL := help
.PHONY: help docs setup demo test lint format unit coverage browser faults fuzz soak mutation audit clean long

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(RUNTIME) ## rank, debias and compare on the built-in data set (a few minutes, CPU is enough)
	$(BIN)/sebra demo $(ARGS)

# mypy takes one core for most of a minute; side by side with the tests it costs half of that.
test: $(BROWSER) ## everything CI checks: ruff, mypy --strict, the order of the rooms, pytest
	$(MAKE) --no-print-directory -j 2 lint unit

lint: $(READY) ## ruff (rules and format), mypy --strict and the order of the rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=src $(BIN)/lint-imports

unit: $(READY) ## pytest alone; choose tests with ARGS="tests/ranking -k toy"
	$(BIN)/python -m pytest -n $(JOBS) --maxprocesses 8 --dist loadfile $(ARGS)

long: $(READY) ## the tests that take minutes: the tutorial's commands, bounded memory over large files
	SEBRA_LONG=1 $(BIN)/python -m pytest -m long $(ARGS)

coverage: $(READY) ## pytest with line and branch coverage
	$(BIN)/python -m pytest -n $(JOBS) --maxprocesses 8 --dist loadfile --cov --cov-report=term-missing:skip-covered $(ARGS)

faults: $(READY) ## make every fault, slow ones too, and write docs/faults.md
	PYTHONPATH=src:tests $(BIN)/python -m faults.table

fuzz: $(READY) ## damaged files to every reader for SECONDS=300, FLIPS=500 flipped bits, CALLS=1000 generated calls
	PYTHONPATH=src:tests $(BIN)/python -m fuzz.loop --seconds $(SECONDS)
	PYTHONPATH=src:tests $(BIN)/python -m fuzz.flips --flips $(FLIPS) --seed $(SEED)
	PYTHONPATH=src:tests $(BIN)/python -m fuzz.calls --calls $(CALLS) --seed $(SEED) --workers $(WORKERS)

soak: $(READY) ## KILLS=50 random kills with resumption, several processes at once, then RUNS=200 runs
	PYTHONPATH=src:tests $(BIN)/python -m soak.kills --kills $(KILLS)
	PYTHONPATH=src:tests $(BIN)/python -m soak.together --rounds 10
	PYTHONPATH=src:tests $(BIN)/python -m soak.growth --runs $(RUNS)

mutation: $(READY) ## change the core formulas one operator at a time; the tests must notice 85 %
	rm -rf build/mutation && mkdir -p build/mutation && cp -r src tests pyproject.toml build/mutation
	cd build/mutation && PYTHONPATH=tests PYTEST_ADDOPTS="-p mutation.nodeid" $(abspath $(BIN))/mutmut run
	cd build/mutation && $(abspath $(BIN))/mutmut results
	cd build/mutation && $(abspath $(BIN))/mutmut export-cicd-stats
	$(BIN)/python tools/mutation_score.py build/mutation/mutants/mutmut-cicd-stats.json

audit: $(READY) ## known vulnerabilities of what is installed, and a bill of materials
	$(BIN)/python tools/audit.py

docs: $(READY) ## the documentation site in build/site; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

format: $(READY) ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

setup: $(READY) ## the development environment in .venv, all extras and the pre-commit hook's tools

browser: ## install Chromium for the tests of HTML pages (Debian, as root)
	tools/install-browser

clean: ## remove caches and builds; the environment stays
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage .coverage.*
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# The runtime alone is all the demo needs, and the quicker install.
$(RUNTIME): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
		|| { echo "Sebra needs Python 3.10 or newer; name one with: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) -e '.[cpu]'
	@$(COMPILE)
	@touch $@

$(READY): $(RUNTIME)
	$(PIP_INSTALL) -e '.[cpu,text,hub,export,track,tools,checks,clip,docs,dev]'
	@touch $@

# Tried once: without a browser the page tests are skipped, not failed.
$(BROWSER): tools/install-browser $(READY)
	tools/install-browser
	@touch $@
