# Every target works from a clean checkout on a machine with Go; nothing else is needed.
GO      ?= go
ADAPTERS := adapters/zap adapters/zerolog adapters/grpc adapters/examples examples
DRIVERS := kafka jetstream otlpgrpc cmd/forebay-all
BENCHES := bench bench/loki bench/logf bench/kafka bench/jetstream bench/otlp
MODULES := . $(BENCHES) integration integration/fluent integration/loki integration/otlp integration/kubernetes integration/kafka integration/opensearch tools $(ADAPTERS) $(DRIVERS)
FUZZTIME ?= 30s

.PHONY: check fmt vet lint test race integration integration-all fuzz torture bench bench-logf bench-once build golden cross plots docs

check: fmt vet lint build test bench-once  ## everything CI runs
	@echo "make check: all green"

fmt:
	@out=$$(gofmt -l .); if [ -n "$$out" ]; then echo "not formatted (run gofmt -w):"; echo "$$out"; exit 1; fi

vet:
	@for m in $(MODULES); do $(GO) -C $$m vet ./... || exit 1; done

lint:  ## staticcheck of every module
	@for m in $(MODULES); do echo "staticcheck $$m"; \
		(cd $$m && $(GO) tool -modfile=$(CURDIR)/tools/go.mod staticcheck ./...) || exit 1; done

build:
	@for m in $(MODULES); do echo "build $$m"; $(GO) -C $$m build ./... || exit 1; done

cross:  ## the library and the program compile everywhere they claim to
	@for t in windows/amd64 darwin/arm64 linux/arm64 freebsd/amd64; do echo "build $$t"; \
		GOOS=$${t%/*} GOARCH=$${t#*/} CGO_ENABLED=0 $(GO) build ./... || exit 1; done

test:  ## unit tests with the race detector, fuzz seeds and examples
	$(GO) test -race -timeout 20m ./...
	$(GO) test -tags forebay_points -timeout 10m ./slab
	$(GO) test -run 'TestExplore$$' -timeout 10m ./deliver
	@for m in $(BENCHES); do $(GO) -C $$m test ./... || exit 1; done
	@for m in $(ADAPTERS) $(DRIVERS); do $(GO) -C $$m test -race ./... || exit 1; done

race: test

integration:  ## real servers: the OpenTelemetry receiver, npm's FluentServer, Loki (built once, ten minutes of processor time); the types of Kubernetes
	$(GO) -C integration/kubernetes test -count 1 ./...
	$(GO) -C integration/fluent test -count 1 -timeout 20m ./...
	$(GO) -C integration/otlp test -count 1 ./...
	FOREBAY_LOKI_BUILD=1 $(GO) -C integration/loki test -count 1 -timeout 50m ./...

integration-all: integration  ## also what needs a JVM: three brokers of Apache Kafka, a node of OpenSearch (jars from Maven Central, once)
	FOREBAY_KAFKA_BUILD=1 $(GO) -C integration/kafka test -count 1 -timeout 30m ./...
	FOREBAY_OPENSEARCH_BUILD=1 $(GO) -C integration/opensearch test -count 1 -timeout 20m ./...

bench-once:  ## each benchmark runs once
	$(GO) test -run '^$$' -bench . -benchtime 1x ./...
	@for m in $(BENCHES); do $(GO) -C $$m test -run '^$$' -bench . -benchtime 1x ./... || exit 1; done

bench:  ## ours and the rivals, interleaved: make bench ROWS=regexp
	@any=; for m in $(BENCHES); do \
		if $(GO) -C $$m run . -list -rows '$(ROWS)' >/dev/null 2>&1; then any=1; $(GO) -C $$m run . -rows '$(ROWS)' || exit 1; fi; done; \
		if [ -z "$$any" ]; then for m in $(BENCHES); do $(GO) -C $$m run . -list -rows '$(ROWS)'; done; exit 2; fi

bench-logf:  ## the rows with logf, whose source is yours: make bench-logf LOGF=/path/to/logf
	@test -f '$(LOGF)/slabwriter.go' || { echo 'make bench-logf LOGF=/path/to/logf: no source of logf v2 there'; exit 2; }
	@dir=$$(mktemp -d) && trap 'rm -r '"$$dir" EXIT && cp bench/logf/go.mod bench/logf/go.sum "$$dir" && \
		$(GO) mod edit -require=github.com/ssgreg/logf/v2@v2.0.0 -replace='github.com/ssgreg/logf/v2=$(abspath $(LOGF))' "$$dir/go.mod" && \
		commit=$(or $(LOGF_COMMIT),$$(git -C '$(LOGF)' rev-parse --short=12 HEAD)) && \
		$(GO) -C bench/logf run -tags logf -mod=mod -modfile="$$dir/go.mod" -ldflags "-X main.commit=$$commit" . -rows '$(ROWS)' $(BENCHFLAGS)

docs:  ## the table and the chart of the README, from bench/results/latest.json
	$(GO) -C bench run ./docs

plots:  ## the picture of the README: what callers notice of a stall
	$(GO) run ./cmd/forebay spike --plot docs/img/spike.svg

fuzz:  ## every fuzz target of every module for FUZZTIME each
	@./tools/fuzz.sh $(FUZZTIME)

torture:  ## long runs: order, kills, outages
	FOREBAY_TORTURE=1 $(GO) test -timeout 4h -count 1 ./...

golden:  ## rewrite testdata/*.golden
	$(GO) test ./... -update
