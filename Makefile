# Every target works from a clean checkout on a machine with Go; `test` also needs a C
# compiler for the race detector.
GO       ?= go
# go.work is for the root of a clone; every module is checked with its own go.mod.
export GOWORK := off
# The compiler, the linker, vet and staticcheck end soon: without garbage collection they need
# a third less processor time. The tests themselves run with the default.
LEAN     := env GOGC=off GOMEMLIMIT=1GiB
ifeq ($(findstring toolexec,$(GOFLAGS)),)
export GOFLAGS := $(GOFLAGS) '-toolexec=$(LEAN)'
endif
ADAPTERS := adapters/zap adapters/zerolog adapters/grpc adapters/examples examples
DRIVERS  := compress cmd cmd/forebay-all kafka jetstream otlpgrpc
BENCHES  := bench bench/servers
SERVERS  := integration integration/fluent integration/loki integration/otlp integration/kubernetes integration/prometheus integration/kafka integration/opensearch
MODULES  := . $(BENCHES) $(SERVERS) tools $(ADAPTERS) $(DRIVERS)
FUZZTIME ?= 30s
# NEWEST is the release that .ci/run tests next to the installed one.
NEWEST   ?= go1.27.4
# SLOW are the packages whose tests take longest; they start first.
SLOW     := ./internal/test/firstcopies ./deliver ./fluent
# WALKS are the tests that repeat random steps; their budgets are cases, see CONTRIBUTING.md.
WALKS    := Walk|Explore|Model|Kill|Moment|TestOrder|Torture

TOOL     = $(GO) tool -modfile=$(CURDIR)/tools/go.mod
LOGS     := $(CURDIR)/.check
# GOTEST runs go test, prints a line per package and the output of failed tests, and
# keeps the events for `make slowest`.
GOTEST   = $(TOOL) gotestsum --format pkgname-and-test-fails --format-hide-empty-pkg --hide-summary skipped --jsonfile

.PHONY: check check-all fmt vet lint build test core program plain modules slowest cross newest integration integration-all fuzz torture mutants bench bench-once golden plots fleet docs

# The core tests wait a lot, for timers and processes; the other stages use that time.
check: fmt  ## run before every commit: under six minutes on two processors
	@$(MAKE) --no-print-directory -j 3 timed-program timed-modules timed-lint
	@echo "make check: all green"

timed-%:  # a stage of make check, with its time
	@start=$$(date +%s); $(MAKE) --no-print-directory $* && echo "make $*: $$(($$(date +%s) - start)) s"

# The stages after core use the packages that it compiled.
timed-program timed-vet: timed-core
timed-lint: timed-vet
timed-modules: timed-plain

# The long runs take about as long as the other stages together: most of it in
# internal/test/firstcopies, internal/slablog and internal/diskqueue, whose time is proportional to FOREBAY_TORTURE.
check-all: FUZZTIME := 5s
check-all: check cross bench-once integration-all mutants fuzz  ## everything, about one hour on two processors: run before resolving an issue about delivery, slabs, spools or a client
	@$(MAKE) --no-print-directory torture FOREBAY_TORTURE=$(or $(FOREBAY_TORTURE),30)
	@echo "make check-all: all green"

fmt:
	@out=$$(git ls-files -co --exclude-standard '*.go' | xargs gofmt -l); if [ -n "$$out" ]; then echo "not formatted (run gofmt -w):"; echo "$$out"; exit 1; fi

# vet and lint use the packages that the tests compiled for the race detector.
vet:
	@for m in $(MODULES); do $(GO) -C $$m vet -race ./... || exit 1; done

lint:  ## staticcheck of every module
	@for m in $(MODULES); do (cd $$m && GOFLAGS="$(GOFLAGS) -race" $(LEAN) $(TOOL) staticcheck ./...) || { echo "staticcheck of $$m failed"; exit 1; }; done

build:  ## every program links; make check compiles all packages, in vet and in their tests
	@for m in $(MODULES); do $(GO) -C $$m build ./... || exit 1; done

test: core program plain modules  ## all of these

core:  ## the main module's unit tests, fuzz seeds and examples, with the race detector
	@mkdir -p $(LOGS)
	$(GOTEST) $(LOGS)/core.json -- -race -vet=off -timeout 10m -p 4 $(SLOW) ./...

plain:  ## without the race detector: the exploration, the simulations, and kills at points within a slab
	@mkdir -p $(LOGS)
	$(GOTEST) $(LOGS)/plain.json -- -vet=off -run '^Test(Explore|Herd|PlanBySimulation|RedactionOfEndlessValuesEnds|RedactionAllocates|RedactionPositions|RedactionLeavesTheRest)' ./deliver ./internal/fleet ./internal/slablog .
	$(GOTEST) $(LOGS)/arch.json -- -vet=off ./internal/arch
	$(GOTEST) $(LOGS)/points.json -- -vet=off -tags forebay_points -run 'AtPoints|AtRecoveryPoints|SummedSlab|BigRecord|WithDelays|UnknownIncludes|HalfStored|ExchangedRecords' ./internal/slablog

program:  ## the program's tests, with the race detector
	@mkdir -p $(LOGS)
	cd cmd && $(GOTEST) $(LOGS)/cmd.json -- -race -vet=off ./...

modules:  ## tests of the other modules
	@mkdir -p $(LOGS)
	@for m in $(ADAPTERS) $(filter-out cmd,$(DRIVERS)); do echo "$$m"; (cd $$m && $(GOTEST) $(LOGS)/$$(echo $$m | tr / -).json -- -race -vet=off ./...) || exit 1; done
	@for m in $(BENCHES) tools; do echo "$$m"; (cd $$m && $(GOTEST) $(LOGS)/$$(echo $$m | tr / -).json -- -vet=off ./...) || exit 1; done

print-%:
	@echo $($*)

slowest:  ## the ten slowest tests of the last `make test`
	@cat $(LOGS)/*.json | $(TOOL) gotestsum tool slowest --threshold 100ms --num 10

cross:  ## the library and the program compile on every platform we support
	@for t in windows/amd64 darwin/arm64 linux/arm64 freebsd/amd64; do echo "vet $$t"; \
		for m in . cmd; do GOOS=$${t%/*} GOARCH=$${t#*/} CGO_ENABLED=0 $(GO) -C $$m vet ./... || exit 1; done; done

newest:  ## core tests and every benchmark once with the newest Go, without the race detector and the walks
	@mkdir -p $(LOGS)
	@for m in . cmd; do GOTOOLCHAIN=$(NEWEST) $(GO) -C $$m vet ./... || exit 1; done
	GOTOOLCHAIN=$(NEWEST) $(GOTEST) $(LOGS)/newest.json -- -skip '$(WALKS)' -timeout 10m ./...
	cd cmd && GOTOOLCHAIN=$(NEWEST) $(GOTEST) $(LOGS)/newest-cmd.json -- -skip '$(WALKS)' -timeout 10m ./...
	GOTOOLCHAIN=$(NEWEST) $(GO) test -run '^$$' -bench . -benchtime 1x ./...

integration:  ## real servers that need no build from source: the OpenTelemetry receiver, npm's FluentServer; the types of Kubernetes, the rules and queries of Prometheus, the container image
	$(GO) -C integration/kubernetes test -count 1 ./...
	$(GO) -C integration/prometheus test -count 1 ./...
	$(GO) -C integration/fluent test -count 1 -timeout 20m ./...
	$(GO) -C integration/otlp test -count 1 ./...
	FOREBAY_IMAGE=1 $(GO) -C cmd test -count 1 -run TestImage ./internal/deploy

integration-all: integration  ## also promtool and Loki (built once, five and ten minutes of processor time) and servers that need a JVM: three brokers of Apache Kafka, an OpenSearch node
	FOREBAY_PROMTOOL_BUILD=1 $(GO) -C integration/prometheus test -count 1 -timeout 20m ./...
	FOREBAY_LOKI_BUILD=1 $(GO) -C integration/loki test -count 1 -timeout 50m ./...
	FOREBAY_KAFKA_BUILD=1 $(GO) -C integration/kafka test -count 1 -timeout 30m ./...
	FOREBAY_OPENSEARCH_BUILD=1 $(GO) -C integration/opensearch test -count 1 -timeout 20m ./...

mutants:  ## each deliberate defect of internal/test/mutants must turn a test red
	$(GO) run ./internal/test/mutants

bench-once:  ## each benchmark runs once
	@for m in . cmd; do $(GO) -C $$m test -run '^$$' -bench . -benchtime 1x ./... || exit 1; done
	@for m in $(BENCHES); do $(GO) -C $$m test -run '^$$' -bench . -benchtime 1x ./... || exit 1; done

bench:  ## ours and the competitors, interleaved: make bench ROWS=regexp
	@any=; for m in $(BENCHES); do \
		if $(GO) -C $$m run . -list -rows '$(ROWS)' >/dev/null 2>&1; then any=1; $(GO) -C $$m run . -rows '$(ROWS)' || exit 1; fi; done; \
		if [ -z "$$any" ]; then for m in $(BENCHES); do $(GO) -C $$m run . -list -rows '$(ROWS)'; done; exit 2; fi

docs:  ## the table and the chart of the README, from bench/results/latest.json
	$(GO) -C bench run ./docs

plots:  ## the picture of the README: the latency of calls while the destination stalls
	$(GO) -C bench run ./spike -plot ../docs/img/spike.svg

fleet:  ## the tables and the picture of docs/FLEET.md
	$(GO) -C bench test ./fleet -run TestPageShowsResultsOfCommand -update

fuzz:  ## every fuzz target of every module for FUZZTIME each
	@./tools/fuzz.sh $(FUZZTIME)

torture:  ## long runs: order, kills, outages; FOREBAY_TORTURE limits their cases
	FOREBAY_TORTURE=$(or $(FOREBAY_TORTURE),1) $(GO) test -timeout 4h -count 1 ./...
	@for m in cmd kafka jetstream; do FOREBAY_TORTURE=$(or $(FOREBAY_TORTURE),1) $(GO) -C $$m test -timeout 4h -count 1 ./... || exit 1; done

golden:  ## rewrite testdata/*.golden
	$(GO) test ./... -update
	$(GO) -C cmd test ./... -update
