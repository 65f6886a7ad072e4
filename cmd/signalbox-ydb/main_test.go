package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"flag"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/cmd/signalbox-ydb/gateway"
	"github.com/signalbox-dev/signalbox/server/admin"
	"github.com/signalbox-dev/signalbox/server/certs/certstest"
	"github.com/signalbox-dev/signalbox/server/release"
	"github.com/signalbox-dev/signalbox/server/servertest/port"
)

var update = flag.Bool("update", false, "rewrite REFERENCE.md")

// TestReference: REFERENCE.md is what the table of settings says.
func TestReference(t *testing.T) {
	if *update {
		if err := os.WriteFile("REFERENCE.md", []byte(reference()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile("REFERENCE.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(page) != reference() {
		t.Error("REFERENCE.md is not up to date; run make golden")
	}
}

// TestMain makes this test binary stand in for the program.
func TestMain(m *testing.M) {
	if os.Getenv("TEST_AS_PROGRAM") != "" {
		main()
	}
	os.Exit(m.Run())
}

// TestNobodyReads: the gateway serves on, and ends as it does otherwise, when the readers of its
// output and of its log have gone, or do not read.
func TestNobodyReads(t *testing.T) {
	for _, gone := range []bool{true, false} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		addr := port.ForTest(t)
		if gone {
			_ = r.Close()
		} else {
			fillPipe(t, w)
		}
		cmd := exec.Command(os.Args[0], "--listen", addr, "--log-level", "debug", "--endpoints", "127.0.0.1:1")
		cmd.Env = append(os.Environ(), "TEST_AS_PROGRAM=1", "SIGNALBOX_YDB_LISTN=unknown, which is noted")
		cmd.Stdout, cmd.Stderr = w, w
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_ = w.Close()
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait()
			close(ended)
		}()
		for serves := false; !serves; {
			select {
			case <-ended:
				t.Fatalf("reader gone: %v: it has ended: %v", gone, cmd.ProcessState)
			case <-time.After(10 * time.Millisecond):
			}
			c, err := net.Dial("tcp", addr)
			if serves = err == nil; serves {
				_ = c.Close()
			}
		}
		_ = cmd.Process.Signal(syscall.SIGTERM) // it logs that
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Errorf("reader gone: %v: it does not end", gone)
			_ = cmd.Process.Kill()
			<-ended
		}
		if code := cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("reader gone: %v: %v", gone, cmd.ProcessState)
		}
	}
}

// fillPipe fills a pipe.
func fillPipe(t *testing.T, w *os.File) {
	t.Helper()
	fd := int(w.Fd()) // which makes it blocking
	if err := syscall.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	for {
		_, err := syscall.Write(fd, make([]byte, 1))
		if err == syscall.EAGAIN {
			break
		} else if err != nil && err != syscall.EINTR {
			t.Fatal(err)
		}
	}
	if err := syscall.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
}

func runWith(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // what starts ends at once
	code = run(ctx, args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestHelp(t *testing.T) {
	code, out, _ := runWith("--help")
	if code != exitOK {
		t.Fatal(code)
	}
	for _, s := range settings {
		if !strings.Contains(out, "--"+s.flag) || !strings.Contains(out, s.env()) {
			t.Errorf("--help does not show --%s", s.flag)
		}
		if !strings.HasSuffix(s.help, ".") && !strings.HasSuffix(s.help, ").") {
			t.Errorf("the help of --%s is no sentence", s.flag)
		}
	}
	for line := range strings.Lines(out) {
		if len(line) > helpWidth+1 && !strings.Contains(line, "$SIGNALBOX") {
			t.Errorf("wider than %d columns: %s", helpWidth, line)
		}
	}
	if code, out, _ := runWith("--version"); code != exitOK || out != "signalbox-ydb "+release.Current().Version+"\n" {
		t.Error(code, out)
	}
}

func TestWrongSettings(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--nothing"}, "--nothing"},
		{[]string{"serve"}, `"serve" is no setting`},
		{[]string{"--endpoints", ""}, "--endpoints is empty"},
		{[]string{"--endpoints", "here"}, `"here" is not host:port`},
		{[]string{"--database", ""}, "the database is empty"},
		{[]string{"--database", "/a b"}, "illegal character"},
		{[]string{"--listen", "127.0.0.1:0", "--advertise", "here"}, `"here" is not host:port`},
		{[]string{"--log-level", "loud"}, `--log-level "loud" is unknown`},
		{[]string{"--log-level", "debug+3"}, `--log-level "debug+3" is unknown`},
		{[]string{"--log-format", "xml"}, `--log-format "xml" is unknown`},
		{[]string{"--listen-tls-cert", "none.pem"}, "--listen-tls-key"},
		{[]string{"--max-connections", "many"}, `--max-connections "many" is not a number from 0 to`},
		{[]string{"--max-connections-per-address", "-1"}, `--max-connections-per-address "-1" is not`},
		{[]string{"--tls-ca", "none.pem"}, "cannot read --tls-ca"},
	} {
		code, _, stderr := runWith(append([]string{"--listen", "127.0.0.1:0"}, c.args...)...)
		if code != exitUsage || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: exit code %d, %s", c.args, code, stderr)
		}
	}
	if code, _, stderr := runWith("--listen", "256.0.0.1:1"); code != exitError || !strings.Contains(stderr, "--listen") {
		t.Error(code, stderr)
	}
}

func TestSettingsOrder(t *testing.T) {
	env := map[string]string{"SIGNALBOX_YDB_LISTEN": "e:1", "SIGNALBOX_YDB_DATABASE": "/env", "SIGNALBOX_YDB_TLS": "true"}
	v, err := readSettings([]string{"--listen", "f:1"}, func(name string) (string, bool) { s, ok := env[name]; return s, ok })
	if err != nil || v["listen"] != "f:1" || v["database"] != "/env" || v["tls"] != "true" || v["admin"] != off {
		t.Fatal(v, err)
	}
	env["SIGNALBOX_YDB_TLS"] = "perhaps"
	if _, err := readSettings(nil, func(name string) (string, bool) { s, ok := env[name]; return s, ok }); err == nil {
		t.Error("a switch that is neither true nor false is taken")
	}
}

// TestUnknownVariables: a variable that looks like a setting and is none is named, and no other.
func TestUnknownVariables(t *testing.T) {
	for _, s := range settings {
		t.Setenv(s.env(), "")
	}
	t.Setenv("SIGNALBOX_YDB_SERVICE_HOST", "10.0.0.1")
	t.Setenv("SIGNALBOX_YDB_PORT_2136_TCP_ADDR", "10.0.0.1")
	t.Setenv("SIGNALBOX_LISTEN", "127.0.0.1:1")
	t.Setenv("SIGNALBOX_YDB_LISTN", "127.0.0.1:1")
	code, _, stderr := runWith("--listen", "127.0.0.1:0")
	const want = "signalbox-ydb: unknown variable SIGNALBOX_YDB_LISTN in the environment is ignored\n"
	if code != exitOK || !strings.Contains(stderr, want) {
		t.Error(code, stderr)
	}
	for _, s := range []string{"_SERVICE_HOST", "_TCP_ADDR", "SIGNALBOX_LISTEN", settings[0].env()} {
		if strings.Contains(stderr, s) {
			t.Errorf("a known variable: %s", stderr)
		}
	}
}

// TestServeEnds: the gateway starts without a cluster, says where it listens, and ends.
func TestServeEnds(t *testing.T) {
	code, out, stderr := runWith("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	if code != exitOK || !strings.HasPrefix(out, "signalbox-ydb serves database /local on 127.0.0.1:") {
		t.Fatal(code, out, stderr)
	}
}

// TestAdmin: the address for operators serves the pages of an instance's, and has its limits.
func TestAdmin(t *testing.T) {
	g, err := gateway.New(gateway.Config{
		Cluster: client.Config{Endpoints: []string{"127.0.0.1:1"}}, Database: "/local", Advertise: []string{"127.0.0.1:2136"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer serveAdmin(l, admin.Config{Metrics: g.Metrics().Write}, slog.New(slog.DiscardHandler)).Close()
	for _, x := range []struct {
		method, path string
		status       int
		body         string
	}{
		{"GET", "/metrics", http.StatusOK, "\nsignalbox_ydb_streams 0\n"},
		{"GET", "/healthz", http.StatusOK, "ok\n"},
		{"GET", "/debug/pprof/goroutine?debug=1", http.StatusOK, "goroutine profile"},
		{"POST", "/debug/pprof/", http.StatusMethodNotAllowed, "GET"},
		{"GET", "/?" + strings.Repeat("x", 10_000), http.StatusRequestURITooLong, "too long"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), x.method, "http://"+l.Addr().String()+x.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		reply, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(reply.Body)
		_ = reply.Body.Close()
		if err != nil || reply.StatusCode != x.status || !strings.Contains(string(body), x.body) {
			t.Errorf("%s %.20s: %d %.100q, %v", x.method, x.path, reply.StatusCode, body, err)
		}
	}
}

// TestPagesNameFlagsThatExist: the commands and variables that the pages show are ones that there
// are.
func TestPagesNameFlagsThatExist(t *testing.T) {
	known := make(map[string]bool)
	for _, s := range settings {
		known["--"+s.flag], known[s.env()] = true, true
	}
	named := 0
	for _, page := range []string{"README.md", "signalbox-ydb.service"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "signalbox sem ") {
				continue // of the other binary
			}
			for _, name := range regexp.MustCompile(`--[a-z][a-z-]+|SIGNALBOX_YDB_[A-Z_]+[A-Z]`).FindAllString(line, -1) {
				if named++; !known[name] {
					t.Errorf("%s names %s, which is no setting", page, name)
				}
			}
		}
	}
	if named < 5 {
		t.Errorf("%d settings are named", named)
	}
}

// TestListenTLS: with a certificate clients use TLS, and the gateway knows when it expires.
func TestListenTLS(t *testing.T) {
	cert, key := certstest.New(t).Issue(t, t.TempDir(), "gateway", certstest.Expired())
	v, err := readSettings([]string{"--listen-tls-cert", cert, "--listen-tls-key", key}, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s, lines, err := configure(t.Context(), v, &log)
	if err != nil || s.gateway.TLS == nil || time.Until(s.gateway.CertificateExpires()) > 0 {
		t.Error(err, s.gateway)
	}
	if err := s.ready(); err == nil || !strings.Contains(err.Error(), "the certificate of --listen-tls-cert expired") {
		t.Errorf("readiness is %v", err)
	}
	lines.Flush(time.Minute)
	if !strings.Contains(log.String(), "the certificate is not valid now") {
		t.Errorf("the log is %s", log.String())
	}
}

// TestClusterSettings: the settings say which cluster is meant, and how to connect to it over TLS.
func TestClusterSettings(t *testing.T) {
	authority := certstest.New(t)
	dir := t.TempDir()
	setting := func(args ...string) client.Config {
		t.Helper()
		v, err := readSettings(args, func(string) (string, bool) { return "", false })
		if err != nil {
			t.Fatal(err)
		}
		s, _, err := configure(t.Context(), v, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		return s.gateway.Cluster
	}
	if c := setting(); c.TLS != nil || c.GetRootCAs != nil {
		t.Error("TLS without a setting")
	}
	if c := setting("--cluster", "works"); c.Cluster != "works" {
		t.Errorf("cluster %q is meant", c.Cluster)
	}
	if c := setting("--tls"); c.TLS == nil || c.GetRootCAs != nil || c.TLS.MinVersion != tls.VersionTLS12 {
		t.Error(c)
	}
	c, next := setting("--tls-ca", authority.Write(t, dir)), certstest.New(t)
	for _, a := range []*certstest.Authority{authority, next} { // the file is read for each connection
		a.Write(t, dir)
		if roots, err := c.GetRootCAs(t.Context()); err != nil || c.TLS == nil || !roots.Equal(a.Pool()) {
			t.Error("the authority is another one", err)
		}
	}
	if c := setting("--tls-server-name", "cluster.example"); c.TLS == nil || c.TLS.ServerName != "cluster.example" {
		t.Error(c)
	}
	empty := filepath.Join(dir, "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := runWith("--tls-ca", empty); code != exitUsage || !strings.Contains(stderr, "empty.pem has no certificate") {
		t.Error(code, stderr)
	}
}
