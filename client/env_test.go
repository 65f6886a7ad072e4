package client_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/certs/certstest"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// setEnv sets these of the variables, and no others.
func setEnv(t *testing.T, vars map[string]string) {
	t.Helper()
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "SIGNALBOX_") {
			t.Setenv(name, "")
		}
	}
	for name, value := range vars {
		t.Setenv(name, value)
	}
}

func TestFromEnv(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	token, junk := write("token", " id.secret\n"), write("junk", "no certificate")
	for name, c := range map[string]struct {
		env       map[string]string
		endpoints []string
		node      string
		token     string
		tls       bool
		err       string // a part of the error; empty: fine
	}{
		"nothing":     {nil, []string{"127.0.0.1:7070"}, "/default", "", false, ""},
		"endpoints":   {map[string]string{"SIGNALBOX_ENDPOINTS": " a:1, b:2,"}, []string{"a:1", "b:2"}, "/default", "", false, ""},
		"node":        {map[string]string{"SIGNALBOX_NODE": "/billing"}, []string{"127.0.0.1:7070"}, "/billing", "", false, ""},
		"token":       {map[string]string{"SIGNALBOX_TOKEN_FILE": token}, []string{"127.0.0.1:7070"}, "/default", "id.secret", false, ""},
		"TLS":         {map[string]string{"SIGNALBOX_TLS": "true"}, []string{"127.0.0.1:7070"}, "/default", "", true, ""},
		"cluster":     {map[string]string{"SIGNALBOX_CLUSTER": "prod"}, []string{"127.0.0.1:7070"}, "/default", "", false, ""},
		"no TLS":      {map[string]string{"SIGNALBOX_TLS": "false"}, []string{"127.0.0.1:7070"}, "/default", "", false, ""},
		"server name": {map[string]string{"SIGNALBOX_TLS_SERVER_NAME": "x"}, []string{"127.0.0.1:7070"}, "/default", "", true, ""},
		"no session":  {env: map[string]string{"SIGNALBOX_SESSION": "mine"}, err: `SIGNALBOX_SESSION is "mine", which is no session's id`},
		"no port":     {env: map[string]string{"SIGNALBOX_ENDPOINTS": "here"}, err: `SIGNALBOX_ENDPOINTS: "here" is not host:port`},
		"commas":      {env: map[string]string{"SIGNALBOX_ENDPOINTS": " , "}, err: "names no instance"},
		"no token":    {env: map[string]string{"SIGNALBOX_TOKEN_FILE": dir + "/none"}, err: "SIGNALBOX_TOKEN_FILE: open"},
		"endless":     {env: map[string]string{"SIGNALBOX_TOKEN_FILE": "/dev/zero"}, err: "is longer than"},
		"empty token": {env: map[string]string{"SIGNALBOX_TOKEN_FILE": write("blank", " \n")}, err: "blank is empty"},
		"endless CA":  {env: map[string]string{"SIGNALBOX_TLS_CA": "/dev/zero"}, err: "SIGNALBOX_TLS_CA: /dev/zero is longer than"},
		"endless pair": {env: map[string]string{"SIGNALBOX_TLS_CERT": "/dev/zero", "SIGNALBOX_TLS_KEY": junk},
			err: "SIGNALBOX_TLS_CERT: /dev/zero is longer than"},
		"endless key": {env: map[string]string{"SIGNALBOX_TLS_CERT": junk, "SIGNALBOX_TLS_KEY": "/dev/zero"},
			err: "SIGNALBOX_TLS_KEY: /dev/zero is longer than"},
		"maybe TLS": {env: map[string]string{"SIGNALBOX_TLS": "maybe"}, err: `SIGNALBOX_TLS is "maybe"`},
		"key alone": {env: map[string]string{"SIGNALBOX_TLS_KEY": junk}, err: "go together"},
		"junk":      {env: map[string]string{"SIGNALBOX_TLS_CA": junk}, err: "SIGNALBOX_TLS_CA: " + junk},
		"junk pair": {env: map[string]string{"SIGNALBOX_TLS_CERT": junk, "SIGNALBOX_TLS_KEY": junk}, err: "SIGNALBOX_TLS_CERT with"},
	} {
		t.Run(name, func(t *testing.T) {
			setEnv(t, c.env)
			cfg, node, err := client.FromEnv()
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("%v, want %q", err, c.err)
				}
				return
			}
			var token []byte
			if err == nil && cfg.GetToken != nil {
				token, err = cfg.GetToken(t.Context())
			}
			if err != nil || !slices.Equal(cfg.Endpoints, c.endpoints) || node != c.node ||
				string(token) != c.token || (cfg.TLS != nil) != c.tls {
				t.Errorf("%+v, %q, %v", cfg, node, err)
			}
		})
	}
}

// TestFromEnvConnects: what the variables say is enough for a session.
func TestFromEnvConnects(t *testing.T) {
	srv := servertest.Start(t, servertest.Config(func(c *server.Config) { c.Shards = 1 }))
	setEnv(t, map[string]string{"SIGNALBOX_ENDPOINTS": srv.Addr(), "SIGNALBOX_SESSION": "77"})
	cfg, node, err := client.FromEnv()
	must(t, err)
	c, err := client.Open(testContext(t), cfg)
	must(t, err)
	defer c.CloseWithoutRelease()
	s, err := c.Session(testContext(t), node)
	must(t, err)
	info, err := admin.OfNode(s.Node()).DescribeSession(testContext(t), s.ID())
	must(t, err)
	if info.Parent != 77 {
		t.Errorf("the session's parent is %d", info.Parent)
	}

	dir := t.TempDir()
	ca := certstest.New(t)
	cert, key := ca.Issue(t, dir, "me")
	setEnv(t, map[string]string{"SIGNALBOX_TLS_CA": ca.Write(t, dir), "SIGNALBOX_TLS_CERT": cert,
		"SIGNALBOX_TLS_KEY": key, "SIGNALBOX_TLS_SERVER_NAME": "box"})
	cfg, _, err = client.FromEnv()
	must(t, err)
	pair, err := cfg.TLS.GetClientCertificate(nil)
	must(t, err)
	roots, err := cfg.GetRootCAs(t.Context())
	if err != nil || len(pair.Certificate) == 0 || !roots.Equal(ca.Pool()) || cfg.TLS.ServerName != "box" {
		t.Errorf("%+v, %v", cfg.TLS, err)
	}
}
