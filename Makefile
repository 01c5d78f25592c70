# PYTHON: the interpreter that the virtual environment is made with (3.11 or newer).
PYTHON ?= python3
# TESTS: what `make test` runs; any arguments of pytest. (Clients, servers and frameworks by name are installed for
# their tests: TESTS=tests runs them too.)
TESTS ?= tests -m "not clients and not integrations"
# NOTEBOOKS: what `make demo` executes.
NOTEBOOKS ?= notebooks/tour.ipynb
# BENCH: options of the measurement, for example BENCH=--short.
BENCH ?=
# LAB: further options of JupyterLab, for example LAB="--no-browser --port 9999".
LAB ?=

VENV := .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml $(shell find sandbox_kernel kernelspec -type f -not -name '*.pyc')

.PHONY: help
help:
	@echo "make demo     run the tour notebook in the sandbox, in this terminal"
	@echo "make lab      open JupyterLab with the kernel"
	@echo "make install  let every Jupyter of this user find the kernel"
	@echo "make test     run the tests (TESTS=tests/test_cli.py for some)"
	@echo "make check    lint and types"
	@echo "make bench    measure what SPECIFICATION.md promises (BENCH=--short for less of it)"
	@echo "make docs     build the documentation in build/site"
	@echo "make clean    remove .venv and build"

.PHONY: demo
demo: $(VENV)/.installed-for-use
	$(BIN)/sandbox-kernel run $(NOTEBOOKS) --html --output build

.PHONY: lab
lab: $(VENV)/.installed-for-use
	cd notebooks && ../$(BIN)/jupyter-lab --MultiKernelManager.default_kernel_name=sandboxed-python \
	    $(if $(filter 0,$(shell id -u)),--allow-root) $(LAB)

.PHONY: install
install: $(VENV)/.installed-for-use
	$(BIN)/sandbox-kernel install --user

.PHONY: test
test: $(VENV)/.installed-for-tests
	$(BIN)/python -m pytest $(TESTS)

.PHONY: bench
bench: $(VENV)/.installed-for-use
	$(BIN)/sandbox-kernel bench $(BENCH)

.PHONY: check
check: $(VENV)/.installed-for-tests
	$(BIN)/python -m ruff check
	$(BIN)/python -m mypy

.PHONY: docs
docs: $(VENV)/.installed-for-tests
	$(BIN)/python -m mkdocs build

.PHONY: clean
clean:
	rm -rf $(VENV) build notebooks/tour_output

# Debian's python3 comes without the means to make a virtual environment; virtualenv is as good where it is installed.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "$(PYTHON) is older than Python 3.11; name another one: make PYTHON=/path/of/python3"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || $(PYTHON) -m virtualenv $(VENV) || \
	    { rm -rf $(VENV); echo "$(PYTHON) cannot make virtual environments; install its venv module (Debian: apt install python3-venv)"; exit 1; }

# Users get an ordinary install, tests an editable one; each replaces the other.
$(VENV)/.installed-for-use: $(SOURCES) | $(BIN)/python
	@echo "Installing into $(VENV); this takes a minute or two the first time, and says nothing meanwhile."
	$(BIN)/python -m pip install --quiet '.[data,lab]'
	@$(require_libseccomp)
	@rm -f $(VENV)/.installed-for-tests && touch $@

$(VENV)/.installed-for-tests: pyproject.toml $(wildcard kernelspec/*) | $(BIN)/python
	@echo "Installing into $(VENV); this takes some minutes the first time, and says nothing meanwhile."
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	@$(require_libseccomp)
	@rm -f $(VENV)/.installed-for-use && touch $@

require_libseccomp = $(BIN)/python -c 'import pyseccomp' 2>/dev/null || \
    { echo "libseccomp 2 is missing; install it (Debian: apt install libseccomp2, Fedora: dnf install libseccomp)"; exit 1; }
