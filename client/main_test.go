package client_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

// masterTimeout bounds waits of tests that must end; nothing is timed by it.
const masterTimeout = 60 * time.Second

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), masterTimeout)
	t.Cleanup(cancel)
	return ctx
}

func dial(t testing.TB, srv *servertest.Server) *client.Client {
	t.Helper()
	c, err := client.Dial(testContext(t), srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.CloseWithoutRelease() })
	return c
}

func session(t testing.TB, c *client.Client, opts ...client.SessionOption) *client.Session {
	t.Helper()
	s, err := c.Session(testContext(t), "/default", opts...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
