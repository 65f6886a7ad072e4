package replica

import (
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// TestHoldEnds: if the owner takes its time, acquires are proposed without its release.
func TestHoldEnds(t *testing.T) {
	t.Parallel()
	h := openHost(t, HostConfig{})
	s, r := startOne(t, h, nil)
	populate(t, s)
	const callers = 4
	list := make([]*caller, callers)
	for i := range list {
		list[i] = newCaller(t, s, r, uint64(i+1), 60_000)
	}
	list[0].mustCreate("lock")
	ask := func(c *caller) Origin {
		c.seq++
		m := protocol.Acquire{Head: protocol.Head{Session: c.session, Seq: c.seq, Low: c.low}, Name: []byte("lock"),
			Count: 1, Timeout: protocol.Forever}
		return c.submit(shard.CmdAcquire, m.AppendBody(nil))
	}
	for i, c := range list[:callers-1] {
		if res := r.result(ask(c)); res.status != protocol.StatusOK || (res.event.State == protocol.Acquired) != (i == 0) {
			t.Fatalf("acquire %d: %+v", i, res)
		}
	}
	for i, c := range list {
		c.seq++
		m := protocol.Release{Head: protocol.Head{Session: c.session, Seq: c.seq, Low: c.low}, Name: []byte("lock")}
		if res := r.result(c.submit(shard.CmdRelease, m.AppendBody(nil))); res.status != protocol.StatusOK {
			t.Fatalf("release: %+v", res)
		}
		// Nobody releases until this is answered.
		if res := r.result(ask(list[(i+callers-1)%callers])); res.status != protocol.StatusOK ||
			res.event.State != protocol.Queued {
			t.Fatalf("acquire after release %d: %+v", i, res)
		}
	}
}
