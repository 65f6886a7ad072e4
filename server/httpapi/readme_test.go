package httpapi

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestReadme: the lines of the page run as shown, and those of the repository's first page.
func TestReadme(t *testing.T) {
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
		return strings.ReplaceAll(lines, "http://127.0.0.1:7074", s.url)
	}
	for i, page := range []string{string(page), short} {
		script := block(page, "sh")
		if _, err := exec.LookPath("uuidgen"); err != nil {
			script = strings.ReplaceAll(script, "$(uuidgen)", fmt.Sprintf("b2d6a1f0-0b6e-4c0b-9d0a-2f1f5f0a7f1%d", i))
		}
		out, err := exec.CommandContext(t.Context(), "sh", "-euc", script).CombinedOutput()
		if err != nil || !strings.Contains(string(out), `"state":"acquired"`) ||
			!strings.Contains(string(out), `"ended":true`) {
			t.Errorf("the page's lines: %v\n%s", err, out)
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
	// The job of the page, with its steps as one script.
	job := strings.NewReplacer("- run: |\n", "", "- run: ", "", "- if: always()\n", "", "  run: ", "",
		">> \"$GITHUB_ENV\"", "").Replace(block(string(page), "yaml"))
	job = strings.Replace(job, `echo "SESSION=$(uuidgen)"`, "SESSION=a-session-of-ci", 1)
	job = strings.Replace(job, "./deploy.sh", "echo deploys", 1)
	cmd := exec.CommandContext(t.Context(), "sh", "-euc", job)
	cmd.Env = append(os.Environ(), "SIGNALBOX="+s.url, "GITHUB_RUN_ID=42", "GITHUB_RUN_ATTEMPT=1", "GITHUB_JOB=deploy")
	out, err := cmd.CombinedOutput()
	for _, want := range []string{`"holder":"42.1 deploy"`, "deploys", `"ended":true`} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("the page's job: %v\n%s", err, out)
		}
	}
}
