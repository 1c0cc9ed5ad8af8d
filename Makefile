# `make demo` and `make test` set up all that they need in .venv.
SHELL := /bin/bash -o pipefail
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# The longest first: what is short fills the gaps at the end.
TESTS := tests/faults tests/processes tests/clients tests/actors tests/contracts tests/pure
# Everything is compiled once, and not by each of the processes that tests start.
export PYTHONDONTWRITEBYTECODE :=
# Tells what pip installs: it is quiet for minutes otherwise.
SOME := 50
PROGRESS := awk '/^Collecting/ {printf "\r\033[K    %d of about %d packages: %s", ++n, (n > $(SOME) ? n : $(SOME)), $$2; fflush()} \
	/^Installing/ {printf "\r\033[K    unpacking %d packages, half a minute …", n; fflush()} \
	END {printf "\r\033[K"}'
NPM := npm install --silent --no-audit --no-fund --prefix .clients

.PHONY: demo demo-week test behaviour portable check bench conformance clients browser pictures package packages clean

# A minute: two sessions and one memory. The long story is demo-week.
demo: $(VENV)/.runtime
	$(BIN)/python -m examples.first

demo-week: $(VENV)/.runtime
	$(BIN)/python -m examples.week

# Side by side: types take one core for a minute, and tests wait for each other's processes now and then.
test: $(VENV)/.dev
	@$(MAKE) --no-print-directory -j 2 check behaviour

# More at a time than cores: most of the longer ones wait for other processes, or for time to go by.
behaviour: $(VENV)/.dev $(VENV)/.compiled
	@echo "==> running the tests, four at a time"
	$(BIN)/python -m pytest -q -n 4 --dist worksteal $(TESTS)

# What could differ on macOS, without what Linux alone has.
portable: $(VENV)/.dev
	REMEMBRANCER_PORTABLE=1 $(BIN)/python -m pytest -q -n 4 --dist worksteal tests/processes tests/faults tests/contracts tests/actors/test_embedder.py

# Once, and not by each of the four processes that run them: pytest rewrites the assertions of a module as it compiles it.
$(VENV)/.compiled: $(VENV)/.dev $(wildcard tests/*.py tests/*/*.py)
	@echo "==> compiling the tests"
	@$(BIN)/python -m pytest -qq --collect-only $(TESTS) > /dev/null || true
	@touch $@

check: $(VENV)/.dev
	@echo "==> checking style (ruff), types (mypy, strict) and who imports whom (import-linter)"
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/mypy --platform darwin remembrancer
	$(BIN)/lint-imports --no-logo --no-cache

bench: $(VENV)/.bench $(VENV)/.dev
	$(BIN)/python -m bench.speed
ifdef DATA
	$(foreach file,$(DATA),$(BIN)/python -m bench.retrieval --data $(file) &&) true
else
	@echo "==> retrieval is left out: it wants data that is not ours to ship (make bench DATA='FILE …')"
endif
	$(BIN)/python -m bench.scale

# The MCP conformance suite, the Inspector and mcp-remote: clients that are not ours. Needs npm, which brings Node 22 (330 MB).
conformance: $(VENV)/.dev
	$(NPM) node@22 @modelcontextprotocol/conformance@0.1.16 @modelcontextprotocol/inspector@2.12 mcp-remote@0.15
	$(BIN)/python -m pytest -q -rs tests/clients/test_protocol_clients.py

# And the assistants' own command lines, two of them with a scripted model (1.5 GB).
clients: conformance
	$(NPM) @anthropic-ai/claude-code@2.1 @openai/codex@0.169 @google/gemini-cli @qwen-code/qwen-code opencode-ai @github/copilot
	$(BIN)/python -m pytest -q tests/clients/test_real_clients.py

# The memory browser in Debian's Chromium (apt-get install chromium): a minute of walks, which CI takes as well.
browser: $(VENV)/.dev
	$(NPM) playwright-core@1.65 axe-core@4.14 @modelcontextprotocol/ext-apps@2 esbuild
	$(BIN)/python -m pytest -q -rs tests/clients/test_browser_walk.py

# The pictures of docs/browser.md.
pictures: browser
	$(BIN)/python -m tests.clients.browser_pictures docs

# What is published, built and checked; the wheel in a fresh environment stores a memory and finds it.
package: SOME := 35
package: $(VENV)/.runtime
	$(PYTHON) -m venv .packages
	.packages/bin/pip --disable-pip-version-check install --quiet build twine
	$(BIN)/python -m release
	.packages/bin/python -m build --sdist --outdir dist > /dev/null
	.packages/bin/twine check --strict dist/*.whl dist/*.tar.gz
	rm -rf .packages/try && $(PYTHON) -m venv .packages/try
	PYTHONUNBUFFERED=1 .packages/try/bin/pip --disable-pip-version-check install dist/*.whl | $(PROGRESS)
	.packages/try/bin/remembrancer --version
	@export REMEMBRANCER_HOME=$$(mktemp -d /tmp/rmb-XXXX) && cd $$REMEMBRANCER_HOME && \
	$(CURDIR)/.packages/try/bin/remembrancer add "We deploy on Tuesdays" && \
	$(CURDIR)/.packages/try/bin/remembrancer search when do we deploy | grep Tuesdays; \
	found=$$?; $(CURDIR)/.packages/try/bin/remembrancer down; rm -rf $$REMEMBRANCER_HOME; exit $$found

# What is published, built and checked, and the wheel installed in empty environments (some minutes, 2 GB).
packages: $(VENV)/.dev
	$(BIN)/python -m release
	$(PYTHON) -m venv .packages
	.packages/bin/pip install --quiet uv pipx
	$(BIN)/python -m pytest -q -rs tests/clients/test_packages.py

$(VENV)/.python:
	@echo "==> making $(VENV)"
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.runtime: pyproject.toml | $(VENV)/.python
	@echo "==> installing Remembrancer (300 MB, a minute or two, once)"
	@PYTHONUNBUFFERED=1 $(BIN)/python -m pip --disable-pip-version-check install -e . | $(PROGRESS)
	@touch $@

$(VENV)/.bench: $(VENV)/.runtime
	$(PIP) install -e '.[bench]'
	@touch $@

# torch first and by its exact version: any other way of asking for it downloads gigabytes of GPU libraries.
$(VENV)/.dev: pyproject.toml | $(VENV)/.python
	@echo "==> installing what the tests need (with the CPU build of torch for the second engine: some minutes)"
	$(PIP) install torch==2.13.0
	$(PIP) install -e '.[dev,sentence-transformers,multilingual]'
	@touch $@ $(VENV)/.runtime

clean:
	rm -rf $(VENV) .clients .packages .mypy_cache .ruff_cache .pytest_cache .hypothesis
