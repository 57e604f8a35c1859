# Two commands set everything up: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
TORCH ?= torch==2.13.0
OUT ?= out

.PHONY: demo test lint bench bench-workers bench-readers gpu-check train-tiny train-fast-ddrive proofs clean

$(VENV)/.created:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	@touch $@

$(VENV)/.cpu: $(VENV)/.created pyproject.toml
	$(BIN)/pip install --quiet --editable '.[cpu]'
	@touch $@

$(VENV)/.dev: $(VENV)/.cpu
	$(BIN)/pip install --quiet '$(TORCH)'
	$(BIN)/pip install --quiet --editable '.[cpu,rtx,train,drives,scale,dev]'
	@touch $@

demo: $(VENV)/.cpu
	$(BIN)/slipstream demo --out $(OUT)/demo $(DEMO)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/pytest -m 'not slow' -n 2 --dist loadfile --no-loadscope-reorder

proofs: $(VENV)/.dev
	$(BIN)/pytest -m slow

bench: $(VENV)/.cpu
	$(BIN)/python -m benchmarks.frame --out $(OUT)/bench $(BENCH)
	$(BIN)/python -m benchmarks.rules --out $(OUT)/bench $(BENCH)

bench-workers: $(VENV)/.cpu
	$(BIN)/python -m benchmarks.workers --out $(OUT)/bench

bench-readers: $(VENV)/.dev
	$(BIN)/python -m benchmarks.readers --out $(OUT)/bench

# on a machine with a GPU; exit code 3 where nothing could run
gpu-check: $(VENV)/.cpu
	$(BIN)/python -m slipstream.gpu_check --out $(OUT)/gpu-check $(GPU_CHECK)

train-tiny: $(VENV)/.dev
	$(BIN)/python -m slipstream.tiny --out $(OUT)/tiny

train-fast-ddrive: $(VENV)/.dev
	$(BIN)/python -m slipstream.tiny_fast_ddrive --out $(OUT)/fast-ddrive

clean:
	rm -rf $(OUT) build *.egg-info
