package servertest

import (
	"net"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// TestKillCutsClientsLast: while an instance is killed its clients' connections stay until the power
// is gone. Otherwise it could still log that their sessions are detached.
func TestKillCutsClientsLast(t *testing.T) {
	t.Parallel()
	s := Start(t)
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	conns := func() (list []*proxyConn) {
		s.proxy.mu.Lock()
		defer s.proxy.mu.Unlock()
		for l := range s.proxy.conns {
			list = append(list, l)
		}
		return list
	}
	await.True(t, "the connection is passed on", func() bool { return len(conns()) == 1 })
	l := conns()[0]
	unplugged := 0
	s.setPlugged = func(in bool) {
		if in {
			return
		}
		unplugged++
		select {
		case <-l.gone:
			t.Error("the client's connection is broken while the instance can still log that")
		default:
		}
		if other, err := net.Dial("tcp", s.Addr()); err == nil {
			if _, err := other.Read(make([]byte, 1)); err == nil {
				t.Error("a client gets through")
			}
			_ = other.Close()
		}
	}
	s.Kill()
	if unplugged != 1 {
		t.Errorf("cut off %d times, want once", unplugged)
	}
	<-l.gone
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the client reads something from a dead instance")
	}
	s.Restart()
}
