# make lab    open the course            make test   run every test and every notebook
# make setup  only create .venv          make store  run notebooks, store their outputs (NOTEBOOKS=path ...)
# make exercises  write exercises/ anew from solutions/            make claims  write the README's table of claims
# make bench  measure guards and recompiles, write data/benchmarks/ (BENCH="guards requests" for some)
# make atlas  record the guard atlas and write CHEATSHEET.md; of another torch: make atlas PYTHON=path
# make check  form of the notebooks, exercises in step with solutions, lint
PYTHON ?= python3
PORT ?= 8888
NOTEBOOKS ?=
BENCH ?=
BIN := .venv/bin
READY := .venv/ready

export HF_HUB_OFFLINE = 1
export HF_HUB_DISABLE_TELEMETRY = 1

.PHONY: lab test setup store exercises claims bench atlas check npu-wheel

lab: $(READY)
	@tools/lab.sh $(PORT)

test: $(READY)
	$(BIN)/python -m pytest --nbval -n $$($(BIN)/python -c 'import os; print(min(2, os.cpu_count() or 1))') \
	    --dist loadfile tests notebooks solutions

setup: $(READY)

store: $(READY)
	$(BIN)/python tools/store.py $(NOTEBOOKS)

exercises: $(READY)
	$(BIN)/python tools/make_exercises.py

claims: $(READY)
	$(BIN)/python tools/claims_table.py

bench: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python tools/bench.py $(BENCH)

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/check.py

# torch_npu's wheel in a folder of its own, for tests/test_torch_npu.py: it is never on the path of the course
npu-wheel: .venv/npu/torch_npu

.venv/npu/torch_npu: requirements-npu.txt $(READY)
	rm -rf .venv/npu
	$(BIN)/pip install --disable-pip-version-check --no-deps --target .venv/npu \
	    "$$(sed -n 's/^\(torch_npu==[^ ]*\).*/\1/p' requirements-npu.txt)"
	@touch $@

$(READY): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "The course needs Python 3.11 or newer; $(PYTHON) is older or missing. Name another: make lab PYTHON=python3.11"; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv || \
	    { echo "No virtual environment could be made: on Debian and Ubuntu, apt-get install python3-venv"; exit 1; }
ifdef TORCH_INDEX
	$(BIN)/pip install --disable-pip-version-check --index-url $(TORCH_INDEX) "$$(sed -n 's/^\(torch==[^ ]*\).*/\1/p' requirements.txt)"
endif
	$(BIN)/pip install --disable-pip-version-check -r requirements.txt
	@touch $@

# any Python will do that has torch 2.8 or newer and numpy
GIVEN := $(filter command,$(origin PYTHON))
atlas: $(if $(GIVEN),,$(READY))
	OMP_NUM_THREADS=1 $(if $(GIVEN),$(PYTHON),$(BIN)/python) tools/atlas.py
	$(if $(GIVEN),,$(BIN)/python tools/cheatsheet.py)
