package client_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/pagesize"
)

// shared is the server of tests that neither move its clock nor cause faults.
var shared = servertest.NewShared()

func TestMain(m *testing.M) { goleak.VerifyTestMain(tests{m}, goleak.IgnoreCurrent()) }

// tests are the package's tests, after which the shared server ends.
type tests struct{ *testing.M }

func (m tests) Run() int {
	pagesize.Two()
	defer shared.Close()
	return m.M.Run()
}

// testContext bounds waits that must end; nothing is timed by it.
func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), await.Limit)
	t.Cleanup(cancel)
	return ctx
}

// place is where a test dials: a server of its own, or its node on the shared one.
type place interface{ Addr() string }

var paths sync.Map // *client.Client -> the path of its test's node on the shared server

// dial returns a client. One of the shared server ends its sessions with the test, others leave
// them behind.
func dial(t testing.TB, at place) *client.Client {
	t.Helper()
	c, err := client.Dial(testContext(t), at.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if n, ok := at.(*servertest.Node); ok {
		paths.Store(c, n.Path())
		t.Cleanup(func() {
			paths.Delete(c)
			_ = c.Close()
		})
		return c
	}
	t.Cleanup(c.CloseWithoutRelease)
	return c
}

// session starts a session on the test's node, which outlives a machine that is busy with other
// things unless the test says otherwise: clients live in real time.
func session(t testing.TB, c *client.Client, opts ...client.SessionOption) *client.Session {
	t.Helper()
	path := "/default"
	if own, ok := paths.Load(c); ok {
		path = own.(string)
	}
	opts = append([]client.SessionOption{client.Timeout(10 * time.Minute)}, opts...)
	s, err := c.Session(testContext(t), path, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
