package integration

import (
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/request"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// TestOverQuota: what is never refused is answered far beyond a node's quota too, and a connection
// that has nothing else rests.
func TestOverQuota(t *testing.T) {
	t.Parallel()
	s := start(t, func(c *server.Config) { manual(c) })
	c := connect(t, s)
	var info protocol.NodeInfo
	c.must(protocol.KindNodeCreate, 0, &protocol.NodeCreate{Path: "/slow",
		Config: protocol.NodeConfig{Fields: protocol.FieldMaxRequests, MaxRequests: 1}}, &info)
	await.True(t, "the quota", func() bool { return s.Requests.Routes().Rates[info.ID] != nil })
	session := c.session(info.ID, 1)
	pause := func() (yes bool) {
		s.Requests.EachClient(func(c *request.Client) { yes = yes || c.Paused() })
		return yes
	}
	const burst = 300
	var last uint64
	for !pause() {
		var b []byte
		for range burst {
			c.nextID++
			c.seq++
			last = c.nextID
			b = protocol.AppendFrame(b, protocol.KindRelease, c.nextID, c.bucket(info.ID, "x"), &protocol.Release{
				Head: protocol.Head{Session: session.Session, Seq: c.seq, Low: c.seq}, Name: []byte("x"),
			})
		}
		c.write(b)
		for !c.answered(last) && !pause() { // what is left of the burst may wait for the end of the rest
		}
	}
	for _, h := range c.later {
		if h.Kind == protocol.KindRelease|protocol.KindReply && protocol.Status(h.Arg) == protocol.StatusOverloaded {
			t.Fatal("a release was refused")
		}
	}
}
