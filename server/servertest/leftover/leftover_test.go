package leftover

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// leaveEnv says what TestLeave leaves in another process.
const leaveEnv = "SIGNALBOX_TEST_LEAVE"

func TestMain(m *testing.M) { os.Exit(Check(m).Run()) }

// TestLeave is the other process of TestWhatIsLeftIsFound.
func TestLeave(t *testing.T) {
	switch os.Getenv(leaveEnv) {
	case "":
		t.Skip("it runs in TestWhatIsLeftIsFound")
	case "file":
		if err := os.WriteFile(os.TempDir()+"/forgotten", nil, 0o600); err != nil {
			t.Fatal(err)
		}
	case "process":
		if err := exec.Command("sh", "-c", "sleep 3601 & true").Run(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWhatIsLeftIsFound: a file fails the tests that leave it, and so does a process whose parent has ended. What
// leaves nothing passes.
func TestWhatIsLeftIsFound(t *testing.T) {
	for what, want := range map[string]string{"nothing": "", "file": "the file ", "process": "sleep 3601"} {
		if what == "process" && runtime.GOOS != "linux" {
			continue
		}
		exe, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(exe, "-test.run", "^TestLeave$")
		cmd.Env = append(os.Environ(), leaveEnv+"="+what)
		out, err := cmd.CombinedOutput()
		if failed := err != nil; failed != (want != "") || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v\n%s", what, err, out)
		}
	}
}
