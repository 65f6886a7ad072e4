package laws

import (
	"strings"
	"testing"
)

// layers lists, for each room, the rooms of this module that it may import, itself included.
var layers = []struct {
	room string
	may  []string
}{
	{"protocol", []string{"protocol"}},
	{"shard/fieldtest", []string{"shard/fieldtest"}},
	{"shard/formattest", []string{"shard/formattest"}},
	{"shard/container", []string{"shard/container"}},
	{"shard/queue", []string{"shard/queue", "shard/container", "protocol"}},
	{"shard/meta", []string{"shard/meta", "protocol"}},
	{"shard/rollout", []string{"shard/rollout", "protocol"}},
	{"shard/ratelimit", []string{"shard/ratelimit", "shard/container", "protocol"}},
	{"shard/leader", []string{"shard/leader", "shard", "shard/container", "shard/process", "shard/process/relay", "shard/ratelimit", "protocol"}},
	{"shard/process/relay", []string{"shard/process/relay", "protocol"}},
	{"shard/process", []string{"shard/process", "protocol"}},
	{"shard/replica", []string{"shard/replica", "shard/leader", "shard/process/relay", "shard/ratelimit", "shard/meta", "shard", "protocol"}},
	{"shard", []string{"shard", "shard/container", "shard/queue", "shard/process", "shard/ratelimit", "shard/rollout", "protocol"}},
	{"client/process/msgpack", []string{"client"}},
	{"client/grpcsignalbox", []string{"client/grpcsignalbox", "client"}},
	{"client", []string{"client", "protocol"}},
	{"server/peer", []string{"server/peer", "protocol", "shard/replica/beat"}},
	{"server/fanout", []string{"server/fanout"}},
	{"server/clienthost", []string{"server/clienthost"}},
	{"server/transport", []string{"server/transport", "server/fanout", "server/clienthost", "server/logging", "server/metrics", "protocol", "shard/container", "shard/replica/beat"}},
	{"server/session", []string{"server/session", "server/transport", "protocol", "shard", "shard/container", "shard/leader", "shard/meta", "shard/ratelimit"}},
	{"server/request", []string{"server/request", "server/fanout", "server/clienthost", "server/logging", "server/transport", "server/session", "server/delivery", "server/auth", "server/trust", "server/audit", "server/metrics", "server/governor", "server/operator", "protocol", "shard", "shard/leader", "shard/meta", "shard/ratelimit", "shard/replica"}},
	{"server/shardhost", []string{"server/shardhost", "server/request", "server/delivery", "server/session", "server/transport", "server/membership", "server/cluster", "server/governor", "server/backup", "server/metrics", "server/busiest", "server/audit", "server/file", "protocol", "shard", "shard/leader", "shard/meta", "shard/ratelimit", "shard/replica"}},
	{"server/busiest", []string{"server/busiest", "protocol", "shard", "shard/container"}},
	{"server/delivery", []string{"server/delivery", "server/fanout", "protocol", "shard"}},
	{"server/cluster", []string{"server/cluster", "protocol", "server/peerdiscovery", "server/file", "server/governor", "server/peer", "shard", "shard/meta", "shard/replica/beat"}},
	{"server/governor", []string{"server/governor", "protocol", "shard", "shard/meta", "shard/replica/beat"}},
	{"server/peerdiscovery", []string{"server/peerdiscovery"}},
	{"server/failuredetector", []string{"server/failuredetector", "protocol"}},
	{"server/backup", []string{"server/backup", "server/file", "protocol", "shard", "shard/meta", "shard/replica/beat"}},
	{"server/admin", []string{"server/admin", "server/clienthost", "server/web"}},
	{"server/audit", []string{"server/audit", "server/file", "shard/meta"}},
	{"server/certs", []string{"server/certs", "server/file", "shard/replica/beat"}},
	{"server/file", []string{"server/file"}},
	{"server/logging", []string{"server/logging"}},
	{"server/release", []string{"server/release"}},
	{"server/auth", []string{"server/auth", "server/trust", "shard/meta"}},
	{"server/trust/trusttest", []string{"client"}},
	{"server/trust", []string{"server/trust", "shard/meta", "protocol"}},
	{"server/issuer", []string{"server/issuer", "server/file", "server/trust", "shard/meta", "protocol"}},
	{"server/datafolder", []string{"server/datafolder", "server/file", "shard/replica"}},
	{"server/recovery", []string{"server/recovery", "server/backup", "server/cluster", "server/datafolder", "shard", "shard/meta", "shard/replica", "protocol"}},
	{"server/metrics", []string{"server/metrics", "server/file", "protocol"}},
	{"server/membership", []string{"server/membership", "server/cluster", "server/governor", "server/failuredetector", "server/metrics", "shard/meta", "shard/replica", "protocol"}},
	{"server/operator", []string{"server/operator", "server/auth", "server/trust", "server/audit", "server/governor", "shard/meta", "protocol"}},
	{"server/web", []string{"server/web", "server/clienthost", "shard/container"}},
	{"server/console", []string{"server/console", "server/clienthost", "server/web", "client", "protocol"}},
	{"server/httpapi", []string{"server/httpapi", "server/clienthost", "server/metrics", "server/web", "client", "protocol"}},
	{"server", []string{"server", "shard", "client", "protocol"}},
	{"loadgen", []string{"loadgen", "client", "protocol"}},
	{"bench/limits", []string{"shard/replica/wal"}},
	{"bench/cmd", []string{"bench", "shard/replica/timerslack"}},
	{"bench", []string{"bench", "loadgen", "client", "protocol", "server"}},
	{"cmd/signalbox-ydb", []string{"cmd/signalbox-ydb", "client", "server/admin", "server/certs", "server/file", "server/logging", "server/release", "protocol"}},
	{"cmd/signalbox-mcp", []string{"cmd/signalbox-mcp", "client", "server/release", "protocol/boottime"}},
	{"cmd/signalbox/processtree", []string{"cmd/signalbox/processtree", "server/servertest/await"}},
	{"cmd/signalbox/settings", []string{"cmd/signalbox/settings", "server/file"}},
	{"cmd/signalbox/supervise", []string{"cmd/signalbox/supervise", "cmd/signalbox/processtree"}},
	{"cmd/signalbox/terminal", []string{"cmd/signalbox/terminal"}},
	{"cmd/signalbox/explain", []string{"cmd/signalbox/explain", "cmd/signalbox/terminal", "client"}},
	{"cmd", []string{"cmd", "server", "loadgen", "bench", "client", "protocol", "shard/replica/beat", "shard/replica/timerslack", "shard/rollout"}},
}

// modules lists the foreign modules that rooms may import beyond the standard library; rooms that
// are not named may import any direct dependency.
var modules = map[string][]string{
	"protocol":               {"github.com/vmihailenco/msgpack/v5", "github.com/cespare/xxhash/v2"},
	"shard":                  {},
	"shard/container":        {},
	"shard/fieldtest":        {},
	"shard/formattest":       {},
	"shard/meta":             {},
	"shard/leader":           {},
	"shard/process":          {},
	"shard/process/relay":    {},
	"shard/queue":            {},
	"shard/ratelimit":        {},
	"shard/rollout":          {},
	"client":                 {},
	"client/process/msgpack": {"github.com/vmihailenco/msgpack/v5"},
	"server/peer": {
		"github.com/lni/dragonboat/v4/config", "github.com/lni/dragonboat/v4/raftio", "github.com/lni/dragonboat/v4/raftpb",
		"github.com/vmihailenco/msgpack/v5",
	},
}

func layerOf(dir string) int {
	for i, a := range layers {
		if a.room == "shard" && dir != "shard" {
			continue // the rooms below shard have lines of their own
		}
		if inFolder(dir, a.room) {
			return i
		}
	}
	return -1
}

func TestImportsFollowTheLayers(t *testing.T) {
	list, _ := packages(t)
	for _, p := range list {
		i := layerOf(p.dir)
		if i < 0 {
			t.Errorf("%s is in no room of the house: give it a place inside one, or its room a line here", p.dir)
			continue
		}
		a := layers[i]
		for name, f := range p.files {
			for _, path := range importPaths(f) {
				if rest, ok := strings.CutPrefix(path, module+"/"); ok {
					ok := false
					for _, m := range a.may {
						ok = ok || rest == m || (m != "shard" && inFolder(rest, m)) ||
							(m == "shard" && a.room == "server" && inFolder(rest, m))
					}
					if !ok {
						t.Errorf("%s imports %s: %s may import %v only", name, rest, a.room, a.may)
					}
					continue
				}
				allowed, strict := modules[a.room]
				if !strict || stdlib(path) {
					continue
				}
				ok := false
				for _, m := range allowed {
					ok = ok || path == m
				}
				if !ok {
					t.Errorf("%s imports %s: %s may import of other modules %v only", name, path, a.room, allowed)
				}
			}
		}
	}
}
