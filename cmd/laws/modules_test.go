package laws

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestDirectDependenciesEarnTheirLine(t *testing.T) {
	mod, page := read(t, "go.mod"), read(t, "cmd/laws/DEPENDENCIES.md")
	direct := 0
	for line := range strings.Lines(mod) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "replace") {
			t.Errorf("go.mod has a replace: %s", line)
		}
		f := strings.Fields(strings.TrimPrefix(line, "require "))
		if len(f) < 2 || !strings.HasPrefix(f[1], "v") || strings.Contains(line, "// indirect") {
			continue
		}
		direct++
		if !strings.Contains(page, "`"+f[0]+"`") {
			t.Errorf("%s is a direct dependency without a row in cmd/laws/DEPENDENCIES.md", f[0])
		}
	}
	if direct < 5 {
		t.Fatalf("found %d direct dependencies in go.mod", direct)
	}
}

// TestNestedModulesStayOutside: what needs gRPC is a module of its own, and the module that
// programs import has neither gRPC nor protobuf in its graph.
func TestNestedModulesStayOutside(t *testing.T) {
	for _, m := range lawful {
		if !strings.Contains(read(t, m+"/go.mod"), "\nreplace "+module+" => ") {
			t.Errorf("%s/go.mod does not take the repository's own module", m)
		}
	}
	for line := range strings.Lines(read(t, "go.mod")) {
		if strings.Contains(line, "google.golang.org/grpc ") || strings.Contains(line, "ydb-platform/") {
			t.Errorf("go.mod has %s", strings.TrimSpace(line))
		}
	}
}
