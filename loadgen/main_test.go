package loadgen

import (
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "rewrite the golden files of this package")

// testServer is a server that all tests share: loads keep apart by their names.
var testServer = sync.OnceValue(func() *servertest.Server {
	started = true
	return servertest.New(servertest.RealTime())
})

var started bool

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if started {
		testServer().Close()
	}
	if code == 0 {
		err := goleak.Find(
			// gnet starts a pool of workers when it is imported, and never ends it.
			goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).purgeStaleWorkers"),
			goleak.IgnoreTopFunction("github.com/panjf2000/ants/v2.(*poolCommon).ticktock"),
		)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// target is the server with sessions that outlive a test whose machine stands still for a while.
func target(t testing.TB) *Signalbox {
	t.Helper()
	return &Signalbox{Client: client.Config{Endpoints: []string{testServer().Addr()}}, Timeout: time.Minute}
}
