package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"

	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
)

// TestNamedContextIsAWholeConnection: with a context that a flag names, no variable of the
// environment decides where to connect or with which credentials, whether the context has the
// setting or not. Else the token of one cluster would go to an address of another.
func TestNamedContextIsAWholeConnection(t *testing.T) {
	path := filepath.Join(t.TempDir(), "client.yaml")
	text := "current: bare\ncontexts:\n  staging: {endpoints: 'staging:7070', token-file: token, tls: true, output: jsonl}\n" +
		"  bare: {node: /bare}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, s := range settings.OfClient {
		value := "prod"
		if s.Bool {
			value = "true"
		}
		t.Setenv(s.Env(), value)
	}
	t.Setenv("SIGNALBOX_CONTEXT", "bare")
	t.Setenv("SIGNALBOX_CLIENT_CONFIG", path)
	t.Setenv("SIGNALBOX_OUTPUT", "json")
	t.Setenv("SIGNALBOX_TIMEOUT", "7s")
	for _, x := range []struct {
		args []string
		want map[string]string
	}{
		{[]string{"--context", "staging"}, map[string]string{"endpoints": "staging:7070", "node": "/default", "token-file": "token",
			"tls": "true", "tls-ca": "", "tls-cert": "", "tls-key": "", "tls-server-name": "", "timeout": "7s", "output": "jsonl"}},
		{[]string{"--context", "bare"}, map[string]string{"endpoints": "127.0.0.1:7070", "node": "/bare", "token-file": "", "tls": "false"}},
		{[]string{"--context", "staging", "--node", "/mine"}, map[string]string{"endpoints": "staging:7070", "node": "/mine", "token-file": "token"}},
		{[]string{"--client-config", path}, map[string]string{"endpoints": "127.0.0.1:7070", "node": "/bare", "token-file": ""}},
		{nil, map[string]string{"endpoints": "prod", "node": "prod", "token-file": "prod", "tls": "true", "output": "json"}},
	} {
		a := &app{}
		c := &cobra.Command{Use: "verb", RunE: func(cmd *cobra.Command, _ []string) error { return a.resolveClient(cmd) }}
		settings.AddFlags(c.Flags(), settings.Client)
		c.SetArgs(append([]string{}, x.args...))
		if err := c.Execute(); err != nil {
			t.Fatal(err)
		}
		for key, want := range x.want {
			if got := a.values[key]; got != want {
				t.Errorf("%q: %s is %q, want %q", x.args, key, got, want)
			}
		}
	}
}
