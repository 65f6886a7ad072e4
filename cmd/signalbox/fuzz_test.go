package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
)

// FuzzConfigFile reads any bytes as the configuration file of serve, and as that of clients: they
// are settings that are known, or an error of the command line.
func FuzzConfigFile(f *testing.F) {
	f.Add([]byte("shards: 3\nlisten: 127.0.0.1:0\npeer: [a:1, b:1]\nfailure-domain: {DC: 1}\n"))
	f.Add([]byte("current: a\ncontexts:\n  a: {endpoints: [x:1], output: json}\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte("a: &a {x: 1}\n<<: *a\nshards: *a\n"))
	f.Add([]byte("peer: {a: }\n"))
	f.Add([]byte("peer: {a: [b]}\n"))
	f.Add([]byte("- 1\n---\n\xff"))
	path := filepath.Join(f.TempDir(), "config")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		for sc, read := range map[settings.Scope]func() (map[string]string, error){
			settings.Serve: func() (map[string]string, error) { return settings.ReadServeFile(path) },
			settings.Client: func() (map[string]string, error) {
				f, err := settings.ReadClientFile(path)
				if err != nil {
					return nil, err
				}
				return f.Settings("")
			},
		} {
			values, err := read()
			var wrong *settings.Error
			if err != nil && !errors.As(err, &wrong) {
				t.Fatalf("an error that is not of the command line: %v", err)
			}
			for key := range values {
				if !settings.IsFileKey(sc, key) {
					t.Fatalf("key %q is taken, and nobody knows it", key)
				}
			}
			if err != nil || sc != settings.Serve {
				continue
			}
			a := newApp(t.Context(), nil, io.Discard, io.Discard)
			cmd := serveCmd(a)
			resolved, err := settings.Resolve(cmd, settings.Serve, values, false)
			if err == nil {
				_, err = serverConfig(a, withoutFiles(resolved))
			}
			if err != nil && !errors.As(err, &wrong) {
				t.Fatalf("an error that is not of the command line: %v", err)
			}
		}
	})
}

// withoutFiles leaves out what names files to be read: a fuzzer would name devices.
func withoutFiles(v map[string]string) map[string]string {
	for key := range v {
		if strings.HasSuffix(key, "-file") {
			v[key] = ""
		}
	}
	return v
}

// FuzzFlags gives any arguments, one a line, to each verb's flags: they are taken, or refused with
// an error of the command line.
func FuzzFlags(f *testing.F) {
	f.Add("serve\n--shards\n3\n--peer=a:1,b:1\n--failure-domain\nDC=1,DC=2")
	f.Add("sem\nforce-release\nx\n--token\n-1")
	f.Add("cluster\nrecover\n--survivor\na\n--survivor=b")
	f.Add("lock\nx\n--wait=1h\n--\n-x")
	f.Add("node\ncreate\n/a\n--max-sessions=18446744073709551616")
	f.Add("--\n-\n---")
	f.Fuzz(func(t *testing.T, text string) {
		args := strings.Split(text, "\n")
		a := newApp(t.Context(), nil, io.Discard, io.Discard)
		root := a.root()
		cmd, rest, err := root.Find(args)
		if err != nil {
			return
		}
		var wrong *settings.Error
		if err := cmd.ParseFlags(rest); err != nil {
			if err := cmd.FlagErrorFunc()(cmd, err); !errors.As(err, &wrong) {
				t.Fatalf("%q: an error that is not of the command line: %v", args, err)
			}
			return
		}
		if cmd.Args != nil {
			if err := cmd.Args(cmd, cmd.Flags().Args()); err != nil && !errors.As(err, &wrong) {
				t.Fatalf("%q: an error that is not of the command line: %v", args, err)
			}
		}
		if cmd.Name() != "serve" {
			return
		}
		v, err := settings.Resolve(cmd, settings.Serve, nil, false)
		if err == nil {
			_, err = serverConfig(a, withoutFiles(v))
		}
		if err != nil && !errors.As(err, &wrong) {
			t.Fatalf("%q: an error that is not of the command line: %v", args, err)
		}
	})
}
