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
# FOREBAY_TORTURE is the factor by which make torture multiplies the budgets of random walks.
# make portable skips these walks, with the factor 0.
FOREBAY_TORTURE ?= 10
# PLAIN are the tests that the race detector would falsify or slow down; internal/arch checks that
# every test that is skipped with the detector is one of them.
PLAIN    := Alloc|Explore|Herd|PlanBySimulation|RedactionOfEndless|RedactionPositions|RedactionLeavesTheRest|WidthIsBounded|HugeClasses|LittleMemory
# POINTS are the tests of internal/slablog that stop at points within a slab.
POINTS   := AtPoints|AtRecoveryPoints|SummedSlab|BigRecord|WithDelays|UnknownIncludes|HalfStored|ExchangedRecords

TOOL     = $(GO) tool -modfile=$(CURDIR)/tools/go.mod
LOGS     := $(CURDIR)/.check
# GOTEST runs go test, prints a line per package and the output of failed tests, and
# keeps the events for `make slowest`.
GOTEST   = $(TOOL) gotestsum --format pkgname-and-test-fails --format-hide-empty-pkg --hide-summary skipped --jsonfile

.PHONY: check check-all fmt vet lint build test core program plain modules slowest cross portable newest integration integration-all fuzz torture mutants bench bench-once golden plots fleet docs

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

check-all: FUZZTIME := 5s
check-all: check build cross bench-once integration-all mutants fuzz torture  ## everything, about an hour on two processors: run before resolving an issue about delivery, slabs, spools or a client
	@echo "make check-all: all green"

fmt:
	@out=$$(git ls-files -co --exclude-standard '*.go' | xargs gofmt -l); if [ -n "$$out" ]; then echo "not formatted (run gofmt -w):"; echo "$$out"; exit 1; fi

# vet and lint use the packages that the tests compiled for the race detector.
vet:
	@for m in $(MODULES); do $(GO) -C $$m vet -race ./... || exit 1; done
	@$(GO) vet -race -tags forebay_points ./internal/slablog

lint:  ## staticcheck of every module
	@for m in $(MODULES); do (cd $$m && GOFLAGS="$(GOFLAGS) -race" $(LEAN) $(TOOL) staticcheck ./...) || { echo "staticcheck of $$m failed"; exit 1; }; done

build:  ## every program links; make check compiles all packages, in vet and in their tests
	@for m in $(MODULES); do $(GO) -C $$m build ./... || exit 1; done

test: core program plain modules  ## all of these

core:  ## the main module's unit tests, fuzz seeds and examples, with the race detector
	@mkdir -p $(LOGS)
	$(GOTEST) $(LOGS)/core.json -- -race -vet=off -timeout 10m -p 4 $(SLOW) ./...

plain:  ## without the race detector: allocations, the exploration, the simulations, and kills at points within a slab
	@mkdir -p $(LOGS)
	$(GOTEST) $(LOGS)/plain.json -- -vet=off -run '$(PLAIN)' . ./accesslog ./bufpool ./deliver ./encode ./fluent ./internal/diskqueue ./internal/fleet ./internal/slablog ./internal/testkit/allocs ./internal/values ./loki ./otlp
	cd cmd && $(GOTEST) $(LOGS)/plain-cmd.json -- -vet=off -run '$(PLAIN)' ./internal/program ./internal/transform
	cd adapters/zap && $(GOTEST) $(LOGS)/plain-zap.json -- -vet=off -run '$(PLAIN)' .
	$(GOTEST) $(LOGS)/arch.json -- -vet=off ./internal/arch
	$(GOTEST) $(LOGS)/points.json -- -vet=off -tags forebay_points -run '$(POINTS)' ./internal/slablog

program:  ## the program's tests, with the race detector
	@mkdir -p $(LOGS)
	cd cmd && $(GOTEST) $(LOGS)/cmd.json -- -race -vet=off ./...

modules:  ## tests of the other modules
	@mkdir -p $(LOGS)
	@for m in $(ADAPTERS) $(filter-out cmd,$(DRIVERS)); do echo "$$m"; (cd $$m && $(GOTEST) $(LOGS)/$$(echo $$m | tr / -).json -- -race -vet=off ./...) || exit 1; done
	@for m in $(BENCHES) tools; do echo "$$m"; (cd $$m && $(GOTEST) $(LOGS)/$$(echo $$m | tr / -).json -- -vet=off ./...) || exit 1; done

print-%:
	@echo '$($*)'

slowest:  ## the ten slowest tests of the last runs of all targets except torture
	@ls $(LOGS)/*.json >/dev/null 2>&1 || { echo "make slowest: $(LOGS) has no results; run make check first" >&2; exit 1; }
	@cat $(LOGS)/*.json | $(TOOL) gotestsum tool slowest --threshold 100ms --num 10

cross:  ## the library and the program compile on every platform we support
	@for t in windows/amd64 darwin/arm64 linux/arm64 linux/386 freebsd/amd64; do echo "vet $$t"; \
		for m in . cmd; do GOOS=$${t%/*} GOARCH=$${t#*/} CGO_ENABLED=0 $(GO) -C $$m vet ./... || exit 1; done; done

portable: export FOREBAY_TORTURE := 0
portable:  ## vet, the tests of the library and of the program, and the benchmarks of the library once, without the race detector and without random walks
	@mkdir -p $(LOGS)
	@for m in . cmd; do $(GO) -C $$m vet ./... || exit 1; done
	$(GOTEST) $(LOGS)/portable.json -- -vet=off -timeout 10m ./...
	cd cmd && $(GOTEST) $(LOGS)/portable-cmd.json -- -vet=off -timeout 10m ./...
	$(GO) test -vet=off -run '^$$' -bench . -benchtime 1x ./...

newest:  ## make portable with the newest Go
	GOTOOLCHAIN=$(NEWEST) $(MAKE) --no-print-directory portable

integration:  ## real servers that need no build from source: the OpenTelemetry receiver, npm's FluentServer; the types of Kubernetes, the rules and queries of Prometheus, the container image
	@mkdir -p $(LOGS)
	cd integration/kubernetes && $(GOTEST) $(LOGS)/kubernetes.json -- -count 1 ./...
	cd integration/prometheus && $(GOTEST) $(LOGS)/prometheus.json -- -count 1 ./...
	cd integration/fluent && $(GOTEST) $(LOGS)/fluent.json -- -count 1 -timeout 20m ./...
	cd integration/otlp && $(GOTEST) $(LOGS)/otlp.json -- -count 1 ./...
	cd cmd && FOREBAY_IMAGE=1 $(GOTEST) $(LOGS)/image.json -- -count 1 -run TestImage ./internal/deploy

integration-all: integration  ## also promtool and Loki (built once, five and ten minutes of processor time) and servers that need a JVM: three brokers of Apache Kafka, an OpenSearch node
	cd integration/prometheus && FOREBAY_PROMTOOL_BUILD=1 $(GOTEST) $(LOGS)/promtool.json -- -count 1 -timeout 20m ./...
	cd integration/loki && FOREBAY_LOKI_BUILD=1 $(GOTEST) $(LOGS)/loki.json -- -count 1 -timeout 50m ./...
	cd integration/kafka && FOREBAY_KAFKA_BUILD=1 $(GOTEST) $(LOGS)/kafka-server.json -- -count 1 -timeout 30m ./...
	cd integration/opensearch && FOREBAY_OPENSEARCH_BUILD=1 $(GOTEST) $(LOGS)/opensearch.json -- -count 1 -timeout 20m ./...

mutants:  ## each deliberate defect of internal/test/mutants must turn a test red: make mutants NAMES='05 17'
	$(GO) run ./internal/test/mutants $(NAMES)

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

torture: export FOREBAY_TORTURE := $(FOREBAY_TORTURE)
torture:  ## every walk, exploration and kill test with FOREBAY_TORTURE times the cases of make check
	$(GO) test -vet=off -timeout 4h -count 1 ./...
	$(GO) test -vet=off -timeout 4h -count 1 -tags forebay_points -run '$(POINTS)' ./internal/slablog
	@for m in cmd cmd/forebay-all kafka jetstream; do $(GO) -C $$m test -vet=off -timeout 4h -count 1 ./... || exit 1; done

golden:  ## rewrite testdata/*.golden
	$(GO) test ./... -update
	$(GO) -C cmd test ./... -update
