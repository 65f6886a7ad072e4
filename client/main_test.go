package client_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }

// testContext bounds waits that must end; nothing is timed by it.
func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), await.Limit)
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
