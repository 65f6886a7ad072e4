package client

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestSuspect: a server from whom others have taken over is given up at once when it is silent, and kept when it answers.
func TestSuspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		cn, err := c.any(bg)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		cn.suspect()
		time.Sleep(2 * leastSilence)
		if cn.isLost() {
			t.Fatalf("a server that answers was given up: %v", cn.err)
		}
		f.set(func() {
			f.on = func(_ *fakeConn, h protocol.Header) bool { return h.Kind == protocol.KindPing }
		})
		cn.suspect()
		time.Sleep(leastSilence + time.Millisecond)
		if !cn.isLost() {
			t.Fatal("a silent server was not given up")
		}
	})
}
