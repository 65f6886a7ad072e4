package main

import (
	"crypto/rand"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/signalbox-dev/signalbox/cmd/signalbox/supervise"
	"github.com/signalbox-dev/signalbox/protocol"
)

var update = flag.Bool("update", false, "rewrite scripts' expected output and REFERENCE.md")

// TestMain makes this test binary stand in for what tests run: as `signalbox` it is the command
// line itself, on the PATH of scripts and of the commands that signalbox runs. As `stamp` it is a
// command that shows when it was last alive, and as `hold` one that shows when it believed in a lock.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == supervise.Argument {
		main() // of a command that a test runs in this process
		return
	}
	// The race detector holds up each exit by a second to find more; a script of twenty commands
	// would take twenty.
	os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	rand.Reader = longSessionIDs{rand.Reader}
	testscript.Main(leakChecked{m}, map[string]func(){
		"signalbox": func() { endWithTests(); main() },
		"stamp":     func() { endWithTests(); stamp() },
		"hold":      func() { endWithTests(); hold() },
	})
}

// longSessionIDs gives random keys by which no session is at home in the first bucket: ids of
// there are short, and [cmdPlain] would not tell them from other numbers.
type longSessionIDs struct{ io.Reader }

func (r longSessionIDs) Read(b []byte) (n int, err error) {
	for {
		n, err = r.Reader.Read(b)
		if err != nil || n != protocol.KeyLen || protocol.HomeBucket([protocol.KeyLen]byte(b), protocol.DefaultBuckets) != 0 {
			return n, err
		}
	}
}

func TestSessionIDsAreLong(t *testing.T) {
	for range 50_000 {
		var key [protocol.KeyLen]byte
		_, _ = rand.Read(key[:])
		if protocol.HomeBucket(key, protocol.DefaultBuckets) == 0 {
			t.Fatal("a session is at home in the first bucket")
		}
	}
}

type leakChecked struct{ m *testing.M }

func (l leakChecked) Run() int {
	heedSignals()
	alive, err := lockAlive()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.Remove(alive.Name())
	defer alive.Close()
	code := l.m.Run()
	if code == 0 {
		err := goleak.Find(
			// gnet starts a pool of workers when it is imported, and never ends it.
			goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
			goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"),
			// os/signal's own, once a test asked for signals.
			goleak.IgnoreTopFunction("os/signal.loop"),
			goleak.IgnoreTopFunction("os/signal.signal_recv"),
		)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// heedSignals takes back that signals are ignored, as they are below nohup and in the background of
// a shell without job control. The commands of the tests would inherit it.
func heedSignals() {
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}
