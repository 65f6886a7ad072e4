package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/signalbox-dev/signalbox/client"
	coord "github.com/signalbox-dev/signalbox/client/process"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// keptObjects is what a release's instance had: each kind of object that a document can say.
const keptObjects = `signalbox: 1
nodes:
  /busy: {}
  /billing:
    settings: {max-sessions: 10000, slow-wait: 5s}
    semaphores:
      jobs: {limit: 4, data: "of all"}
      turns: {limit: 1, policy: priority}
      gpus: {policy: fair, weight: {a: 2, b: 1}, slot: ["0:a100", "1:a100"], max-hold: 8h}
    configs: {flags: {data: "{\"dark\": true}"}}
    limits: {api: {rate: 1000}, api/tenant-a: {weight: 3, min: 100}}
    rollouts: {api: {source: published, locations: [{name: SAS}, {name: MAN, delay: 5s}]}}
identities: {billing-app: {/billing: use}}
`

// keptCommands show all of it.
var keptCommands = []string{
	"node ls", "node describe /billing", "sem ls", "sem describe jobs", "sem describe turns", "sem describe gpus",
	"sem why turns", "config ls", "config history flags", "limit ls", "limit describe api",
	"limit describe api/tenant-a", "rollout ls", "rollout describe api", "rollout status api", "rollout history api SAS",
	"process ls", "process describe workers", "session ls", "auth ls",
}

// differs matches the keys whose values differ from run to run.
var differs = regexp.MustCompile(`(_ms|_at|_time|address|addresses)$|^(client|remaining|load|leader|map_version|used|held|waited|since|revision|learning|level)$`)

// plainValue takes what differs from run to run out of a document.
func plainValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, x := range v {
			if v[key] = plainValue(x); differs.MatchString(key) {
				v[key] = "differs"
			}
		}
	case []any:
		for i, x := range v {
			v[i] = plainValue(x)
		}
	}
	return v
}

// keptState runs all commands and returns what they say.
func keptState(t *testing.T, do func(args ...string) string) map[string]any {
	t.Helper()
	state := map[string]any{"export /billing": do("export", "/billing")}
	for _, command := range keptCommands {
		args := append(strings.Fields(command), "-o", "json")
		if !strings.HasPrefix(command, "auth") {
			args = append(args, "--node", "/billing")
		}
		var value any
		if err := json.Unmarshal([]byte(do(args...)), &value); err != nil {
			t.Fatalf("%s: %v", command, err)
		}
		state[command] = plainValue(value)
	}
	return state
}

// serveKept starts an instance on a folder, and waits until it serves.
func serveKept(t *testing.T, binary, folder string) (server *running, endpoint string) {
	t.Helper()
	endpoint = freeAddress()
	server = start(t, nil, binary, "serve", "--data", folder, "--listen", endpoint, "--raft", freeAddress(),
		"--raft-advertise", "kept.example:7071", "--admin", "off", "--instance", "one", "--shards", "2")
	expect(t, 0, nil, binary, "node", "ls", "--endpoints", endpoint, "--timeout", "60s")
	return server, endpoint
}

var (
	keep       = flag.String("keep", "", "the folder of a release that is being kept: make keep writes what it is kept by there")
	keepBinary = flag.String("keep-binary", "", "the release's binary, for -keep")
)

// TestKeep writes what a release is kept by.
func TestKeep(t *testing.T) {
	dir, binary := *keep, *keepBinary
	if dir == "" {
		t.Skip("make keep runs it")
	}
	var build struct{ Version, Commit string }
	if err := json.Unmarshal([]byte(expect(t, 0, nil, binary, "version", "-o", "json")), &build); err != nil {
		t.Fatal(err)
	}
	head := strings.TrimSpace(expect(t, 0, nil, "git", "rev-parse", "HEAD"))
	if build.Version != filepath.Base(dir) || build.Commit != head {
		t.Fatalf("%s is version %s of commit %s, and %s at commit %s is to be kept; make the release at this commit first", binary,
			build.Version, build.Commit, filepath.Base(dir), head)
	}
	keepFile(t, dir, "commit", []byte(head+"\n"))

	folder := filepath.Join(t.TempDir(), "data")
	server, endpoint := serveKept(t, binary, folder)
	do := func(args ...string) string {
		t.Helper()
		return expect(t, 0, nil, binary, append(args, "--endpoints", endpoint, "--timeout", "60s")...)
	}
	document := filepath.Join(t.TempDir(), "objects.yaml")
	if err := os.WriteFile(document, []byte(keptObjects), 0o600); err != nil {
		t.Fatal(err)
	}
	do("apply", "-f", document)
	do("auth", "create", "billing-app", "--id", "billing-1", "--secret-file", filepath.Join(t.TempDir(), "secret"))
	do("rollout", "publish", "api", "--data", "first", "--node", "/billing")
	others := t.TempDir()
	acquire := func(session string, args ...string) []string {
		return append([]string{"sem", "acquire", "--node", "/billing", "--session-timeout", "30m", "--session-file", session}, args...)
	}
	do(acquire(filepath.Join(dir, "session.json"), "jobs", "--count", "2")...)
	do(acquire(filepath.Join(others, "a"), "gpus", "--slot", "1", "--key", "a")...)
	do(acquire(filepath.Join(others, "b"), "turns")...)
	waiter := start(t, nil, binary, acquire(filepath.Join(others, "c"), "turns", "--priority", "7", "--endpoints", endpoint)...)
	await.True(t, "a waiter", func() bool {
		return strings.Contains(do("sem", "ls", "turns", "--node", "/billing", "-o", "jsonl"), `"waiters":1`)
	})
	waiter.signal(syscall.SIGKILL)
	<-waiter.ended
	c, err := client.Dial(t.Context(), endpoint)
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Session(t.Context(), "/billing", client.Timeout(30*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := coord.Join(t.Context(), s, "workers", agreeing{},
		coord.Options{Data: []byte("m1"), Synchronous: true}); err != nil {
		t.Fatal(err)
	}
	stop := func() {
		server.signal(syscall.SIGTERM)
		if code := server.code(); code != exitOK {
			t.Fatalf("the server ended with %d", code)
		}
	}
	stop() // before the client, so that its session stays
	_ = c.Close()
	keepFolder(t, dir, "folder.tar.gz", folder)

	server, endpoint = serveKept(t, binary, folder)
	state, err := json.MarshalIndent(keptState(t, do), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	keepFile(t, dir, "state.json", append(state, '\n'))
	do("cluster", "backup", filepath.Join(dir, "cluster.backup"))

	if c, err = client.Dial(t.Context(), endpoint); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	written, ended := make(chan int, 1), make(chan struct{})
	go func() {
		defer close(ended)
		s, err := c.Session(ctx, "/busy")
		for i := 0; err == nil; i++ {
			if _, err = s.Config("counter").Set(ctx, fmt.Append(nil, i)); err == nil && i == 100 {
				written <- i
			}
		}
	}()
	select {
	case <-written:
	case <-ended:
		t.Fatal("nothing is written")
	}
	server.signal(syscall.SIGKILL)
	<-server.ended
	cancel()
	<-ended
	keepFolder(t, dir, "killed.tar.gz", folder)
}

func keepFile(t *testing.T, dir, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// keepFolder packs a folder of data.
func keepFolder(t *testing.T, dir, name, folder string) {
	t.Helper()
	var packed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	w := tar.NewWriter(z)
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		in, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: filepath.ToSlash(in), Mode: 0o600,
			Size: int64(len(content))}); err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	})
	if err := errors.Join(err, w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	keepFile(t, dir, name, packed.Bytes())
}

// keptFolder unpacks a folder of data. Its zeros take no room.
func keptFolder(t *testing.T, file string) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "data")
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return folder
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder, filepath.FromSlash(h.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		to, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		block, zeros := make([]byte, 64<<10), make([]byte, 64<<10)
		for at := int64(0); at < h.Size; {
			n, err := io.ReadFull(r, block[:min(int64(len(block)), h.Size-at)])
			if err == nil && !bytes.Equal(block[:n], zeros[:n]) {
				_, err = to.WriteAt(block[:n], at)
			}
			if err != nil {
				t.Fatal(err)
			}
			at += int64(n)
		}
		if err := errors.Join(to.Truncate(h.Size), to.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKeptReleases: this tree's server reads what instances of the releases left, stopped or
// killed, and their backups. It shows what they showed, and goes on with a session that was saved.
func TestKeptReleases(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the folders are of Linux")
	}
	t.Parallel()
	releases, err := filepath.Glob("../../server/testdata/releases/*")
	if err != nil {
		t.Fatal(err)
	}
	if len(releases) == 0 {
		t.Skip("no release is kept yet")
	}
	for _, dir := range releases {
		size := int64(0)
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			info, err := f.Info()
			if err != nil {
				t.Fatal(err)
			}
			size += info.Size()
		}
		if size > 1<<20 {
			t.Errorf("%s has %d bytes, and 1 MiB is the bound", dir, size)
		}
		text, err := os.ReadFile(filepath.Join(dir, "state.json"))
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]any{}
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		for _, folder := range []string{"folder", "killed"} {
			t.Run(filepath.Base(dir)+"/"+folder, func(t *testing.T) {
				t.Parallel()
				_, endpoint := serveKept(t, "signalbox", keptFolder(t, filepath.Join(dir, folder+".tar.gz")))
				do := inProcess(t, endpoint)
				shows(t, keptState(t, do), want)
				saved, err := os.ReadFile(filepath.Join(dir, "session.json"))
				if err != nil {
					t.Fatal(err)
				}
				session := filepath.Join(t.TempDir(), "session.json")
				if err := os.WriteFile(session, saved, 0o600); err != nil {
					t.Fatal(err)
				}
				do("sem", "release", "jobs", "--node", "/billing", "--session-file", session)
			})
		}
		t.Run(filepath.Base(dir)+"/backup", func(t *testing.T) {
			t.Parallel()
			folder, file := filepath.Join(t.TempDir(), "data"), filepath.Join(dir, "cluster.backup")
			expect(t, 0, nil, "signalbox", "cluster", "restore", file, "--data", folder, "--instance", "one",
				"--raft-advertise",
				"kept.example:7071")
			_, endpoint := serveKept(t, "signalbox", folder)
			shows(t, keptState(t, inProcess(t, endpoint)), want)
		})
	}
}

// inProcess runs commands as a user does, on the server at endpoint.
func inProcess(t *testing.T, endpoint string) func(args ...string) string {
	return func(args ...string) string {
		t.Helper()
		var out, notes bytes.Buffer
		if code := run(t.Context(), append(args, "--endpoints", endpoint, "--timeout", "60s"), nil, &out,
			&notes); code != exitOK {
			t.Fatalf("%q ended with %d: %s", args, code, notes.String())
		}
		return out.String()
	}
}

// shows compares what commands say with what they said to the release: keys may be added.
func shows(t *testing.T, is, was map[string]any) {
	t.Helper()
	for command, want := range was {
		got := onlyKeysOf(is[command], want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s says (+), and said (-):\n%s", command, diff)
		}
	}
}

// onlyKeysOf drops keys that the other value has not.
func onlyKeysOf(v, other any) any {
	switch v := v.(type) {
	case map[string]any:
		other, _ := other.(map[string]any)
		kept := map[string]any{}
		for key, x := range v {
			if y, ok := other[key]; ok {
				kept[key] = onlyKeysOf(x, y)
			}
		}
		return kept
	case []any:
		other, _ := other.([]any)
		kept := make([]any, len(v))
		for i, x := range v {
			if kept[i] = x; i < len(other) {
				kept[i] = onlyKeysOf(x, other[i])
			}
		}
		return kept
	}
	return v
}
