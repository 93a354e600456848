# Targets are described in CONTRIBUTING.md. The virtual environment .venv has the exact versions of constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Without .venv, the GPU tests use the system's Python, which needs torch and pytest but not imix.
GPU_PYTHON := $(if $(wildcard $(BIN)/pytest),$(BIN)/python,$(PYTHON))
INSTALL := $(BIN)/python -m pip install --constraint constraints.txt --editable
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo quick test test-full gpu lint format docs clean

demo: $(VENV)/.installed
	$(BIN)/imix demo

quick: lint
	$(PYTEST) tests -n 2 --dist loadfile --ignore tests/chaos -m 'not slow and not subprocess and not full and not gpu'

test: lint
	$(BIN)/mypy
	$(PYTEST) -n 2 --dist loadfile -m 'not full'

# The part of the long fault tests that fits 25 minutes; `IMIX_CHAOS=long pytest tests/chaos` runs all of them.
test-full: $(VENV)/.installed-dev
	IMIX_CHAOS=long $(PYTEST) --timeout 1200 -n 2 --dist worksteal -m full
	IMIX_CHAOS=long $(PYTEST) --timeout 1200 -n 2 --dist worksteal tests/chaos/test_bad_data.py tests/chaos/test_numbers.py -m 'not full'

gpu:
	@$(GPU_PYTHON) -c 'import pytest' || { echo "$(GPU_PYTHON) has no pytest; choose another with PYTHON=..."; exit 1; }
	PYTHONPATH=src $(GPU_PYTHON) -m pytest tests/gpu -m gpu

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/.installed-dev
	$(BIN)/python docs/generate.py
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) imix-demo site

# What `imix demo` needs, and on top of it what development needs.
$(VENV)/.installed: pyproject.toml constraints.txt
	@echo "Installing imix and its dependencies into $(VENV); torch is large, so the first time takes minutes."
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "Installing the development tools into $(VENV)."
	$(INSTALL) '.[dev]'
	touch $@
