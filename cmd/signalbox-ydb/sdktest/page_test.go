package sdktest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

func readFile(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestReadmePrograms: the README shows the programs in examples, and they hold a lock. The one in
// JavaScript runs in the long form, where npm can bring the packages that the README names.
func TestReadmePrograms(t *testing.T) {
	t.Parallel()
	page := readFile(t, "../README.md")
	source := readFile(t, "examples/lock/main.go")
	function := source[strings.Index(source, "func lock("):]
	if !strings.Contains(page, "```go\n"+function+"```\n") {
		t.Error("the README's Go program is not the function lock of examples/lock/main.go")
	}
	script := readFile(t, "examples/lock/lock.mjs")
	if !strings.Contains(page, "```js\n"+script+"```\n") {
		t.Error("the README's JavaScript program is not examples/lock/lock.mjs")
	}
	address, _ := startGateway(t, sharedCluster(t).Addrs())
	run := func(command *exec.Cmd) {
		t.Helper()
		out, err := command.CombinedOutput()
		if err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), "the lock is held") {
			t.Fatalf("%v: %v\n%s", command.Args, err, out)
		}
	}
	binary := filepath.Join(t.TempDir(), "lock")
	build := exec.CommandContext(testContext(t), "go", "build", "-o", binary, "./examples/lock")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	run(exec.CommandContext(testContext(t), binary, "grpc://"+address+"/local"))
	if !form.Is(form.Long) {
		return
	}
	dir := t.TempDir()
	_, install, _ := strings.Cut(page, "`npm install ")
	packages, _, _ := strings.Cut(install, "`")
	args := strings.Fields("install --no-audit --no-fund --no-package-lock --ignore-scripts " + packages)
	npm := exec.CommandContext(testContext(t), "npm", args...)
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		t.Skipf("npm does not bring the packages: %v\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(dir, "lock.mjs"), []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	node := exec.CommandContext(testContext(t), "node", "lock.mjs", "grpc://"+address+"/local")
	node.Dir = dir
	run(node)
}
