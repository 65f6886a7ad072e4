package logfilter

import (
	"os"
	"os/exec"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest/binary"
)

// TestNoPressureFiles: the binary says nothing of pressure metrics where there are no pressure files.
func TestNoPressureFiles(t *testing.T) {
	const hide = "mount -t tmpfs none /sys/fs/cgroup"
	if os.Geteuid() != 0 {
		t.Skip("only root can hide the pressure files")
	}
	if out, err := exec.Command("unshare", "--mount", "sh", "-c", hide).CombinedOutput(); err != nil {
		t.Skipf("the pressure files cannot be hidden here: %v: %s", err, out)
	}
	run := exec.Command("unshare", "--mount", "sh", "-c", hide+` && exec "$0" version 2>&1 >/dev/null`, binary.Signalbox(t))
	if out, err := run.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v; on standard error it says: %s", err, out)
	}
}
