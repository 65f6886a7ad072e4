package httpapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/trust/trusttest"
)

// TestReadme: the lines of the page run as shown, and those of the repository's first page.
func TestReadme(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"curl", "sh", "hostname"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	first, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, short, ok := strings.Cut(string(first), "## By curl, from CI, for agents")
	if !ok {
		t.Fatal("the first page says nothing of locks by curl")
	}
	s := openSite(t, servertest.Start(t, servertest.RealTime()))
	block := func(page, language string) string {
		_, rest, ok := strings.Cut(page, "```"+language+"\n")
		lines, _, end := strings.Cut(rest, "```")
		if !ok || !end {
			t.Fatalf("the page has no lines of %s", language)
		}
		lines = strings.ReplaceAll(lines, `from "signalbox"`, `from "./signalbox.js"`) // it is not installed
		return strings.ReplaceAll(lines, "http://127.0.0.1:7074", s.url)
	}
	const away = "http://127.0.0.1:1"
	s.ask("POST", "/v1/locks/backup?ttl=5m", alice, "").wants(200)
	for _, c := range []struct {
		what, url string
		says      []string
		fails     bool
	}{
		{"held by another", s.url, []string{`"code":"not_acquired"`, `"holder":"anonymous`}, true},
		{"free", s.url, []string{`"state":"acquired"`, `"ended":true`}, false},
		{"no gateway", away, []string{"curl: (7)"}, true},
		{"refused", s.url + "/none", []string{`"code":"not_found"`}, true},
	} {
		if c.what == "free" {
			s.ask("DELETE", "/v1/session", alice, "").wants(200)
		}
		for name, page := range map[string]string{"this": string(page), "first": short} {
			script := strings.NewReplacer(s.url, c.url, "wait=1m", "wait=10ms").Replace(block(page, "sh"))
			out, err := exec.CommandContext(t.Context(), "sh", "-c", script).CombinedOutput()
			if (err != nil) != c.fails || c.fails && strings.Contains(string(out), "is held for") {
				t.Errorf("the lines of the %s page, %s: %v\n%s", name, c.what, err, out)
			}
			for _, want := range c.says {
				if !strings.Contains(string(out), want) {
					t.Errorf("the lines of the %s page, %s, do not print %s:\n%s", name, c.what, want, out)
				}
			}
		}
	}
	for _, program := range []struct{ page, language, name, folder, says string }{
		{string(page), "python", "python3", "../../client/python", "in Python: True with token"},
		{string(page), "js", "node", "../../client/js", "in JavaScript: true with token"},
		{short, "python", "python3", "../../client/python", ""},
		{short, "js", "node", "../../client/js", ""},
	} {
		if _, err := exec.LookPath(program.name); err != nil {
			t.Logf("%s is missing, so its lines do not run: %v", program.name, err)
			continue
		}
		args := []string{"-c", block(program.page, program.language)}
		if program.language == "js" {
			args = []string{"--input-type=module", "-e", args[1]}
		}
		cmd := exec.CommandContext(t.Context(), program.name, args...)
		cmd.Dir, cmd.Env = program.folder, append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), program.says) {
			t.Errorf("the page's lines of %s: %v\n%s", program.language, err, out)
		}
	}
	// The job of the page, whose steps are scripts.
	var steps []string
	for step := range strings.SplitSeq(strings.TrimPrefix(block(string(page), "yaml"), "- "), "\n- ") {
		_, script, _ := strings.Cut(step, "run: ")
		steps = append(steps, strings.ReplaceAll("\n"+strings.TrimPrefix(script, "|\n"), "\n    ", "\n"))
	}
	if len(steps) != 4 {
		t.Fatalf("the job has the steps %q", steps)
	}
	// It shows a token of the platform that runs it, which trusttest is here.
	const root = "the administrator's secret"
	srv := servertest.Start(t, servertest.RealTime(), servertest.Config(func(c *server.Config) {
		c.Auth, c.AdminToken = true, root
	}))
	s = openSite(t, srv)
	admins, err := client.Open(t.Context(), client.Config{Endpoints: []string{srv.Addr()}, Token: []byte(root)})
	if err != nil {
		t.Fatal(err)
	}
	defer admins.CloseWithoutRelease()
	issuer := trusttest.New(t)
	trusttest.Trust(t, admin.New(admins), issuer)
	platform := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("audience") == trusttest.Audience && r.Header.Get("Authorization") == "Bearer of-the-job" {
			_, _ = fmt.Fprintf(w, `{"count":1,"value":%q}`, issuer.Token(t, "repo:octo/api", 15*time.Minute, nil))
		}
	}))
	defer platform.Close()
	another := "Authorization: Bearer " + issuer.Token(t, "another", time.Hour, nil)
	s.ask("POST", "/v1/locks/deploy?ttl=5m", bob, "", another).wants(200)
	for _, c := range []struct {
		what, url string
		says      string
		fails     bool
	}{
		{"held by another", s.url, `"state":"waiting"`, true},
		{"free", s.url, `"holder":"42.1 deploy"`, false},
		{"no gateway", away, "curl: (7)", true},
		{"the session has ended", s.url, `"code":"session_expired"`, true},
	} {
		if c.what == "free" {
			s.ask("DELETE", "/v1/session", bob, "", another).wants(200)
		}
		environment := filepath.Join(t.TempDir(), "env")
		run := func(script string) (string, error) {
			given, _ := os.ReadFile(environment)
			script = strings.NewReplacer("wait=5m", "wait=10ms", "--retry 9", "--retry 1", "./deploy.sh", "echo deploys").Replace(script)
			cmd := exec.CommandContext(t.Context(), "sh", "-ec", script)
			cmd.Dir = filepath.Dir(environment)
			cmd.Env = append(os.Environ(), "GITHUB_ENV="+environment, "ACTIONS_ID_TOKEN_REQUEST_URL="+platform.URL+"/?api-version=2.0",
				"ACTIONS_ID_TOKEN_REQUEST_TOKEN=of-the-job", "SIGNALBOX="+c.url, "GITHUB_RUN_ID=42", "GITHUB_RUN_ATTEMPT=1",
				"GITHUB_JOB=deploy", strings.TrimSpace(string(given)))
			out, err := cmd.CombinedOutput()
			return string(out), err
		}
		if out, err := run(steps[0]); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if c.what == "the session has ended" {
			if out, err := run(strings.Replace(steps[1], "locks/deploy", "locks/other", 1) + "\n" + steps[3]); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}
		out, err := run(steps[1])
		if (err != nil) != c.fails || !strings.Contains(out, c.says) {
			t.Errorf("the page's job, %s: %v\n%s", c.what, err, out)
		}
		if err == nil {
			if out, err = run(steps[2]); err != nil || !strings.Contains(out, "deploys") {
				t.Errorf("the page's job, %s: %v\n%s", c.what, err, out)
			}
		}
		if out, err = run(steps[3]); c.url != away && c.says != `"code":"session_expired"` && (err != nil || !strings.Contains(out, `"ended":true`)) {
			t.Errorf("the page's job, %s, ends with %v\n%s", c.what, err, out)
		}
	}
}
