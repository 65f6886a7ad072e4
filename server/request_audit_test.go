package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestRequestsAreAudited: what changes the cluster, its nodes, who may do what, or takes from
// clients that work, is in the audit log with who asked for it and of what, and no secret is.
func TestRequestsAreAudited(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit")
	s := guarded(t, func(c *Config) { c.Audit = file })
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
	on := []byte(`{"on":true,"Secret":"of-somebody-who-wrote-it-large"}`) // as it is already
	_ = boss.call(protocol.KindCluster, 0, &protocol.Cluster{Method: protocol.MethodAuthSwitch, Body: on}, &protocol.ClusterReply{})
	text := audited(t, s, file,
		`"title":"ask_node_create"`, `"node":"/audited"`, `"initiator":"admin"`, `"title":"ask_auth_token_create"`,
		`"asked_identity":"alice"`, `"title":"ask_auth_grant"`,
		`"asked_path":"/audited"`, `"asked_right":"use"`, `"title":"ask_force_delete"`, `"semaphore":"taken"`,
		`"title":"ask_auth_turn"`, `"asked_on":true`,
	)
	for _, hidden := range []string{secret, rootSecret, "of-somebody"} {
		if strings.Contains(text, hidden) {
			t.Errorf("the audit log has a secret in\n%s", text)
		}
	}
}

// audited closes a server, so that its audit log is whole, and has every one of the texts in it. It
// returns the log.
func audited(t *testing.T, s *Server, file string, wants ...string) string {
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
