# Targets explain themselves: `make` prints the comment behind each.
.DEFAULT_GOAL := help
SHELL := /bin/bash

# The race detector needs a C compiler; without one the tests run without it, and say so.
RACE := $(shell command -v $${CC:-gcc} >/dev/null 2>&1 && echo -race)
TESTFLAGS ?=
PKGS ?= ./...

help: ## print the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Packages in which nothing runs at the same time as anything else, in their tests too; a law sees to
# it. The race detector has nothing to find in them, and makes them ten times slower.
SEQUENTIAL := client/internal/core client/internal/membership client/internal/millis client/internal/sessionstate client/internal/sim \
  client/internal/sim/remotesession client/internal/waitgraph cmd/laws protocol protocol/varint \
  server/failuredetector server/httpapi/machine shard shard/container shard/fieldtest shard/formattest shard/leader \
  shard/meta shard/process shard/process/relay shard/queue shard/ratelimit shard/rollout
sequential = $(filter $(SEQUENTIAL:%=github.com/signalbox-dev/signalbox/%),$(packages))

# Packages whose tests run the command line as processes, hundreds of them. What runs at once inside of these is tested
# with the race detector in the packages that they are made of.
PROCESSES := bench cmd/signalbox loadgen server/deploy
processes = $(filter $(PROCESSES:%=github.com/signalbox-dev/signalbox/%),$(packages))
# Packages whose tests have whole clusters or many callers: beside the race detector each wants both processors.
CLUSTERS := server/httpapi server/integration server/servertest
concurrent = $(filter-out $(sequential) $(processes) $(CLUSTERS:%=github.com/signalbox-dev/signalbox/%) %/server/chaos,$(packages))

# The gateway for YDB clients is a module of its own, so that this one needs no gRPC; so are its tests against YDB's SDKs.
YDB := cmd/signalbox-ydb
# So is the server of tools for agents, which needs the protocol's SDK.
MCP := cmd/signalbox-mcp

# A release is built so as well: what is tested is what is shipped.
BUILD := CGO_ENABLED=0 go build -trimpath

build: ## build ./bin/signalbox
	@mkdir -p bin
	$(BUILD) -o bin/signalbox ./cmd/signalbox

release: ## make the release VERSION (or SNAPSHOT=1: this tree as it is) in OUT (default dist), signed with SIGN_KEY
	cd cmd/release && go run . -out $(abspath $(or $(OUT),dist)) $(if $(SNAPSHOT),-snapshot,-version '$(VERSION)') $(if $(SIGN_KEY),-key $(abspath $(SIGN_KEY)))

release-test: ## make a snapshot's files in ./bin/release and use each of them, a few minutes; as root, and with debootstrap, rpm and skopeo, all of it
	rm -rf bin/release && $(MAKE) release SNAPSHOT=1 OUT=bin/release
	cd cmd/release && go test -count 1 -v -timeout 30m . -dist $(CURDIR)/bin/release

# What a release wrote, from its own binary in OUT, for the tests of the releases after it.
KEPT = $(CURDIR)/server/testdata/releases/$(VERSION)
keep: ## keep what the release VERSION writes, with its binary in OUT (default dist), in server/testdata/releases; the next commit has it
	@test -n "$(VERSION)" || { echo "name the release: make keep VERSION=1.2.3"; exit 1; }
	rm -rf bin/keep $(KEPT) && mkdir -p bin/keep $(KEPT)
	tar -xzf $(or $(OUT),dist)/signalbox_$(VERSION)_$$(go env GOOS)_$$(go env GOARCH).tar.gz -C bin/keep --strip-components 1
	cp protocol/testdata/vectors.json cmd/signalbox/testdata/cli.json $(KEPT)
	cp server/cluster/testdata/format-$$(bin/keep/signalbox version -o json | sed -n '/"peer"/{n;s/[^0-9]//g;p}').golden $(KEPT)/peer.golden
	go test -count 1 ./server ./server/metrics -run '^(TestKeptFormats|TestKeptMetrics)$$' -keep $(KEPT)
	go test -count 1 ./cmd/signalbox -run '^TestKeep$$' -keep $(KEPT) -keep-binary $(CURDIR)/bin/keep/signalbox

gateway: build ## build ./bin/signalbox, the gateway for YDB clients and the server for agents, ./bin/signalbox-ydb and ./bin/signalbox-mcp
	cd $(YDB) && $(BUILD) -o ../../bin/signalbox-ydb .
	cd $(MCP) && $(BUILD) -o ../../bin/signalbox-mcp .

run: build ## build and start an instance on ./signalbox-data, and show what to paste next
	./bin/signalbox serve --data ./signalbox-data --console 127.0.0.1:7073 --http 127.0.0.1:7074 --tour

cluster: build ## build and start three instances on ./signalbox-data/cluster, and show what to paste next
	./server/deploy/cluster.sh

monitoring: ## start Prometheus (Debian's package) beside `make cluster`, with the alert rules
	./server/deploy/monitoring/prometheus.sh

dev: build ## build and start an instance on a temporary folder
	./bin/signalbox dev

# What runs in which form, a test says itself: server/servertest/form. Tests wait more than they work, so that more of
# them run at once than there are processors. Without cgo, and with the flags of `build`, programs that tests start are
# compiled once with the tests.
GOTEST := go test -vet=off -p 4 -parallel 8 -timeout 15m
PURE := CGO_ENABLED=0 GOFLAGS=-trimpath
# The race detector holds up the end of each process by a second, unless it is told otherwise.
RACED := GORACE="atexit_sleep_ms=10 $$GORACE" GOFLAGS=-trimpath SIGNALBOX_TEST=full go test -vet=off -timeout 20m $(RACE)
WITHTESTS := go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}'
MODULES := $(YDB) $(YDB)/sdktest $(MCP) cmd/release server/deploy/charttest server/trust/oracletest client/otelsignalbox client/grpcsignalbox

# vet compiles what it looks at, as the tests do.
vet:
	@f=$$(git ls-files '*.go' | xargs -r gofmt -l); test -z "$$f" || { echo "not gofmt-ed:"; echo "$$f"; exit 1; }
	@$(PURE) go vet ./...

test: vet ## what a person waits for before a commit: format, vet, each package's tests, 4 minutes on two cores with nothing built
	@$(PURE) $(GOTEST) $(TESTFLAGS) $$($(WITHTESTS) $(PKGS))

FULL := check commands race integration chaos modules browser
full: ## what CI waits for before a merge, 25 minutes, or one PART of it: check commands race integration chaos modules browser
	@failed=; for p in $(or $(PART),$(FULL)); do echo "make full PART=$$p"; $(MAKE) --no-print-directory full-$$p || failed="$$failed $$p"; done; \
	test -z "$$failed" || { echo "FAIL: make full PART=... failed for$$failed"; exit 1; }

full-check: vet
	@go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...
	@GOBIN=$(CURDIR)/bin go install golang.org/x/vuln/cmd/govulncheck@v1.9.0
	@./bin/govulncheck ./...; case $$? in 0) ;; 3) exit 1;; *) echo "govulncheck: not run, as its database is not reached";; esac

full-commands:
	@$(eval packages := $(shell $(WITHTESTS) $(PKGS)))
	@$(PURE) SIGNALBOX_TEST=full $(GOTEST) $(TESTFLAGS) $(processes) $(sequential)

full-race:
	@test -n "$(RACE)" || echo "no C compiler found: the tests run without the race detector"
	@$(eval packages := $(shell $(WITHTESTS) $(PKGS)))
	@$(RACED) -p 2 -parallel 4 $(TESTFLAGS) $(concurrent)

full-integration:
	@$(RACED) -p 1 -parallel 5 $(TESTFLAGS) $(CLUSTERS:%=./%)

full-chaos:
	@$(PURE) SIGNALBOX_TEST=full $(GOTEST) $(TESTFLAGS) ./server/chaos

full-modules:
	@failed=; for m in $(MODULES); do echo "module $$m"; (cd $$m && go vet ./... && SIGNALBOX_TEST=full $(GOTEST) $(TESTFLAGS) ./...) || failed="$$failed $$m"; done; \
	test -z "$$failed" || { echo "FAIL: the tests of$$failed"; exit 1; }

full-browser:
	@cd server/console/browsertest && go vet . && SIGNALBOX_TEST=full $(GOTEST) $(TESTFLAGS) .

LONG := tests chaos modules browser simulate planted fuzz
long: ## what the night waits for, hours, or one PART of it: tests chaos modules browser simulate planted fuzz
	@for p in $(or $(PART),$(LONG)); do echo "make long PART=$$p"; $(MAKE) --no-print-directory long-$$p || exit 1; done

NIGHT := $(PURE) SIGNALBOX_TEST=long go test -vet=off -p 2 -timeout 5h
long-tests:
	@$(NIGHT) $(TESTFLAGS) $$($(WITHTESTS) $(PKGS) | grep -v /server/chaos$$)

long-chaos:
	@$(NIGHT) -v $(TESTFLAGS) ./server/chaos

long-modules:
	@set -e; for m in $(MODULES); do echo "module $$m"; (cd $$m; SIGNALBOX_TEST=long go test -timeout 1h $(TESTFLAGS) ./...); done

long-browser:
	@cd server/console/browsertest && SIGNALBOX_TEST=long go test -timeout 1h $(TESTFLAGS) .

long-simulate: simulate
long-planted: planted
long-fuzz: fuzz

SOAK := chaos flood soak panels
soak: ## what a day before a release waits for, or one PART of it: chaos flood soak panels; reports go to bench/results
	@for p in $(or $(PART),$(SOAK)); do echo "make soak PART=$$p"; $(MAKE) --no-print-directory soak-$$p || exit 1; done

DAY := SIGNALBOX_TEST=soak go test -v -count 1 -timeout 24h
soak-chaos:
	$(DAY) ./server/chaos -run 'TestCheckedHistories|TestStoppedClients' -minutes $(or $(MINUTES),48) -report $(CURDIR)/bench/results/chaos.md

soak-flood:
	$(DAY) ./server/chaos -run '^TestFlood$$' -report $(CURDIR)/bench/results/flood.md

soak-soak:
	$(DAY) ./server/chaos -run '^TestSoak$$' -length $(or $(LENGTH),2h)

soak-panels:
	$(DAY) ./server/deploy -run '^TestPanelsShowData$$'

simulate: ## SEEDS simulated runs (default 10,000, a few minutes), or one, SEED, again, which is then shrunk
	go test ./client/internal/sim -run '^TestSimulate$$' -v -timeout 24h $(if $(SEED),-seed $(SEED),-seeds $(or $(SEEDS),10000) -first $(or $(FIRST),1))

planted: ## plant faults in the code, one at a time, and see that each is found
	go test -tags planted ./client/internal/sim -run Planted -v -timeout 3h

screenshot: ## remake the README's picture of the console, server/console/console.png, with Chromium
	cd server/console/browsertest && go test -count 1 -run '^TestScreenshot$$' -v . -screenshot $(CURDIR)/server/console/console.png

golden: ## rewrite golden files and scripts; review the result as a diff
	go test ./protocol ./bench ./loadgen ./shard ./shard/leader ./shard/meta ./shard/replica/logstore ./shard/replica/wal ./shard/process/... ./shard/ratelimit ./shard/rollout \
	  ./server/backup ./server/cluster ./server/delivery ./server/deploy/monitoring/dashboards ./server/failuredetector ./server/httpapi/machine ./server/governor ./server/metrics \
	  ./client/internal/core ./client/discovery ./client/internal/membership ./client/internal/sessionstate ./client/ratelimit -update
	go test ./client -run TestSavedFormat -update
	go test ./cmd/signalbox -run 'TestScripts|TestReference' -update
	go test ./server/httpapi -run TestOpenAPI -update
	cd server/deploy/charttest && go test . -update
	cd $(YDB) && go test . -run TestReference -update

fuzz: ## fuzz each target for FUZZTIME (default 30s)
	@for d in . $(MCP); do cd $(CURDIR)/$$d; for p in $$(go list ./...); do for t in $$(go test $$p -list '^Fuzz' | grep '^Fuzz'); do \
	  echo "fuzz $$p $$t"; go test $$p -run '^$$' -fuzz "^$$t$$" -fuzztime $(or $(FUZZTIME),30s) || exit 1; done; done; done

micro: ## the Go micro-benchmarks
	go test -run '^$$' -bench . -benchmem $(PKGS)

bench: bench-tools ## compare with the peers side by side, about 110 minutes; writes bench/results
	./bin/bench-peers run

bench-quick: bench-tools ## the same with fewer and shorter rounds, about 17 minutes
	./bin/bench-peers run -quick

# Measurements of one system are tests of the form soak: their figures are in the tests' log.
MEASURE := SIGNALBOX_TEST=soak go test ./server/chaos ./bench -v -count 1 -timeout 3h -run

bench-discovery: ## one service of 5,000 members with 2,000 watchers, and its leader killed, about 6 minutes
	$(MEASURE) '^TestLargeService$$'

bench-ratelimit: bench-tools ## rate limits: local decisions beside Redis, 10,000 participants, shares, about 5 minutes
	cd bench/peers && go test -run '^$$' -bench Decision -count 5 .
	$(FULL) '^(TestLimitParticipants|TestLimitShares)$$'

bench-http: bench-tools ## locks and limits by HTTP beside etcd's gateway and Redis, and STREAMS (10,000) held for HELD (10m), about 15 minutes; writes bench/results/http.md
	cd bench/peers && go test -count 1 -v -timeout 1h -run '^TestHTTP$$' . -args -out ../results/http.md \
	  -rounds $(or $(ROUNDS),5) -length 3s -polls 1000 -streams $(or $(STREAMS),10000) -held $(or $(HELD),10m)

bench-restart: ## restarts, and snapshots beside a load, with a million semaphores and 100,000 sessions
	$(MEASURE) '^TestRestartWithManyNames$$'

bench-scale: ## three, six and twelve instances with 5 % of a core each, about 18 minutes, as root
	$(MEASURE) '^TestScale$$'

bench-sessions: ## a million sessions on three instances, and what happens to them
	$(MEASURE) '^TestSessions$$'

bench-failover: bench-tools ## how long writers wait when the leader is killed, stopped or cut off, beside etcd, about 25 minutes, as root; writes bench/results
	./bin/bench-peers failover

# The peers live in a module of their own. Redis and ZooKeeper come from the system's packages: a peer that is missing is named in the report.
bench-tools: build
	go build -o bin/bench ./bench/cmd
	cd bench/peers && go build -o ../../bin/bench-peers . && go build -o ../../bin/etcd go.etcd.io/etcd/server/v3

clean: ## remove what make built
	rm -rf bin

.PHONY: help build gateway run cluster monitoring dev vet test full long soak simulate planted golden fuzz micro bench bench-quick bench-discovery bench-ratelimit bench-http bench-restart bench-scale bench-sessions bench-failover bench-tools clean screenshot release release-test keep $(FULL:%=full-%) $(LONG:%=long-%) $(SOAK:%=soak-%)
