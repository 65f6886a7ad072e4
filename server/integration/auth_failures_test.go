package integration

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// TestUnknownNodesLookForbidden: to an identity without rights every request about a node is
// answered with the same words, whether the node exists, was dropped, or has never been.
func TestUnknownNodesLookForbidden(t *testing.T) {
	t.Parallel()
	s := guarded(t, nil)
	root, boss := adminClient(t, s, rootSecret), as(t, s, rootSecret)
	var secretNode, gone protocol.NodeInfo
	boss.must(protocol.KindNodeCreate, 0, &protocol.NodeCreate{Path: "/secret"}, &secretNode)
	boss.must(protocol.KindNodeCreate, 0, &protocol.NodeCreate{Path: "/gone"}, &gone)
	boss.must(protocol.KindNodeDelete, 0, &protocol.NodeDelete{Path: "/gone", Force: true, Reason: "test"}, &protocol.Empty{})
	stranger := as(t, s, issue(t, root, "stranger"))
	key := make([]byte, protocol.KeyLen)
	name, text := []byte("name"), "reason"
	requests := map[protocol.Kind]func(node uint64) protocol.Message{
		protocol.KindSessionStart: func(n uint64) protocol.Message {
			return &protocol.SessionStart{Node: n, CreateID: key, Key: key, Timeout: 10_000, Nonce: 1}
		},
		protocol.KindDescribe:    func(n uint64) protocol.Message { return &protocol.Describe{Node: n, Name: name} },
		protocol.KindList:        func(n uint64) protocol.Message { return &protocol.List{Node: n} },
		protocol.KindSessionKill: func(n uint64) protocol.Message { return &protocol.SessionKill{Node: n, Session: 1, Reason: text} },
		protocol.KindForceRelease: func(n uint64) protocol.Message {
			return &protocol.ForceRelease{Node: n, Name: name, First: 1, Last: 1, Reason: text}
		},
		protocol.KindSemaphoreHistory: func(n uint64) protocol.Message {
			return &protocol.SemaphoreHistory{Node: n, Name: name}
		},
		protocol.KindSessionAttach: func(n uint64) protocol.Message {
			return &protocol.SessionAttach{Session: 1, Node: n, Epoch: 2, Key: key, Timeout: 10_000, Nonce: 1}
		},
		protocol.KindSessionDescribe: func(n uint64) protocol.Message { return &protocol.SessionDescribe{Session: 1, Node: n} },
		protocol.KindSessionList:     func(n uint64) protocol.Message { return &protocol.SessionList{Node: n} },
		protocol.KindSessionObjects:  func(n uint64) protocol.Message { return &protocol.SessionObjects{Node: n, Session: 1} },
		protocol.KindWatch:           func(n uint64) protocol.Message { return &protocol.Watch{Shard: 2, Node: n, Name: name} },
		protocol.KindProcessList:     func(n uint64) protocol.Message { return &protocol.ProcessList{Node: n} },
		protocol.KindProcessWatch:    func(n uint64) protocol.Message { return &protocol.ProcessWatch{Node: n, Name: name} },
		protocol.KindProcessAlter:    func(n uint64) protocol.Message { return &protocol.ProcessAlter{Node: n, Name: name} },
		protocol.KindProcessForceRound: func(n uint64) protocol.Message {
			return &protocol.ProcessForceRound{Node: n, Name: name, Text: text}
		},
		protocol.KindTrackHistory: func(n uint64) protocol.Message {
			return &protocol.TrackHistory{Node: n, Name: name, Location: "SAS"}
		},
		protocol.KindTrackList:       func(n uint64) protocol.Message { return &protocol.TrackList{Node: n} },
		protocol.KindTrackWatch:      func(n uint64) protocol.Message { return &protocol.TrackWatch{Node: n, Name: name} },
		protocol.KindProcessDescribe: func(n uint64) protocol.Message { return &protocol.ProcessDescribe{Node: n, Name: name} },
		protocol.KindProcessEvict: func(n uint64) protocol.Message {
			return &protocol.ProcessEvict{Node: n, Name: name, Session: 1, Text: text}
		},
		protocol.KindTrackDescribe: func(n uint64) protocol.Message { return &protocol.TrackDescribe{Node: n, Name: name} },
		protocol.KindLimitDescribe: func(n uint64) protocol.Message { return &protocol.LimitDescribe{Node: n, Path: name} },
		protocol.KindLimitList:     func(n uint64) protocol.Message { return &protocol.LimitList{Node: n} },
		protocol.KindLimitWatch: func(n uint64) protocol.Message {
			return &protocol.LimitWatch{Node: n, Path: name, Session: 1}
		},
	}
	distinguish := func(who string) {
		t.Helper()
		for kind, request := range requests {
			said := ""
			for _, node := range []uint64{secretNode.ID, gone.ID, gone.ID + 2, 1 << 40} {
				err := stranger.call(kind, 0, request(node), &protocol.Empty{})
				if !errors.Is(err, protocol.StatusForbidden) {
					t.Errorf("%s: %s on node %d is answered %v", who, kind, node, err)
				}
				if said != "" && said != fmt.Sprint(err) {
					t.Errorf("%s: %s on node %d is told apart: %v, not %s", who, kind, node, err, said)
				}
				said = fmt.Sprint(err)
			}
		}
	}
	distinguish("without a right")
	for _, path := range []string{"/secret", "/gone", "/never", "/secret/below"} {
		if err := stranger.call(protocol.KindNodeDescribe, 0, &protocol.NodeDescribe{Path: path},
			&protocol.NodeInfo{}); !errors.Is(err, protocol.StatusForbidden) {
			t.Errorf("%s is answered %v", path, err)
		}
	}
	// Nor to one that has rights elsewhere.
	var elsewhere protocol.NodeInfo
	boss.must(protocol.KindNodeCreate, 0, &protocol.NodeCreate{Path: "/elsewhere"}, &elsewhere)
	grant(t, root, "stranger", "/elsewhere", "admin")
	await.True(t, "the right", func() bool {
		return stranger.call(protocol.KindList, 0, &protocol.List{Node: elsewhere.ID}, &protocol.ListReply{}) == nil
	})
	distinguish("with a right elsewhere")
	// An identity with rights everywhere learns what does not exist.
	for _, node := range []uint64{elsewhere.ID + 1, 1 << 40} {
		if err := boss.call(protocol.KindDescribe, 0, &protocol.Describe{Node: node, Name: name},
			&protocol.Empty{}); !errors.Is(err, protocol.StatusNotFound) {
			t.Errorf("node %d is answered %v to an identity with all rights", node, err)
		}
	}
}

// TestFailuresOfOneNetwork: refused credentials from addresses of one IPv6 network count together.
// The log has the whole address.
func TestFailuresOfOneNetwork(t *testing.T) {
	t.Parallel()
	var lines logLines
	s := guarded(t, func(c *server.Config) { c.Logger = slog.New(slog.NewTextHandler(&lines, nil)) })
	hello := protocol.AppendFrame(nil, protocol.KindHello, 1, 0,
		&protocol.Hello{Magic: protocol.Magic, Version: 1, Token: []byte("wrong")})
	for _, c := range []struct{ remote, failures string }{
		{"[2001:db8::1]:1", "1"}, {"[2001:db8::2]:1", "2"}, {"[2001:db8:0:1::1]:1", "1"},
	} {
		p := s.Transport.NewPipe(c.remote)
		p.Read(hello)
		await.True(t, "the line about "+c.remote, func() bool { return lines.has(c.remote, "failures="+c.failures+" ") })
		p.Disconnect()
	}
}

// TestMetricsNames: while auth is on, what clients have named is not in the metrics, unless the
// configuration says so.
func TestMetricsNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		auth         bool
		names        string
		shown, paths bool
	}{{false, "", true, true}, {false, "off", false, false}, {true, "auto", false, false}, {true, "nodes", false, true}, {true, "on", true, true}} {
		t.Run(fmt.Sprintf("auth %v, names %q", c.auth, c.names), func(t *testing.T) {
			t.Parallel()
			s := start(t, func(x *server.Config) {
				x.MetricsNames = c.names
				if c.auth {
					x.Auth, x.AdminToken = true, rootSecret
				}
			})
			boss := as(t, s, rootSecret)
			var n protocol.NodeInfo
			boss.must(protocol.KindNodeCreate, 0, &protocol.NodeCreate{Path: "/merger-with-acme"}, &n)
			r := boss.session(n.ID, 1)
			if _, err := boss.lock(n.ID, r.Session, "project-x", 0); err != nil {
				t.Fatal(err)
			}
			boss.must(protocol.KindTrackCreate, boss.bucket(n.ID, "plans"),
				&protocol.TrackCreate{Head: boss.head(r.Session), Name: []byte("plans"), Config: trackConfig()}, nil)
			var out strings.Builder
			s.Metrics.WritePrometheus(&out)
			for name, want := range map[string]bool{`node="/merger-with-acme"`: c.paths, "acme": c.paths, "project-x": c.shown, "plans": c.shown} {
				if got := strings.Contains(out.String(), name); got != want {
					t.Errorf("%q in the metrics: %v, want %v", name, got, want)
				}
			}
			if !strings.Contains(out.String(), "signalbox_node_used{") {
				t.Error("the use of quotas is not in the metrics")
			}
		})
	}
	if _, err := startServer(t.Context(), server.Config{MetricsNames: "maybe"}); err == nil || !strings.Contains(err.Error(), "maybe") {
		t.Errorf("a setting that there is not: %v", err)
	}
}
