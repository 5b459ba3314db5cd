# One word for each thing to do here. `make train` and `make test` need only Python and a C++17 compiler.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMPS := $(VENV)/stamps
BENCH  := .venv-bench
SCENES := .venv-scenes
JAX    := .venv-jax
LIBRARIES := .venv-libraries
# The editable install knows modules by name, so it is made anew when one is added, moved or removed.
NAMES  := $(shell find src -name '*.py' | LC_ALL=C sort | cksum | cut -d' ' -f1)
NATIVE := CMakeLists.txt pyproject.toml $(shell find src/framestow/_core -name '*.cpp' -o -name '*.hpp' 2>/dev/null)
# Python compiles what it imports once; pip would compile three times as much, on one core.
PIP    := PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile

GAME   ?= Breakout
ARGS   ?=
SECONDS ?= 3
WHAT   ?= tests/core tests/frames tests/storage tests/replay

# Tests wait for processes and timeouts, so two cores take three workers. Each worker imports all libraries: 10 s.
WORKERS = $(shell $(PYTHON) -c 'import os; print(min(os.cpu_count() * 3 // 2 or 1, 16))')
# Compiling, type checking and installing beside one another, each with its own lines where make can keep them apart.
BESIDE  = --no-print-directory --jobs=2 $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

# Where this forbids Python to keep what it compiled, each of a thousand processes compiles anew what it imports.
export PYTHONDONTWRITEBYTECODE =

.PHONY: help install train test quick prepared check native-tests sanitized-module harnesses films \
        exhaustive crashes sanitize kills fuzz corpus golden bench scenes worker-scenes mario jax libraries public-suites wheel clean

help:           ## what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

$(STAMPS)/venv:
	$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

# The build tools live in the environment, so that a rebuild takes seconds and uses the pinned versions.
$(STAMPS)/build-tools: constraints.txt | $(STAMPS)/venv
	@echo "installing build tools"
	$(PIP) scikit-build-core nanobind cmake ninja
	@touch $@

$(STAMPS)/train-$(NAMES): $(NATIVE) constraints.txt $(STAMPS)/build-tools
	@echo "building framestow and installing what training needs (PyTorch is large: a few minutes the first time)"
	$(PIP) --no-build-isolation -e '.[train,bench]'
	@touch $@

$(STAMPS)/test-$(NAMES): $(NATIVE) constraints.txt $(STAMPS)/build-tools
	@echo "building framestow without a warning and installing what the tests need"
	$(PIP) --no-build-isolation -C cmake.define.FRAMESTOW_WERROR=ON -e '.[test]'
	@touch $@

install: $(STAMPS)/train-$(NAMES)  ## make .venv with the package and all that training needs

train: $(STAMPS)/train-$(NAMES)  ## train DQN on Breakout; GAME=Pong and ARGS='--steps 100_000' change that
	$(BIN)/framestow train $(GAME) $(ARGS)

test: $(STAMPS)/build-tools  ## lint, types, native tests, a little fuzzing and all tests
	@$(MAKE) $(BESIDE) check native-tests harnesses sanitized-module films
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not exhaustive"

prepared: $(STAMPS)/test-$(NAMES)  # .venv with all that the tests need

check: $(STAMPS)/test-$(NAMES)  ## lint, import contracts, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

quick: $(STAMPS)/test-$(NAMES)  ## lint, and the quick tests of core, frames, storage and replay; WHAT=tests/envs narrows
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	QUICK=yes $(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not slow" $(WHAT)

exhaustive: $(STAMPS)/test-$(NAMES)  ## every game, every failure under every way to start a process, ten times the examples
	@mkdir -p build
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "hypothesis and not exhaustive" --hypothesis-profile=thorough
	$(BIN)/python -m pytest -n 2 --dist worksteal -m exhaustive --junitxml=build/exhaustive.xml \
		--ignore tests/storage/files --ignore tests/replay/saving/crashes \
		--ignore tests/integrations/libraries  # make crashes and make libraries run those
	$(BIN)/python tests/write_exhaustive_result.py build/exhaustive.xml tests/exhaustive.json

kills: $(STAMPS)/test-$(NAMES)  ## kill a training 200 times, resume it and compare: a quarter of an hour
	PYTHONPATH=tests $(BIN)/python tests/training/kills/kill_training.py

crashes: $(STAMPS)/test-$(NAMES)  ## kill, cut the power, fill the disk, press Ctrl-C, flip bytes at every place of a store: a quarter of an hour
	@mkdir -p build
	$(BIN)/python -m pytest -n 2 --dist worksteal -m exhaustive tests/storage/files tests/replay/saving/crashes \
		-o junit_family=xunit1 --junitxml=build/crashes.xml  # the family that knows properties
	$(BIN)/python tests/write_crash_figures.py build/crashes.xml tests/crashes.json

golden: $(STAMPS)/test-$(NAMES)  ## write the golden files anew, after a deliberate change
	$(BIN)/python tests/golden/write_golden.py

sanitize: native-tests sanitized-module  ## the native tests, and the tests of packing and replay, under sanitizers

native-tests: $(STAMPS)/build-tools
	native_tests/run.sh

sanitized-module: native-tests $(STAMPS)/test-$(NAMES)
	native_tests/sanitized_module.sh

fuzz: harnesses films  ## replay the fuzz corpus and try new inputs and films; SECONDS=600 changes how long

harnesses: $(STAMPS)/build-tools
	native_tests/fuzz/run.sh $(SECONDS)

films: $(STAMPS)/test-$(NAMES)
	EXAMPLES=$$((20 * $(SECONDS))) $(BIN)/python -m pytest -q -n 2 --hypothesis-profile=search \
		tests/core/test_random_films.py

corpus: $(STAMPS)/build-tools  ## renew the archive of the fuzz corpus, after a change of the packed format; SECONDS as above
	native_tests/fuzz/run.sh --renew $(SECONDS)

# The other libraries want other versions than ours, so they are measured in an environment of their own.
$(BENCH)/ready: $(NATIVE) $(shell find src -name '*.py') benchmarks/requirements.txt
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip --disable-pip-version-check install --quiet -r benchmarks/requirements.txt '.[train,bench,offline]'
	@touch $@

# ViZDoom, Crafter and Super Mario Bros ask for a NumPy before 2, so they are played in an environment of their own.
$(SCENES)/ready: benchmarks/requirements-scenes.txt
	$(PYTHON) -m venv $(SCENES)
	$(SCENES)/bin/python -m pip --disable-pip-version-check install --quiet -r benchmarks/requirements-scenes.txt
	@touch $@

$(SCENES)/framestow: $(SCENES)/ready $(NATIVE) $(shell find src -name '*.py')
	$(SCENES)/bin/python -m pip --disable-pip-version-check install --quiet \
		-r benchmarks/requirements-scenes.txt '.[atari]' 'psutil>=5.9'
	@touch $@

worker-scenes: $(SCENES)/framestow  ## Super Mario Bros in worker processes, one of them killed: 5 minutes
	$(SCENES)/bin/python benchmarks/worker_scenes.py

mario: $(SCENES)/framestow  ## Super Mario Bros through Berkeley's calls, compared with a plain buffer: 10 minutes
	@mkdir -p build
	$(SCENES)/bin/python benchmarks/super_mario.py
	$(SCENES)/bin/python examples/super_mario_bros.py --picture build/super_mario.png

scenes: $(SCENES)/ready  ## record the frames of ViZDoom, Crafter and Super Mario Bros, which bench measures: 10 minutes
	$(SCENES)/bin/python benchmarks/record_scenes.py

bench: $(BENCH)/ready  ## every figure of docs/benchmarks.md again, beside the other libraries: an hour and a half
	-$(MAKE) scenes  # where they cannot be installed, packing.py names what it leaves out
	$(BENCH)/bin/python benchmarks/packing.py
	$(BENCH)/bin/python benchmarks/million.py
	$(BENCH)/bin/python benchmarks/steps.py
	$(BENCH)/bin/python benchmarks/threads.py
	$(BENCH)/bin/python benchmarks/loading.py
	$(BENCH)/bin/python benchmarks/dtypes.py
	$(BENCH)/bin/python benchmarks/sampling.py
	$(BENCH)/bin/python benchmarks/sampling.py --batch-size 256 --threads 2
	$(BENCH)/bin/framestow bench Breakout --transitions 1_000_000 --out benchmarks/results/bench-breakout
	$(BENCH)/bin/python benchmarks/learners.py
	$(BENCH)/bin/python benchmarks/drop_ins.py
	$(BENCH)/bin/python benchmarks/drop_in_training.py
	$(BENCH)/bin/python benchmarks/offline.py
	$(BENCH)/bin/python benchmarks/environments.py
	$(BENCH)/bin/python benchmarks/vector_environments.py
	for question in saving flushing disk_reading retention budgets verifying; do \
		$(BENCH)/bin/python benchmarks/$$question.py || exit 1; done

# JAX is 600 MB with what it needs, too much for every submission.
$(JAX)/ready: $(NATIVE) $(shell find src -name '*.py') constraints.txt
	$(PYTHON) -m venv $(JAX)
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(JAX)/bin/python -m pip --disable-pip-version-check install --quiet \
		'.[jax]' pytest hypothesis
	@touch $@

jax: $(JAX)/ready  ## the tests of batches for JAX, in an environment of their own: a minute
	$(JAX)/bin/python -m pytest tests/tensors/test_jax.py src/framestow/jax.py

# Tianshou asks for older versions than ours of what it needs, and with Numba it is 200 MB.
$(LIBRARIES)/ready: $(NATIVE) $(shell find src -name '*.py') tests/integrations/requirements.txt
	$(PYTHON) -m venv $(LIBRARIES)
	$(LIBRARIES)/bin/python -m pip --disable-pip-version-check install --quiet \
		-r tests/integrations/requirements.txt '.[atari]' psutil pytest hypothesis
	@touch $@

libraries: $(LIBRARIES)/ready  ## the tests of the drop-ins beside all of their libraries, in an environment of their own
	$(LIBRARIES)/bin/python -m pytest tests/integrations/libraries

public-suites: $(LIBRARIES)/ready  ## other libraries' own tests, with their buffers and with the drop-ins: ten minutes
	PYTHONPATH=tests $(LIBRARIES)/bin/python tests/public_suites/run_suites.py $(ARGS)

wheel: $(STAMPS)/build-tools  ## build a wheel and a source distribution into dist/
	$(PIP) build
	$(BIN)/python -m build --no-isolation

clean:  ## remove everything that was made
	rm -rf $(VENV) $(BENCH) $(SCENES) $(JAX) $(LIBRARIES) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
