package logstore

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"

	"github.com/lni/dragonboat/v4/logger"
	"go.uber.org/goleak"
)

// The engine's storage writes to the standard logger, and says at each step that a disk in memory
// cannot tell its free space.
func TestMain(m *testing.M) {
	log.SetOutput(io.Discard)
	logger.SetLoggerFactory(func(string) logger.ILogger { return &enginePanics })
	if os.Getenv(ownProcessEnv) != "" {
		os.Exit(m.Run()) // a store that has panicked leaves goroutines behind
	}
	goleak.VerifyTestMain(m)
}

// ownProcessEnv runs a test in a process of its own.
const ownProcessEnv = "SIGNALBOX_TEST_ALONE"

// inOwnProcess runs the calling test again in a process of its own, and says whether this is that
// process. Its folder for temporary files is removed when it has ended.
func inOwnProcess(t *testing.T) bool {
	t.Helper()
	if os.Getenv(ownProcessEnv) != "" {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), ownProcessEnv+"=1", "TMPDIR="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

// enginePanics reports panics of the engine, as the logger of package replica does.
var enginePanics panicLogger

type panicLogger struct{ fail atomic.Pointer[func(error)] }

func (l *panicLogger) report(fail func(error)) (remove func()) {
	l.fail.Store(&fail)
	return func() { l.fail.CompareAndSwap(&fail, nil) }
}

func (l *panicLogger) SetLevel(logger.LogLevel) {}
func (l *panicLogger) Debugf(string, ...any)    {}
func (l *panicLogger) Infof(string, ...any)     {}
func (l *panicLogger) Warningf(string, ...any)  {}
func (l *panicLogger) Errorf(string, ...any)    {}
func (l *panicLogger) Panicf(f string, a ...any) {
	err := fmt.Errorf(f, a...)
	if fail := l.fail.Load(); fail != nil {
		(*fail)(err)
	}
	panic(err)
}
