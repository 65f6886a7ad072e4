package processtree

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// TestDescendants: both ways to read the tree find the same processes.
func TestDescendants(t *testing.T) {
	t.Parallel()
	ready := filepath.Join(t.TempDir(), "ready")
	sh := exec.Command("sh", "-c", `sleep 1000 & sh -c 'sleep 1000 & echo yes >"$0"; wait' "$0" & wait`, ready)
	if err := sh.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, pid := range append(byParents(sh.Process.Pid), sh.Process.Pid) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		_ = sh.Wait()
	})
	await.True(t, "the processes", func() bool { b, _ := os.ReadFile(ready); return len(b) > 0 })
	one, other := byParents(sh.Process.Pid), byChildren(sh.Process.Pid)
	slices.Sort(one)
	slices.Sort(other)
	if len(one) != 3 || !slices.Equal(one, other) {
		t.Errorf("%v below their parents, %v as children", one, other)
	}
	if list := Children(sh.Process.Pid); len(list) != 2 {
		t.Errorf("its children are %v, want two", list)
	}
}
