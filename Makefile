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
  server/failuredetector server/httpapi/machine shard shard/container shard/fieldtest shard/formattest shard/leader shard/leader/idset \
  shard/meta shard/process shard/process/relay shard/queue shard/ratelimit shard/rollout
sequential = $(filter $(SEQUENTIAL:%=github.com/signalbox-dev/signalbox/%),$(packages))

# Packages whose tests run the command line as processes, hundreds of them. What runs at once inside of these is tested
# with the race detector in the packages that they are made of; `make race` has these too.
PROCESSES := bench cmd/signalbox loadgen server/deploy
processes = $(filter $(PROCESSES:%=github.com/signalbox-dev/signalbox/%),$(packages))
concurrent = $(filter-out $(sequential) $(processes),$(packages))

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
	cd cmd/release && SIGNALBOX_RELEASE=$(CURDIR)/bin/release go test -count 1 -v -timeout 30m .

# What a release wrote, from its own binary in OUT, for the tests of the releases after it.
KEPT = $(CURDIR)/server/testdata/releases/$(VERSION)
keep: ## keep what the release VERSION writes, with its binary in OUT (default dist), in server/testdata/releases; the next commit has it
	@test -n "$(VERSION)" || { echo "name the release: make keep VERSION=1.2.3"; exit 1; }
	rm -rf bin/keep $(KEPT) && mkdir -p bin/keep $(KEPT)
	tar -xzf $(or $(OUT),dist)/signalbox_$(VERSION)_$$(go env GOOS)_$$(go env GOARCH).tar.gz -C bin/keep --strip-components 1
	cp protocol/testdata/vectors.json cmd/signalbox/testdata/cli.json $(KEPT)
	cp server/cluster/testdata/format-$$(bin/keep/signalbox version -o json | sed -n '/"peer"/{n;s/[^0-9]//g;p}').golden $(KEPT)/peer.golden
	SIGNALBOX_KEEP=$(KEPT) SIGNALBOX_KEEP_BINARY=$(CURDIR)/bin/keep/signalbox go test -count 1 ./server ./server/metrics ./cmd/signalbox -run '^(TestKeptFormats|TestKeptMetrics|TestKeep)$$'

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

# The race detector holds up the end of each process by a second, unless it is told otherwise.
test: ## everything that must pass: format, vet, all tests, with the race detector where anything runs at once
	@test -n "$(RACE)" || echo "no C compiler found: the tests run without the race detector"
	@f=$$(git ls-files '*.go' | xargs -r gofmt -l); test -z "$$f" || { echo "not gofmt-ed:"; echo "$$f"; exit 1; }
	go vet ./...
	$(eval packages := $(shell go list $(PKGS)))
	@test -n "$(packages)"
	@$(if $(sequential)$(processes),go test -vet=off -timeout 40m $(TESTFLAGS) $(processes) $(sequential))
	@$(if $(concurrent),GORACE="atexit_sleep_ms=10 $$GORACE" go test $(RACE) -vet=off -timeout 40m $(TESTFLAGS) $(concurrent))
	cd $(YDB) && go vet ./... && go test -timeout 5m ./...
	cd $(YDB)/sdktest && go vet ./... && go test -parallel 4 -timeout 5m ./...
	cd $(MCP) && go vet ./... && go test -timeout 5m $(TESTFLAGS) ./...
	cd server/console/browsertest && go vet . && go test -short -timeout 5m .
	cd cmd/release && go vet ./... && go test -timeout 5m $(TESTFLAGS) ./...
	cd server/deploy/charttest && go vet . && go test -timeout 5m $(TESTFLAGS) .
	cd client/otelsignalbox && go vet ./... && go test $(TESTFLAGS) ./...
	cd client/grpcsignalbox && go vet ./... && go test $(RACE) -timeout 20m $(TESTFLAGS) ./...

ydb: ## the long tests of the gateway for YDB clients, and the figures of its page, about 5 minutes; with YDB's JavaScript SDK where npm brings it
	cd $(YDB)/sdktest && SIGNALBOX_YDB_LONG=1 go test -v -timeout 30m ./...

race: ## the packages that run the command line, with the race detector too, about 10 minutes
	GORACE="atexit_sleep_ms=10 $$GORACE" go test -race -vet=off -timeout 40m $(TESTFLAGS) $(PROCESSES:%=./%)

quick: ## the tests without the race detector and without the long ones
	go test -short $(TESTFLAGS) $(PKGS)

long: ## the long forms of the tests too, about half an hour; random ones go on for LONG each (default 1m)
	SIGNALBOX_LONG=$(or $(LONG),1m) go test -timeout 2h $(TESTFLAGS) $(PKGS)

pages: ## the tests of lists, with pages of two entries in place of a thousand, about 3 minutes
	@d=$$(mktemp -d) && sed 's/PageEntries = 1_000/PageEntries = 2/' shard/page.go >$$d/page.go && \
	  sed 's/MaxPage     = 1000/MaxPage = 2/' server/governor/list.go >$$d/list.go && \
	  ! cmp -s $$d/page.go shard/page.go && ! cmp -s $$d/list.go server/governor/list.go && \
	  printf '{"Replace":{"%s":"%s","%s":"%s"}}' $(CURDIR)/shard/page.go $$d/page.go $(CURDIR)/server/governor/list.go $$d/list.go >$$d/overlay.json && \
	  go test -short -overlay $$d/overlay.json $(TESTFLAGS) ./client/... ./server/backup ./server/console ./server/httpapi ./server/request; \
	  s=$$?; rm -r $$d; exit $$s

simulate: ## SEEDS simulated runs (default 10,000, a few minutes), or one, SEED, again, which is then shrunk
	go test ./client/internal/sim -run '^TestSimulate$$' -v -timeout 24h $(if $(SEED),-seed $(SEED),-seeds $(or $(SEEDS),10000) -first $(or $(FIRST),1))

planted: ## plant faults in the code, one at a time, and see that each is found
	go test -tags planted ./client/internal/sim -run Planted -v -timeout 3h

chaos: ## three instances under faults of forty kinds for MINUTES (default 48: each comes 20 times), every call judged; the report goes to bench/results/chaos.md
	SIGNALBOX_CHAOS=$(or $(MINUTES),48) SIGNALBOX_CHAOS_REPORT=$(CURDIR)/bench/results/chaos.md \
	  go test ./server/chaos -run 'TestCheckedHistories|TestStoppedClients' -v -timeout 24h

upgrades: ## ROUNDS (default 10) random rounds of a rolling upgrade, back and up again, under load; and a version that writes its new format early must be found
	SIGNALBOX_UPGRADES=$(or $(ROUNDS),10) go test ./server/chaos -run 'TestRollingUpgrade|TestUpgradeWithoutGate' -v -timeout 24h

flood: ## 10,000 hostile connections of fifteen kinds beside honest clients and 100,000 idle sessions, about 8 minutes; the report goes to bench/results/flood.md
	SIGNALBOX_FLOOD=$(CURDIR)/bench/results/flood.md go test ./server/chaos -run TestFlood -v -timeout 1h

browser: ## all tests of the console in Chromium, about two minutes, with axe-core where npm brings it; those of make test are the short ones
	cd server/console/browsertest && go test -count 1 -v .

screenshot: ## remake the README's picture of the console, server/console/console.png, with Chromium
	cd server/console/browsertest && SIGNALBOX_SCREENSHOT=$(CURDIR)/server/console/console.png go test -count 1 -run '^TestScreenshot$$' -v .

pods: ## the life of the StatefulSet's pods, as root, about 13 minutes: starts, updates, scaling, lost volumes, restores, and mistakes that must be found
	SIGNALBOX_PODS=1 go test ./server/chaos -run '^(TestPods|TestPodsMistakes)$$' -v -timeout 30m

panels: ## ask a real Prometheus whether each panel of the dashboards shows data under load, about a minute
	SIGNALBOX_PANELS=1 go test ./server/deploy -run '^TestPanelsShowData$$' -v

golden: ## rewrite golden files and scripts; review the result as a diff
	go test ./protocol ./bench ./loadgen ./shard ./shard/leader ./shard/meta ./shard/replica/logstore ./shard/replica/wal ./shard/process/... ./shard/ratelimit ./shard/rollout \
	  ./server/backup ./server/cluster ./server/delivery ./server/failuredetector ./server/httpapi/machine ./server/governor ./server/metrics \
	  ./client/internal/core ./client/discovery ./client/internal/membership ./client/internal/sessionstate ./client/ratelimit ./cmd/signalbox/top -update
	go test ./client -run TestSavedFormat -update
	go run ./server/deploy/monitoring/dashboards server/deploy/monitoring
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

# Measurements of one system are tests with SIGNALBOX_FULL: their figures are in the tests' log.
FULL := SIGNALBOX_FULL=1 go test ./server/chaos -v -count 1 -timeout 3h -run

bench-discovery: ## one service of 5,000 members with 2,000 watchers, and its leader killed, about 6 minutes
	$(FULL) '^TestLargeService$$'

bench-ratelimit: bench-tools ## rate limits: local decisions beside Redis, 10,000 participants, shares, about 5 minutes
	cd bench/peers && go test -run '^$$' -bench Decision -count 5 .
	$(FULL) '^(TestLimitParticipants|TestLimitShares)$$'

bench-http: bench-tools ## locks and limits by HTTP beside etcd's gateway and Redis, and STREAMS (10,000) held for HELD (10m), about 15 minutes; writes bench/results/http.md
	cd bench/peers && go test -count 1 -v -timeout 1h -run '^TestHTTP$$' . -args -out ../results/http.md \
	  -rounds $(or $(ROUNDS),5) -length 3s -polls 1000 -streams $(or $(STREAMS),10000) -held $(or $(HELD),10m)

bench-restart: ## restarts, and snapshots beside a load, with a million semaphores and 100,000 sessions
	$(FULL) '^TestRestartWithManyNames$$'

bench-scale: bench-tools ## three, six and twelve instances with 5 % of a core each, about 18 minutes, as root
	./bin/bench scale

bench-sessions: bench-tools ## a million sessions on three instances, and what happens to them
	./bin/bench sessions

soak: ## two hours of mixed load, restarts, rollouts, moves and kills, and what grows meanwhile
	SIGNALBOX_SOAK=2h go test ./server/chaos -v -count 1 -timeout 3h -run '^TestSoak$$'

bench-failover: bench-tools ## how long writers wait when the leader is killed, stopped or cut off, beside etcd, about 25 minutes, as root; writes bench/results
	./bin/bench-peers failover

# The peers live in a module of their own. Redis and ZooKeeper come from the system's packages: a peer that is missing is named in the report.
bench-tools: build
	go build -o bin/bench ./bench/cmd
	cd bench/peers && go build -o ../../bin/bench-peers . && go build -o ../../bin/etcd go.etcd.io/etcd/server/v3

check: ## staticcheck and govulncheck, at pinned versions
	go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...
	go run golang.org/x/vuln/cmd/govulncheck@v1.9.0 ./...

clean: ## remove what make built
	rm -rf bin

.PHONY: help pages pods build gateway run cluster monitoring panels dev test race quick long simulate planted upgrades flood golden fuzz micro bench bench-quick bench-discovery bench-ratelimit bench-http bench-restart bench-scale bench-sessions soak bench-failover bench-tools check clean chaos ydb browser screenshot release release-test keep
