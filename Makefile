# What is done with this project. Python ≥ 3.10 and make are all that is needed.
PYTHON ?= python3
VENV ?= .venv
RUN := $(VENV)/bin
# What the tests of networks in Torch need: a version with a small build for processors. `make test TORCH=` leaves it out,
# and they are skipped.
TORCH ?= torch==2.13.0
# Python keeps what it compiled, also where it is told not to: tests start hundreds of processes, and
# pytest rewrites the assertions of all tests, which takes 10 s of processor time.
KEEP_BYTECODE := PYTHONDONTWRITEBYTECODE=
# Which tests `make test-ray` runs; CI takes a sample of a minute: make test-ray RAY_TESTS=ray_sample
RAY_TESTS ?= ray and not slow

# `make test-matrix MATRIX="3.10 3.13"` tests with these, where they are installed.
MATRIX ?= 3.10 3.11 3.12 3.13 3.14
# Three for two cores: tests wait for processes that they start, but each worker imports everything once.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(8, (3 * (os.cpu_count() or 1) + 1) // 2))')
FAST := -m "not slow and not ray" --numprocesses=$(WORKERS) --dist=worksteal

.PHONY: train test pyright test-long test-ray test-matrix kill-demo wheel dist sbom test-installs docs bench clean

train: $(VENV)/.installed  ## trains PPO on CartPole-v1, with the settings of its recipe, until it is solved
	$(RUN)/local-trainer train --env CartPole-v1 --stop-return 450 --seed 0

kill-demo: $(VENV)/.installed  ## trains twice, once while processes are killed at random, and compares the bytes
	$(RUN)/python examples/kill_demo.py

test: $(VENV)/.installed-test  ## lint, types and the default tests (4 to 8 minutes on two cores)
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(MAKE) --no-print-directory --jobs=2 types default-tests

.PHONY: types default-tests
# Side by side: mypy keeps one core busy for a minute, and tests wait now and then.
types:
	$(RUN)/mypy

# In a fresh clone once before the workers start, each of which would rewrite all assertions for itself.
default-tests:
	@test -n "$$(find tests -name '*-pytest-*.pyc' -print -quit)" || \
	    $(KEEP_BYTECODE) $(RUN)/pytest --collect-only > /dev/null || true  # the run below tells what fails
	$(KEEP_BYTECODE) $(RUN)/pytest $(FAST)

# Apart from `make test`: Node comes with it, 219 MB.
pyright: $(VENV)/.installed-types  ## what pyright says of the examples
	$(RUN)/pyright --pythonpath $(RUN)/python

test-long: $(VENV)/.installed-long  ## everything, the long campaigns included
	$(KEEP_BYTECODE) $(RUN)/pytest --hypothesis-profile=many -m "(slow or not slow) and not ray"

# Skipped, with the reason, where Ray is not installed.
test-ray: $(VENV)/.installed-ray  ## the tests of the Ray engine, on a small cluster that they start
	$(RUN)/pytest -rs -m "$(RAY_TESTS)"

test-matrix:  ## the default tests with every Python that is found, and with the lowest versions stated
	@set -e; for version in $(MATRIX); do \
	    if ! command -v "python$$version" > /dev/null; then \
	        echo "python$$version is not installed: skipped"; continue; \
	    fi; \
	    echo "== python$$version"; \
	    $(MAKE) --no-print-directory test-with PYTHON="python$$version" VENV=".venv-$$version" TORCH=; \
	done
	@echo "== the lowest versions stated"
	@$(MAKE) --no-print-directory test-with VENV=.venv-lowest TORCH= LOWEST=1

.PHONY: test-with
test-with: $(VENV)/.installed-test
	if [ -n "$(LOWEST)" ]; then \
	    $(RUN)/python -m tests.lowest_versions | \
	    xargs $(RUN)/python -m pip install --quiet --disable-pip-version-check; \
	fi
	$(RUN)/pytest $(FAST)

wheel: $(VENV)/.installed  ## builds the wheel into dist/
	$(RUN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

dist: $(VENV)/.installed-test  ## builds the sdist and the wheels with and without kernels into dist/, with the same bytes each time
	$(RUN)/python -m tests.distributions dist

# In an environment that holds the package and what it needs, and nothing else.
sbom: dist  ## lists what the core needs: dist/sbom.cdx.json (CycloneDX) and dist/licences.md
	rm -rf .venv-sbom .venv-sbom-tools
	$(PYTHON) -m venv .venv-sbom
	.venv-sbom/bin/python -m pip install --quiet --disable-pip-version-check dist/*-py3-none-any.whl
	.venv-sbom/bin/python -m pip uninstall --quiet --yes pip setuptools 2> /dev/null || true
	$(PYTHON) -m venv .venv-sbom-tools
	.venv-sbom-tools/bin/python -m pip install --quiet --disable-pip-version-check cyclonedx-bom pip-licenses
	.venv-sbom-tools/bin/cyclonedx-py environment --output-reproducible --output-format JSON \
	    --pyproject pyproject.toml --output-file dist/sbom.cdx.json .venv-sbom/bin/python
	.venv-sbom-tools/bin/pip-licenses --python=.venv-sbom/bin/python --format=markdown \
	    --output-file=dist/licences.md

test-installs: dist  ## installs wheels and sdist in clean environments of every Python found, and works with them there
	$(RUN)/python -m tests.installs dist

docs: $(VENV)/.installed  ## builds the documentation as a site into site/, without warnings; trains the agents of its gallery first
	$(RUN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs,plot]'
	test -d build/gallery || $(RUN)/python docs/make_gallery.py
	$(RUN)/mkdocs build --strict

bench: $(VENV)/.installed  ## compares with the peers that are installed, in one table; BENCH="NAME …" runs single benchmarks
	$(RUN)/python -m benchmarks $(BENCH)

# Stamps instead of the folder: a half-finished installation is done again.
$(VENV)/.installed: pyproject.toml setup.cfg setup.py trainer/nn/kernels.c
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed: make PYTHON=python3.11 …")'
	$(PYTHON) -m venv $(VENV)
	$(RUN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(RUN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	if [ -n "$(TORCH)" ]; then \
	    $(RUN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)" || \
	    echo "Torch could not be installed: the tests that need it are skipped."; \
	fi
	touch $@

$(VENV)/.installed-types: $(VENV)/.installed-test
	$(RUN)/python -m pip install --quiet --disable-pip-version-check --editable '.[notebooks,types]' || \
	    echo "pyright or Jupyter could not be installed: the tests that need them are skipped."
	touch $@

$(VENV)/.installed-long: $(VENV)/.installed-types
	$(RUN)/python -m pip install --quiet --disable-pip-version-check --editable '.[minari]' || \
	    echo "Minari could not be installed: the tests that need it are skipped."
	touch $@

$(VENV)/.installed-ray: $(VENV)/.installed-test
	$(RUN)/python -m pip install --quiet --disable-pip-version-check --editable '.[ray]' || \
	    echo "Ray could not be installed: the tests that need it are skipped."
	touch $@

clean:  ## removes the virtual environment and caches; runs/ stays
	rm -rf $(VENV) .venv-3.* .venv-lowest .venv-sbom .venv-sbom-tools build dist site *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
