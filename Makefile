# Each target does the whole set-up by itself, in a virtual environment of the project's own.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# The environment of tests: nothing is asked of a network, and processes side by side do not fight for cores.
OFFLINE = HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false

.PHONY: demo test test-full test-floor test-browser lesson conformance conformance-quick lint clean
.DEFAULT_GOAL := test

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

demo: $(VENV)/.installed  ## train, score and use a translator in minutes
	$(BIN)/vanilla-transformer demo --output runs/demo --overwrite

test: $(VENV)/.installed lint  ## lint, types, and the test suite
	$(OFFLINE) $(BIN)/python -m pytest -n 2

test-full: $(VENV)/.installed lint  ## all combinations of choices, not only those that make all pairs
	$(OFFLINE) $(BIN)/python -m pytest -n 2 -m "not browser"

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The oldest versions that pyproject.toml allows. Its torch brings CUDA libraries along, some 5 GB.
FLOORS = import tomllib; [print(need.split(",")[0].replace(">=", "==")) \
	for need in tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"]]

.venv-floor/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-floor
	$(PYTHON) -c '$(FLOORS)' > .venv-floor/floors.txt
	.venv-floor/bin/python -m pip install --quiet --constraint .venv-floor/floors.txt --editable ".[dev]"
	touch $@

test-floor: .venv-floor/.installed  ## the test suite on the oldest versions
	$(OFFLINE) .venv-floor/bin/python -m pytest -n 2

test-browser: $(VENV)/.installed  ## pages in Chromium (apt install chromium chromium-driver)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[browser]"
	$(OFFLINE) $(BIN)/python -m pytest -m browser tests/browser

lesson: $(VENV)/.installed  ## scripts/lesson.py as a notebook that has run, in build/lesson.ipynb
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[lesson]"
	mkdir -p build
	$(OFFLINE) $(BIN)/python -m jupytext --to notebook --execute --output build/lesson.ipynb scripts/lesson.py

# The tests that transformers writes for its own models, from its source distribution, which pip fetches once.
conformance: $(VENV)/.installed  ## all models and their variants
	$(OFFLINE) $(BIN)/python scripts/upstream_conformance.py

conformance-quick: $(VENV)/.installed  ## the paper's three models; without a package index it says so and succeeds
	$(OFFLINE) $(BIN)/python scripts/upstream_conformance.py --quick

clean:  ## all but what was trained, in runs/
	rm -rf .venv .venv-floor build *.egg-info
