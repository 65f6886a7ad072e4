package recipes_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/pagesize"
)

func TestMain(m *testing.M) {
	pagesize.Two()
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}

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

// session starts a session that outlives a machine that is busy with other things, unless the test
// says otherwise.
func session(t testing.TB, c *client.Client, opts ...client.SessionOption) *client.Session {
	t.Helper()
	opts = append([]client.SessionOption{client.Timeout(10 * time.Minute)}, opts...)
	s, err := c.Session(testContext(t), "/default", opts...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func release(t testing.TB, l *client.Lease) {
	t.Helper()
	must(t, l.Release(testContext(t)))
}

type outcome[T any] struct{ done chan func() (T, error) }

// async runs f and keeps what it returns.
func async[T any](f func() (T, error)) outcome[T] {
	o := outcome[T]{make(chan func() (T, error), 1)}
	go func() {
		v, err := f()
		o.done <- func() (T, error) { return v, err }
	}()
	return o
}

func (o outcome[T]) get() (T, error) { return (<-o.done)() }

func (o outcome[T]) must(t testing.TB) T {
	t.Helper()
	v, err := o.get()
	must(t, err)
	return v
}
