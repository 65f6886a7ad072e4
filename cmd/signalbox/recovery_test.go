package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRecoveryDrill runs the commands of server/RECOVERY.md from top to bottom on real processes:
// three instances, two folders removed, a new cluster made of the third.
func TestRecoveryDrill(t *testing.T) {
	t.Parallel()
	dir, out := runPage(t, "../../server/RECOVERY.md")
	audit, err := os.ReadFile(filepath.Join(dir, "saved.backup.audit"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"title":"recover_cluster"`, `"severity":"high"`,
		`"reason":"drill: the disks of a and b are lost"`, `"folders":["./c"]`, `meta: entry `} {
		if !strings.Contains(string(audit), want) {
			t.Errorf("the audit line lacks %s: %s", want, audit)
		}
	}
	for _, want := range []string{"data directory is in use by another process", "it was recovered from 1 folder by"} {
		if !strings.Contains(out, want) {
			t.Errorf("it was not said: %s", want)
		}
	}
	if _, err := exec.Command("sh", "-c", "ls -d "+filepath.Join(dir, ".recover-*")).Output(); err == nil {
		t.Error("copies of the logs are left")
	}
}

// killAll has a script end the processes that it noted in files.
const killAll = "trap 'for p in *.pid; do kill -9 $(cat $p) 2>/dev/null || :; done; wait' EXIT\n"

// runPage runs the commands of a page from top to bottom in an empty folder, as a reader would, but
// for its addresses, which may be in use. Processes that the page notes in files *.pid end with it.
func runPage(t *testing.T, page string) (dir, out string) {
	t.Helper()
	blocks := fenced(readPage(t, page), "sh")
	if len(blocks) < 6 {
		t.Fatalf("found %d blocks of commands", len(blocks))
	}
	script := strings.Join(blocks, "\n")
	free := map[string]string{}
	script = regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllStringFunc(script, func(address string) string {
		if free[address] == "" {
			free[address] = freeAddress()
		}
		return free[address]
	})
	// `!` of a shell does not fail a script.
	script = regexp.MustCompile(`(?m)^! (.*)$`).ReplaceAllString(script, "if $1; then echo 'this was to be refused'; exit 1; fi")
	dir = t.TempDir()
	out = expect(t, 0, []string{"DRILL=" + dir}, "sh", "-c", "cd $DRILL\nset -eux\n"+killAll+script)
	t.Log(out)
	return dir, out
}
