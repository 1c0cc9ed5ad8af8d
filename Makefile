# The two commands of the README are `make demo` and `make test`; each sets up all that it needs in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
NPM := npm install --silent --no-audit --no-fund --prefix .clients

.PHONY: demo test check bench conformance clients clean

demo: $(VENV)/.runtime
	$(BIN)/remembrancer demo
	$(BIN)/python -m examples.week

test: $(VENV)/.dev check
	@echo "==> running the tests of pure logic, contracts and single actors, four at a time"
	$(BIN)/python -m pytest -q -n 4 tests/actors tests/contracts tests/pure
	@echo "==> running the tests with whole runtimes, three at a time"
	$(BIN)/python -m pytest -q -n 3 tests/processes
	@echo "==> running the faults, three files at a time"
	$(BIN)/python -m pytest -q -n 3 --dist loadfile tests/faults tests/clients

check: $(VENV)/.dev
	@echo "==> checking style (ruff), types (mypy, strict) and who imports whom (import-linter)"
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache

bench: $(VENV)/.bench
	$(BIN)/python -m bench.speed
	$(BIN)/python -m bench.scopes
	$(BIN)/python -m bench.consolidation
ifdef DATA
	$(foreach file,$(DATA),$(BIN)/python -m bench.retrieval --data $(file) &&) true
else
	@echo "==> retrieval is left out: it wants data that is not ours to ship (make bench DATA='FILE …')"
endif
	$(BIN)/python -m bench.scale --plot docs/latency.svg

# The MCP conformance suite, the Inspector and mcp-remote: clients that are not ours. Needs npm, which brings Node 22 (330 MB).
conformance: $(VENV)/.dev
	$(NPM) node@22 @modelcontextprotocol/conformance@0.1.16 @modelcontextprotocol/inspector@2.12 mcp-remote@0.15
	$(BIN)/python -m pytest -q -rs tests/clients/test_http_clients.py tests/clients/test_inspector.py

# And two assistants' command lines with a scripted model (900 MB).
clients: conformance
	$(NPM) @anthropic-ai/claude-code@2.1 @openai/codex@0.169
	$(BIN)/python -m pytest -q tests/clients/test_real_clients.py

$(VENV)/.python:
	@echo "==> making $(VENV)"
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.runtime: pyproject.toml | $(VENV)/.python
	@echo "==> installing Remembrancer and what it needs (about 250 MB; no torch)"
	$(PIP) install -e .
	@touch $@

$(VENV)/.bench: $(VENV)/.runtime
	$(PIP) install -e '.[bench]'
	@touch $@

# torch first and by its exact version: any other way of asking for it downloads gigabytes of GPU libraries.
$(VENV)/.dev: pyproject.toml | $(VENV)/.python
	@echo "==> installing what the tests need (with the CPU build of torch for the second engine: some minutes)"
	$(PIP) install torch==2.13.0
	$(PIP) install -e '.[dev,sentence-transformers]'
	@touch $@ $(VENV)/.runtime

clean:
	rm -rf $(VENV) .clients .mypy_cache .ruff_cache .pytest_cache .hypothesis
