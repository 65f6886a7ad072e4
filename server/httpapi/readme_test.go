package httpapi

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestReadme: the shell lines of the page run as shown.
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
	s := openSite(t, servertest.Start(t, servertest.RealTime()))
	block := func(language string) string {
		_, rest, ok := strings.Cut(string(page), "```"+language+"\n")
		lines, _, end := strings.Cut(rest, "```")
		if !ok || !end {
			t.Fatalf("the page has no lines of %s", language)
		}
		return strings.ReplaceAll(lines, "http://127.0.0.1:7074", s.url)
	}
	script := block("sh")
	if _, err := exec.LookPath("uuidgen"); err != nil {
		script = strings.ReplaceAll(script, "$(uuidgen)", "b2d6a1f0-0b6e-4c0b-9d0a-2f1f5f0a7f11")
	}
	out, err := exec.CommandContext(t.Context(), "sh", "-euc", script).CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"state":"acquired"`) || !strings.Contains(string(out), `"ended":true`) {
		t.Errorf("the page's lines: %v\n%s", err, out)
	}
	for _, program := range []struct{ language, name, folder, says string }{
		{"python", "python3", "../../client/python", "in Python: True with token"},
		{"js", "node", "../../client/js", "in JavaScript: true with token"},
	} {
		if _, err := exec.LookPath(program.name); err != nil {
			t.Logf("%s is missing, so its lines do not run: %v", program.name, err)
			continue
		}
		args := []string{"-c", block(program.language)}
		if program.language == "js" {
			args = []string{"--input-type=module", "-e", block("js")}
		}
		cmd := exec.CommandContext(t.Context(), program.name, args...)
		cmd.Dir, cmd.Env = program.folder, append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), program.says) {
			t.Errorf("the page's lines of %s: %v\n%s", program.language, err, out)
		}
	}
	// The job of the page, with its steps as one script.
	job := strings.NewReplacer("- run: |\n", "", "- run: ", "", "- if: always()\n", "", "  run: ", "", ">> \"$GITHUB_ENV\"", "").Replace(block("yaml"))
	job = strings.Replace(job, `echo "SESSION=$(uuidgen)"`, "SESSION=a-session-of-ci", 1)
	job = strings.Replace(job, "./deploy.sh", "echo deploys", 1)
	cmd := exec.CommandContext(t.Context(), "sh", "-euc", job)
	cmd.Env = append(os.Environ(), "SIGNALBOX="+s.url, "GITHUB_RUN_ID=42", "GITHUB_RUN_ATTEMPT=1", "GITHUB_JOB=deploy")
	out, err = cmd.CombinedOutput()
	for _, want := range []string{`"holder":"42.1 deploy"`, "deploys", `"ended":true`} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("the page's job: %v\n%s", err, out)
		}
	}
}
