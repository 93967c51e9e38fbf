# make demo: the ablation of the README. make test: everything that CI checks.
SHELL := bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# Installed without a hash: which build is right (CPU, CUDA) depends on the machine. A torch that
# satisfies this is kept, see "Beside a site's GPU torch" in README.md.
TORCH := torch==2.13.0
# What torch needs; locked here because torch itself is not in the lock.
TORCH_NEEDS := filelock fsspec jinja2 networkx sympy setuptools typing-extensions

.PHONY: demo test check format bench lock clean

demo: $(INSTALLED)
	$(BIN)/harness run sweeps/ipo_vs_icepop.yaml

test: check
	$(BIN)/python -m pytest -n 2 --dist loadgroup

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/yamllint --strict conf sweeps slurm
	$(BIN)/mypy

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(INSTALLED)
	@set -e; for file in tests/benchmarks/*.py; do echo "== $$file"; $(BIN)/python $$file; done

$(INSTALLED): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "error: $$($(PYTHON) --version) is too old; want Python 3.11 or newer" >&2; \
	       echo "hint: make PYTHON=python3.12 …" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check $(TORCH)
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

lock:
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet uv
	printf '%s\n' $(TORCH_NEEDS) | $(BIN)/uv pip compile - pyproject.toml --group dev \
	  --extra tensorboard --universal --python-version 3.11 --generate-hashes --no-header \
	  --no-annotate --quiet --override <(echo 'torch ; sys_platform == "never"') \
	  --no-emit-package torch -o requirements.lock

clean:
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
