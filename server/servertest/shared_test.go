package servertest_test

import (
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// userTest is a test of a user's, which ends when its cleanup has run.
type userTest struct {
	testing.TB
	cleanup func()
}

func (u *userTest) Cleanup(f func()) { u.cleanup = f }

// TestShared: two tests use one name without meeting each other, and a test is not over while a
// session that it has begun lives.
func TestShared(t *testing.T) {
	t.Parallel()
	shared := servertest.NewShared(servertest.Shards(2))
	defer shared.Close()
	var tests []*userTest
	var clients []*client.Client
	for range 2 {
		u := &userTest{TB: t}
		node := shared.Node(u)
		c, err := client.Dial(t.Context(), node.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.CloseWithoutRelease()
		s, err := c.Session(t.Context(), node.Path())
		if err != nil {
			t.Fatal(err)
		}
		if l, err := s.TryAcquire(t.Context(), "jobs", client.Exclusive()); l == nil || err != nil {
			t.Fatalf("the lock of another test is not free: %v", err)
		}
		tests, clients = append(tests, u), append(clients, c)
	}
	for i, u := range tests {
		over := make(chan struct{})
		go func() {
			u.cleanup()
			close(over)
		}()
		select {
		case <-over:
			t.Error("a test is over, and its session lives")
		case <-time.After(50 * time.Millisecond): // one that does not look has returned by now
		}
		if err := clients[i].Close(); err != nil {
			t.Error(err)
		}
		<-over
	}
	servertest.NewShared().Close() // without a test
}
