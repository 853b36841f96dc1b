# `make` shows the tasks. Each of them makes .venv by itself, once.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
LINKS := .venv/src/palimpsest

.DEFAULT_GOAL := help
.PHONY: help install demo test test-kafka test-browser soak stalls fuzz check bench docs picture pictures

help: ## show the tasks
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

install: $(STAMP) ## make .venv with everything in it

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	# The project had this name before; both at once would answer to it.
	$(BIN)/python -m pip uninstall --quiet --yes palimpsest
	$(BIN)/python -m pip install --quiet --editable ".[documents,kafka,mcp,serve,telemetry]" --group test --group check
	# mypy reads folders, not the installer's map of them to one name.
	mkdir -p $(LINKS) && for folder in ops schemas stores streams; do ln -sfn "$(CURDIR)/$$folder" $(LINKS)/$$folder; done
	ln -sfn "$(CURDIR)/ops/package/__init__.py" $(LINKS)/__init__.py
	touch $(STAMP)

demo: $(STAMP) ## a conversation through the whole pipeline, under a minute
	$(BIN)/palimpsest demo

test: $(STAMP) ## all tests but those that need Kafka
	$(BIN)/python -m pytest -n 3 --dist loadscope

test-kafka: $(STAMP) ## the tests on a real Kafka broker (needs Java 17 and Maven)
	PALIMPSEST_REQUIRE_KAFKA=1 $(BIN)/python -m pytest tests/kafka -n 2 --dist worksteal

test-browser: $(STAMP) ## the tests of the console in Chromium (needs the package chromium)
	$(BIN)/python -m pip install --quiet --group browser
	PALIMPSEST_REQUIRE_BROWSER=1 $(BIN)/python -m pytest tests/browser -n 0

soak: $(STAMP) ## the long tests: what the others show, over more data and at more moments
	$(BIN)/python -m pytest tests/unit tests/contract tests/flows tests/fault tests/kafka -m soak -n 2 --dist worksteal

stalls: $(STAMP) ## all tests, while every process is stopped for seconds at random moments
	$(BIN)/python -m tests.soak.stalls -- $(BIN)/python -m pytest -n 3 --dist loadscope

fuzz: $(STAMP) ## the property tests with new examples, for ten minutes
	$(BIN)/python -m tests.soak.fuzz --minutes 10

check: $(STAMP) ## lint and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP) ## how fast the pipeline is here, without any model's time
	$(BIN)/palimpsest bench throughput

picture: $(STAMP) ## draw the README's picture of a terminal anew, from a real run
	$(BIN)/python -m palimpsest.ops.scripts.picture

pictures: $(STAMP) ## take the docs' pictures of the console again (needs the package chromium)
	$(BIN)/python -m pip install --quiet --group browser
	$(BIN)/python -m palimpsest.ops.scripts.pictures

docs: $(STAMP) ## write the generated references in ops/docs anew
	$(BIN)/python -m palimpsest.ops.scripts.reference
