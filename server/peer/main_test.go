package peer

import (
	"bytes"
	"io"
	"log"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(fewDescriptorsEnv) != "" {
		os.Exit(acceptWithFewDescriptors())
	}
	muteEngine()
	log.SetOutput(withoutDiskUsage{log.Writer()})
	goleak.VerifyTestMain(m)
}

// withoutDiskUsage leaves out what the engine's storage says because a disk in memory cannot tell
// its free space.
type withoutDiskUsage struct{ w io.Writer }

func (f withoutDiskUsage) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("background error: vfs: not supported")) {
		return len(line), nil
	}
	return f.w.Write(line)
}
