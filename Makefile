# What there is to do in this repository. CI calls these targets and no others.
SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

MODULES    := . integration examples/ledger
TEST_FLAGS ?=
GO_TEST    := go test -race -shuffle=on -timeout 30m $(TEST_FLAGS)
# A number of inputs, not a time: Go now and then reports a time that runs out as a failure.
FUZZ_TIME    ?= 100000x
MUTANT_FLAGS ?=
GROWTH_FLAGS ?= -out docs
STORM_FLAGS  ?=
# What the container run uses: the oldest and the newest Postgres we have images for.
POSTGRES_VERSIONS ?= 15 18
CONTAINER_TESTS   := ./integration ./internal/localpg

# each runs a command in every module, goes on after a failure, and then fails.
each = status=0; for module in $(MODULES); do \
		echo "== $$module: $(1)"; (cd $$module && $(1)) || status=1; \
	done; exit $$status

# The path of a tool pinned in tools/go.mod, built on first use.
tool = $$(cd $(CURDIR)/tools && GOWORK=off go tool -n $(1))

.PHONY: help
help: ## Show this help.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: test
test: ## Run every test of every module, on a Postgres that the tests start themselves.
	@$(call each,$(GO_TEST) ./...)

.PHONY: test-container
test-container: ## Run the tests that need containers, on the oldest and the newest Postgres.
	integration/image/build.sh $(POSTGRES_VERSIONS)
	@status=0; for version in $(POSTGRES_VERSIONS); do \
		echo "== PostgreSQL $$version: $(GO_TEST) $(CONTAINER_TESTS)"; \
		IDEM_TEST_IMAGE=idempg/postgres:$$version $(GO_TEST) $(CONTAINER_TESTS) || status=1; \
	done; exit $$status

.PHONY: test-compose
test-compose: ## Build the example's image and run two instances of it on one Postgres, in containers (3 minutes).
	integration/image/build.sh 15
	integration/image/go.sh examples/ledger
	@echo "== examples/ledger/deploy: $(GO_TEST)"
	@cd examples/ledger && GO_IMAGE=idempg/golang POSTGRES_IMAGE=idempg/postgres:15 $(GO_TEST) -tags compose -count 1 ./deploy

.PHONY: mutants
mutants: ## Break the library on purpose, fault by fault: each must turn a test red.
	go run ./integration/mutants $(MUTANT_FLAGS)

.PHONY: fuzz
fuzz: ## Fuzz each target with FUZZ_TIME inputs, one after the other.
	@status=0; for package in ./idem ./fibermw; do \
		targets=$$(go test -run '^$$' -list '^Fuzz' $$package | grep '^Fuzz') || status=1; \
		for target in $$targets; do \
			echo "== $$package $$target: $(FUZZ_TIME)"; \
			go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZ_TIME) $$package || status=1; \
		done; \
	done; exit $$status

.PHONY: test-histories
test-histories: ## Compare the example with its model in 2000 random histories, without the race detector (2 minutes).
	@echo "== examples/ledger: go test -run RandomHistories"
	cd examples/ledger && go test -count=1 -timeout 30m $(TEST_FLAGS) -run RandomHistories . -rapid.checks=2000

.PHONY: faults
faults: ## Break calls at every message in every manner, then 10,000 at random (an hour).
	cd integration && IDEM_FAULT_ROUNDS=10000 go test -timeout 3h -v -run FaultsAt .

.PHONY: bench
bench: ## Compare with other ways to do it, and write docs/benchmarks.md (11 minutes).
	go run ./integration/bench -out docs

.PHONY: bench-short
bench-short: ## The same with fewer cells, in two minutes, to the terminal.
	go run ./integration/bench -short

.PHONY: growth
growth: ## Measure what a table of 10 million records costs, and write docs/growth.md (8 minutes, 12 GB).
	go run ./integration/growth $(GROWTH_FLAGS)

.PHONY: example
example: ## Run the example service on a throwaway database.
	go run ./examples/ledger

.PHONY: storm
storm: ## Attack the example service for 30 s, kill it again and again, and audit it.
	go run ./examples/ledger storm $(STORM_FLAGS)

.PHONY: fmt
fmt: ## Format the code with gofumpt.
	@lint="$(call tool,golangci-lint)"; "$$lint" fmt

.PHONY: lint
lint: ## Check style and the borders between packages (.golangci.yml).
	@lint="$(call tool,golangci-lint)"; PATH="$${lint%/*}:$$PATH"; $(call each,golangci-lint run --allow-serial-runners ./...)

.PHONY: vet
vet: ## Run go vet in every module.
	@$(call each,go vet ./...)

.PHONY: vuln
vuln: ## Look for known vulnerabilities in what users import.
	@scanner="$(call tool,govulncheck)"; tools/vuln.sh "$$scanner" . examples/ledger

.PHONY: generate
generate: ## Write the generated code again.
	cd examples/ledger && go generate ./...

.PHONY: generate-check
generate-check: ## Fail when the generated code is not what "make generate" writes.
	@sqlc="$(call tool,sqlc)"; cd examples/ledger; "$$sqlc" diff && echo "the generated code is up to date"

.PHONY: consumer-check
consumer-check: ## Fail when importing package idem brings more than pgx along.
	@tools/consumer.sh
