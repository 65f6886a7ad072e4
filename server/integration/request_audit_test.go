package integration

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
)

// TestRequestsAreAudited: what changes the cluster, its nodes, who may do what, or takes from
// clients that work, is in the audit log with who asked for it and of what, and no secret is.
func TestRequestsAreAudited(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "audit")
	s := guarded(t, func(c *server.Config) { c.Audit = file })
	root, boss := adminClient(t, s, rootSecret), as(t, s, rootSecret)
	boss.must(protocol.KindNodeCreate, 0, &protocol.NodeCreate{Path: "/audited"}, &protocol.NodeInfo{})
	secret := issue(t, root, "alice")
	grant(t, root, "alice", "/audited", "use")
	node := boss.node()
	session := boss.session(node, 1)
	boss.must(protocol.KindCreate, boss.bucket(node, "taken"),
		&protocol.Create{Head: boss.head(session.Session), Name: []byte("taken"), Limit: 1}, nil)
	boss.must(protocol.KindDelete, boss.bucket(node, "taken"),
		&protocol.Delete{Head: boss.head(session.Session), Name: []byte("taken"), Force: true}, nil)
	for _, m := range []struct {
		kind protocol.Kind
		name string
		of   func(h protocol.Head, name []byte) protocol.Message
	}{
		{protocol.KindCreate, "busy", func(h protocol.Head, name []byte) protocol.Message {
			return &protocol.Create{Head: h, Name: name, Limit: 1}
		}},
		{protocol.KindUpdate, "busy", func(h protocol.Head, name []byte) protocol.Message {
			return &protocol.Update{Head: h, Name: name, Data: []byte("of-a-program")}
		}},
		{protocol.KindCreate, "why-created", func(h protocol.Head, name []byte) protocol.Message {
			return &protocol.Create{Head: h, Name: name, Limit: 1, Reason: "because-1"}
		}},
		{protocol.KindUpdate, "why-created", func(h protocol.Head, name []byte) protocol.Message {
			return &protocol.Update{Head: h, Name: name, Data: []byte("of-a-person"), Reason: "because-2"}
		}},
		{protocol.KindResize, "why-created", func(h protocol.Head, name []byte) protocol.Message {
			return &protocol.Resize{Head: h, Name: name, Limit: 4711}
		}},
		{protocol.KindDelete, "why-created", func(h protocol.Head, name []byte) protocol.Message {
			return &protocol.Delete{Head: h, Name: name, Reason: "because-3"}
		}},
		{protocol.KindLimitCreate, "why-limited", func(h protocol.Head, name []byte) protocol.Message {
			return &protocol.LimitCreate{Head: h, Path: name, Config: protocol.LimitConfig{Rate: 5000}, Reason: "because-4"}
		}},
		{protocol.KindLimitAlter, "why-limited", func(h protocol.Head, name []byte) protocol.Message {
			return &protocol.LimitAlter{Head: h, Path: name, Config: protocol.LimitConfig{Rate: 6000}, Reason: "because-5"}
		}},
		{protocol.KindLimitDelete, "why-limited", func(h protocol.Head, name []byte) protocol.Message {
			return &protocol.LimitDelete{Head: h, Path: name, Reason: "because-6"}
		}},
		{protocol.KindCreate, protocol.ConfigPrefix + "flags", func(h protocol.Head, name []byte) protocol.Message {
			return &protocol.Create{Head: h, Name: name, Limit: 1}
		}},
		{protocol.KindUpdate, protocol.ConfigPrefix + "flags", func(h protocol.Head, name []byte) protocol.Message {
			return &protocol.Update{Head: h, Name: name, Data: []byte("x"), Expected: 1}
		}},
		{protocol.KindDelete, protocol.ConfigPrefix + "flags", func(h protocol.Head, name []byte) protocol.Message {
			return &protocol.Delete{Head: h, Name: name}
		}},
	} {
		boss.must(m.kind, boss.bucket(node, m.name), m.of(boss.head(session.Session), []byte(m.name)), nil)
	}
	on := []byte(`{"on":true,"Secret":"of-somebody-who-wrote-it-large"}`) // as it is already
	_ = boss.call(protocol.KindCluster, 0, &protocol.Cluster{Method: protocol.MethodAuthSwitch, Body: on}, &protocol.ClusterReply{})
	ask := func(method, in string) error {
		return boss.call(protocol.KindCluster, 0, &protocol.Cluster{Method: method, Body: []byte(in)}, &protocol.ClusterReply{})
	}
	long := "/" + strings.Repeat("x", protocol.MaxPathLen-1)
	if err := ask(protocol.MethodGrant, `{"path":"`+long+`","identity":"of-long","right":"read"}`); err != nil {
		t.Error(err)
	}
	reason := strings.Repeat("é", 1000)
	if err := ask(protocol.MethodDrain, `{"instance":"no-such","reason":"`+reason+`"}`); !errors.Is(err, protocol.StatusNotFound) {
		t.Errorf("drain of an instance that there is not: %v", err)
	}
	// Members that the method does not know hide none that it knows.
	unknown := `"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"j":1,"k":1,"l":1,"m":1`
	if err := ask(protocol.MethodGrant, `{`+unknown+`,"path":"/behind","identity":"of-behind","right":"read"}`); err != nil {
		t.Error(err)
	}
	if err := ask(protocol.MethodGrant, `{`+unknown+`,"n":1,"path":"/more","identity":"of-more","right":"read"}`); !errors.Is(err,
		protocol.StatusBadRequest) {
		t.Errorf("a document with 17 members: %v", err)
	}
	text := audited(t, s, file,
		`"asked_path":"`+long+`"`, `"asked_instance":"no-such","asked_reason":"`+reason[:400], `"asked_identity":"of-behind"`,
		`"asked_path":"/behind"`,
		`"title":"ask_node_create"`, `"node":"/audited"`, `"initiator":"admin"`, `"title":"ask_auth_token_create"`,
		`"asked_identity":"alice"`, `"title":"ask_auth_grant"`,
		`"asked_path":"/audited"`, `"asked_right":"use"`, `"title":"ask_force_delete"`, `"semaphore":"taken"`,
		`"title":"ask_create"`, `"semaphore":"why-created","limit":1,"bytes":0,"reason":"because-1"`,
		`"title":"ask_update"`, `"semaphore":"why-created","if_version":0,"bytes":11,"reason":"because-2"`,
		`"title":"ask_resize"`, `"semaphore":"why-created","limit":4711,"if_version":0,"remote"`, `"reason":"because-3"`,
		`"resource":"why-limited","reason":"because-4"`, `"resource":"why-limited","reason":"because-5"`,
		`"resource":"why-limited","reason":"because-6"`,
		`"semaphore":"$config/flags","limit":1`, `"semaphore":"$config/flags","if_version":1`,
		`"semaphore":"$config/flags","session"`, `"title":"ask_auth_turn"`, `"asked_on":true`,
	)
	for _, hidden := range []string{secret, rootSecret, "of-somebody", "of-a-p", "busy"} {
		if strings.Contains(text, hidden) {
			t.Errorf("the audit log has a secret in\n%s", text)
		}
	}
}

// TestAuditLogAsItIs: an answer with the audit log is as long as its lines, whatever characters are
// in them.
func TestAuditLogAsItIs(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "audit")
	line := `{"reason":"` + strings.Repeat("<>&", 700) + `"}` + "\n"
	if err := os.WriteFile(file, []byte(strings.Repeat(line, 110)), 0o600); err != nil {
		t.Fatal(err)
	}
	c := connect(t, start(t, func(c *server.Config) { c.Audit = file }))
	var reply protocol.ClusterReply
	c.must(protocol.KindCluster, 0, &protocol.Cluster{Method: protocol.MethodAuditLog, Body: []byte(`{"lines":120}`)}, &reply)
	var log protocol.AuditLog
	if err := json.Unmarshal(reply.Body, &log); err != nil || !slices.Contains(log.Lines, strings.TrimSpace(line)) {
		t.Errorf("%d lines, %v", len(log.Lines), err)
	}
}

// audited closes a server, so that its audit log is whole, and has every one of the texts in it. It
// returns the log.
func audited(t *testing.T, s *instance, file string, wants ...string) string {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range wants {
		if !strings.Contains(string(text), want) {
			t.Errorf("the audit log lacks %s in\n%s", want, text)
		}
	}
	return string(text)
}
