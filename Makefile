# Every task is a make target; `make help` lists them. They need Python and a C++17 compiler.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMPS := $(VENV)/stamps
BENCH  := .venv-bench
MARIO  := .venv-mario
JAX    := .venv-jax
LIBRARIES := .venv-libraries
RELEASE := .venv-release
DOCS   := .venv-docs
NOTEBOOK := .venv-notebook
# The editable install lists modules by name, so adding, moving or removing one reinstalls the package.
NAMES  := $(shell find src -name '*.py' | LC_ALL=C sort | cksum | cut -d' ' -f1)
NATIVE := CMakeLists.txt pyproject.toml $(shell find src/framestow/_core -name '*.cpp' -o -name '*.hpp' 2>/dev/null)
# --no-compile: Python compiles a module on its first import; pip would compile three times as many.
PIP    := PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile
CPP    := $(shell find src native_tests -name '*.cpp' -o -name '*.hpp')

GAME   ?= Breakout
ARGS   ?=
SECONDS ?= 3
TRANSITIONS ?= 10_000
UPDATES ?= 50
WHAT   ?= tests/core tests/frames tests/storage tests/replay
FILE   ?=

# Tests wait for processes and timeouts, so two cores take three workers. Each worker imports all libraries, for 5 s.
WORKERS = $(shell $(PYTHON) -c 'import os; print(min(os.cpu_count() * 3 // 2 or 1, 16))')
# Runs two targets in parallel; make groups the output of each, if it can.
BESIDE  = --no-print-directory --jobs=2 $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

# If this variable is set, Python saves no bytecode, and each of a thousand test processes compiles its imports again.
export PYTHONDONTWRITEBYTECODE =

.PHONY: help prerequisites install train test quick prepared check native-tests harnesses frame_sequences collected \
        exhaustive crashes sanitize kills distributed fuzz corpus golden browser bench mario jax libraries public-suites docs notebook wheel release-check clean

help:           ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

# Only orders: nothing is made anew for it.
prerequisites:
	@.ci/prerequisites $(PYTHON)

$(STAMPS)/venv: | prerequisites
	$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

# The build tools are installed in .venv, so a rebuild takes seconds and uses the pinned versions.
$(STAMPS)/build-tools: constraints.txt | $(STAMPS)/venv
	@echo "installing build tools"
	$(PIP) scikit-build-core nanobind cmake ninja
	@touch $@

$(STAMPS)/train-$(NAMES): $(NATIVE) constraints.txt $(STAMPS)/build-tools
	@echo "building framestow and installing the packages for training (PyTorch takes a few minutes the first time)"
	$(PIP) --no-build-isolation -e '.[train,bench]'
	@touch $@

$(STAMPS)/test-$(NAMES): $(NATIVE) constraints.txt $(STAMPS)/build-tools
	@echo "building framestow with warnings as errors and installing the packages for the tests"
	$(PIP) --no-build-isolation -C cmake.define.FRAMESTOW_WERROR=ON -e '.[test]'
	@touch $@

install: $(STAMPS)/train-$(NAMES)  ## create .venv with framestow and the packages for training

train: $(STAMPS)/train-$(NAMES)  ## train DQN on Breakout; GAME=Pong ARGS='--steps 100_000' selects another game and options
	$(BIN)/framestow train $(GAME) $(ARGS)

test: $(STAMPS)/build-tools  ## lint, types, native tests, a little fuzzing and all tests
	@$(MAKE) $(BESIDE) check native-tests harnesses frame_sequences collected
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not exhaustive"

prepared: $(STAMPS)/test-$(NAMES)  # .venv with the packages for the tests

check: $(STAMPS)/test-$(NAMES)  ## lint, import contracts, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(CPP)
	$(BIN)/lint-imports
	$(BIN)/mypy

quick: $(STAMPS)/test-$(NAMES)  ## lint, and the quick tests of core, frames, storage, replay; of FILE=src/..., or WHAT=tests/envs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
ifeq ($(FILE),)
	QUICK=yes $(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not slow" $(WHAT)
else
	tests=$$($(BIN)/python tests/find_tests.py $(FILE)) && \
		QUICK=yes $(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not slow" $$tests
endif

exhaustive: sanitize  ## make sanitize, every game, every failure under every way to start a process, ten times the examples
	@mkdir -p build
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "hypothesis and not exhaustive" --hypothesis-profile=thorough
	$(BIN)/python -m pytest -n 2 --dist worksteal -m exhaustive --junitxml=build/exhaustive.xml \
		--ignore tests/storage/files --ignore tests/replay/store/crashes \
		--ignore tests/integrations/libraries  # make crashes and make libraries run those
	$(BIN)/python tests/write_exhaustive_result.py build/exhaustive.xml tests/exhaustive.json

kills: $(STAMPS)/test-$(NAMES)  ## kill a training run 200 times, resume it and compare the results: 10 minutes
	PYTHONPATH=tests $(BIN)/python tests/training/kills/kill_training.py

crashes: $(STAMPS)/test-$(NAMES)  ## test stores against kills, power loss, full disks, Ctrl-C and damaged bytes at every operation: 14 minutes
	@mkdir -p build
	$(BIN)/python -m pytest -n 2 --dist worksteal -m exhaustive tests/storage/files tests/replay/store/crashes \
		-o junit_family=xunit1 --junitxml=build/crashes.xml  # this JUnit format has properties
	$(BIN)/python tests/write_crash_figures.py build/crashes.xml tests/crashes.json

# Ray takes 240 MB, and a cluster in every test run would take a minute.
$(STAMPS)/ray-$(NAMES): $(STAMPS)/test-$(NAMES)
	$(PIP) ray
	@touch $@

distributed: $(STAMPS)/ray-$(NAMES)  ## train on a local Ray cluster as a user does; kill actors, shards, nodes, learners, 20 times each
	PYTHONPATH=tests $(BIN)/python tests/distributed/cluster/train_command.py
	PYTHONPATH=tests $(BIN)/python tests/distributed/cluster/band.py
	PYTHONPATH=tests $(BIN)/python tests/distributed/cluster/kill_actors.py $(ARGS)

# Chromium and its driver are packages of Debian: 100 MB, too much for every test run.
browser: $(STAMPS)/test-$(NAMES)  ## click through the pages of framestow view in Chromium and compare their pixels: 1 minute; apt-get install chromium chromium-driver
	@command -v chromium chromedriver > /dev/null || { echo "make browser needs: apt-get install chromium chromium-driver"; exit 1; }
	@mkdir -p build
	PYTHONPATH=tests $(BIN)/python -m pytest -q tests/browser/pages_in_chromium.py --junitxml=build/browser.xml
	PYTHONPATH=tests $(BIN)/python tests/browser/write_browser_result.py build/browser.xml tests/browser.json

golden: $(STAMPS)/test-$(NAMES)  ## rewrite the golden files after a deliberate format change
	$(BIN)/python tests/golden/write_golden.py

sanitize: $(STAMPS)/test-$(NAMES)  ## run the native tests and the tests of packing and replay with sanitizers: 4 minutes
	native_tests/run.sh --all
	native_tests/sanitized_module.sh

native-tests: $(STAMPS)/build-tools
	native_tests/run.sh

fuzz: $(STAMPS)/build-tools frame_sequences  ## run the fuzz corpus, then new random inputs; SECONDS=600 sets how long
	native_tests/fuzz/run.sh $(SECONDS)

# Without libFuzzer, which needs the core compiled a second time.
harnesses: native-tests
	DRIVER=standalone native_tests/fuzz/run.sh $(SECONDS)

frame_sequences: $(STAMPS)/test-$(NAMES)
	EXAMPLES=$$((20 * $(SECONDS))) $(BIN)/python -m pytest -q -n 2 --hypothesis-profile=search \
		tests/core/test_random_frame_sequences.py

# On a core that is idle while mypy runs, Python compiles the tests and their imports, which else each worker would do.
collected: frame_sequences
	-@$(BIN)/python -m pytest --collect-only --quiet -m "not exhaustive" > /dev/null

corpus: $(STAMPS)/build-tools  ## rebuild the fuzz corpus after a change of the packed format; SECONDS=600 sets how long
	native_tests/fuzz/run.sh --renew $(SECONDS)

# The compared libraries need other versions of their dependencies, so the benchmarks have their own environment.
$(BENCH)/ready: $(NATIVE) $(shell find src -name '*.py') benchmarks/requirements.txt | prerequisites
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip --disable-pip-version-check install --quiet -r benchmarks/requirements.txt '.[train,bench]'
	@touch $@

# Super Mario Bros needs NumPy 1, so it has its own environment.
$(MARIO)/ready: benchmarks/requirements-mario.txt $(NATIVE) $(shell find src -name '*.py') | prerequisites
	$(PYTHON) -m venv $(MARIO)
	$(MARIO)/bin/python -m pip --disable-pip-version-check install --quiet \
		-r benchmarks/requirements-mario.txt '.[atari]' 'psutil>=5.9'
	@touch $@

mario: $(MARIO)/ready  ## record Super Mario Bros in a Berkeley-style buffer and compare it with a plain one: 5 minutes
	@mkdir -p build
	$(MARIO)/bin/python benchmarks/super_mario.py
	$(MARIO)/bin/python examples/super_mario_bros.py --picture build/super_mario.png

bench: $(BENCH)/ready  ## measure every figure of docs/benchmarks.md, with the other libraries: 80 minutes
	$(BENCH)/bin/python benchmarks/packing.py
	$(BENCH)/bin/python benchmarks/million.py
	$(BENCH)/bin/python benchmarks/million.py --game UpNDown
	$(BENCH)/bin/python benchmarks/steps.py
	$(BENCH)/bin/python benchmarks/threads.py
	$(BENCH)/bin/python benchmarks/loading.py
	$(BENCH)/bin/python benchmarks/sampling.py
	$(BENCH)/bin/python benchmarks/sampling.py --batch-size 256 --threads 2
	$(BENCH)/bin/framestow bench Breakout --transitions 1_000_000 --out benchmarks/results/bench-breakout
	$(BENCH)/bin/python benchmarks/learners.py
	$(BENCH)/bin/python benchmarks/drop_ins.py
	$(BENCH)/bin/python benchmarks/drop_in_training.py
	$(BENCH)/bin/python benchmarks/training.py --busy
	$(BENCH)/bin/python benchmarks/environments.py
	$(BENCH)/bin/python benchmarks/vector_environments.py
	$(BENCH)/bin/python benchmarks/drop_in_vector_environments.py
	for question in saving flushing disk_reading retention viewing same_training; do \
		$(BENCH)/bin/python benchmarks/$$question.py || exit 1; done
	$(BENCH)/bin/python benchmarks/readme_picture.py
	$(BENCH)/bin/python benchmarks/figures.py --write

# JAX takes 600 MB with its dependencies, too much for every test run.
$(JAX)/ready: $(NATIVE) $(shell find src -name '*.py') constraints.txt | prerequisites
	$(PYTHON) -m venv $(JAX)
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(JAX)/bin/python -m pip --disable-pip-version-check install --quiet \
		'.[jax,atari]' pytest hypothesis
	@touch $@

jax: $(JAX)/ready  ## run the tests and the example of JAX in their own environment: 1 minute
	$(JAX)/bin/python -m pytest tests/tensors/test_jax.py tests/examples/test_jax_example.py src/framestow/jax.py

# Tianshou needs older versions of its dependencies, and takes 200 MB with Numba.
$(LIBRARIES)/ready: $(NATIVE) $(shell find src -name '*.py') tests/integrations/requirements.txt | prerequisites
	$(PYTHON) -m venv $(LIBRARIES)
	$(LIBRARIES)/bin/python -m pip --disable-pip-version-check install --quiet \
		-r tests/integrations/requirements.txt '.[atari]' psutil pytest hypothesis
	@touch $@

libraries: $(LIBRARIES)/ready  ## run the tests of the drop-in buffers with all libraries, in their own environment
	OMP_NUM_THREADS=1 $(LIBRARIES)/bin/python -m pytest tests/integrations/libraries

public-suites: $(LIBRARIES)/ready  ## run other libraries' own tests with their buffers and with the drop-ins: 10 minutes
	PYTHONPATH=tests $(LIBRARIES)/bin/python tests/public_suites/run_suites.py $(ARGS)

# The site reads the docstrings from the source, so its environment has the packages of the extra alone.
$(DOCS)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(DOCS)
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(DOCS)/bin/python -m pip --disable-pip-version-check install --quiet \
		$$(sed -n '/^docs = \[/,/^\]/s/^ *\("[^"]*"\).*/\1/p' pyproject.toml | tr -d '"')
	@touch $@

docs: $(DOCS)/ready  ## build the documentation site in build/site and check its links: 1 minute
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict --quiet
	@echo "open build/site/index.html"

$(NOTEBOOK)/ready: $(NATIVE) $(shell find src -name '*.py') constraints.txt | prerequisites
	$(PYTHON) -m venv $(NOTEBOOK)
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(NOTEBOOK)/bin/python -m pip --disable-pip-version-check install --quiet \
		'.[notebook]'
	@touch $@

notebook: $(NOTEBOOK)/ready  ## run the notebook of examples with small numbers; TRANSITIONS=1_000_000 records more
	@mkdir -p build
	cd build && TRANSITIONS=$(TRANSITIONS) UPDATES=$(UPDATES) \
		$(CURDIR)/$(NOTEBOOK)/bin/jupyter-execute --kernel_name=python3 --output=$(CURDIR)/build/million_transitions.ipynb \
		$(CURDIR)/examples/million_transitions.ipynb

wheel: $(STAMPS)/build-tools  ## build a wheel and a source distribution in dist/
	$(PIP) build
	$(BIN)/python -m build --no-isolation

$(RELEASE)/ready: release/requirements.txt
	$(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r release/requirements.txt
	@touch $@

release-check: $(RELEASE)/ready $(STAMPS)/test-$(NAMES)  ## build, check and test what would be released, and print what is missing; ARGS=--quick
	$(RELEASE)/bin/python release/check.py $(ARGS)

clean:  ## remove all environments, builds and caches
	rm -rf $(VENV) $(BENCH) $(MARIO) $(JAX) $(LIBRARIES) $(DOCS) $(NOTEBOOK) $(RELEASE) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
