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
	_, rest, ok := strings.Cut(string(page), "```sh\n")
	script, _, end := strings.Cut(rest, "```")
	if !ok || !end {
		t.Fatal("the page has no shell lines")
	}
	script = strings.ReplaceAll(script, "http://127.0.0.1:7074", s.url)
	if _, err := exec.LookPath("uuidgen"); err != nil {
		script = strings.ReplaceAll(script, "$(uuidgen)", "b2d6a1f0-0b6e-4c0b-9d0a-2f1f5f0a7f11")
	}
	out, err := exec.CommandContext(t.Context(), "sh", "-euc", script).CombinedOutput()
	if err != nil || !strings.Contains(string(out), `"state":"acquired"`) || !strings.Contains(string(out), `"ended":true`) {
		t.Errorf("the page's lines: %v\n%s", err, out)
	}
}
