package process

import (
	"math/rand/v2"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// sampleProcess is a process with something in every field of its record.
func sampleProcess(t *testing.T) *Process {
	c := newWorkload(t, protocol.ProcessOptions{Return: 1_000, RoundTimeout: 1_000})
	c.at = Now{Log: 5, Wall: 1_000}
	c.join(1, 2)
	c.entry(func(out *Out) {
		for i, key := range []string{"x", "y"} {
			session := uint64(10 + i)
			c.living[session] = true
			_, err := c.p.Join(c.at,
				Join{Session: session, Key: key, Identity: "user", Data: []byte("data"), Weight: 7}, out)
			c.must(err)
		}
	})
	c.entry(func(out *Out) { c.must(c.p.Evict(c.at, 2, "why", out)) })
	c.entry(func(out *Out) {
		_, err := c.p.Leave(c.at, 1, out)
		c.must(err)
	})
	c.end(11)
	return c.p
}

// TestDamagedRecords: a record with a changed, missing or additional byte is refused, or is the
// record of another sound process.
func TestDamagedRecords(t *testing.T) {
	record := sampleProcess(t).Append(nil)
	rnd := rand.New(rand.NewPCG(1, 1))
	refused, sound := 0, 0
	for i := range record {
		for _, damage := range []func(b []byte) []byte{
			func(b []byte) []byte { b[i] ^= 1 << rnd.IntN(8); return b },
			func(b []byte) []byte { b[i] = 0xff; return b },
			func(b []byte) []byte { b[i] = 0; return b },
			func(b []byte) []byte { return append(b[:i], b[i+1:]...) },
			func(b []byte) []byte { return b[:i] },
			func(b []byte) []byte { return append(b, byte(i)) },
		} {
			p, err := Decode(damage(append([]byte(nil), record...)))
			if err != nil {
				refused++
				continue
			}
			sound++
			script := make([]byte, 60)
			for k := range script {
				script[k] = byte(rnd.Uint32())
			}
			drive(t, p, script)
		}
	}
	if refused == 0 || sound == 0 {
		t.Fatalf("%d refused, %d sound", refused, sound)
	}
	if _, err := Decode(make([]byte, MaxRecord+1)); err == nil {
		t.Fatal("too long a record is taken")
	}
}

// TestFormerMembers: what is remembered of sessions that were members is bounded, in number and in
// time.
func TestFormerMembers(t *testing.T) {
	c := newWorkload(t, protocol.ProcessOptions{})
	c.join(1)
	for i := range uint64(MaxFormer + 10) {
		c.join(i + 2)
		c.entry(func(out *Out) { c.must(c.p.Evict(c.at, i+2, "", out)) })
	}
	var out Out
	if len(c.p.formerMembers) != MaxFormer || c.p.Resend(2, &out) ||
		!c.p.Resend(MaxFormer+11, &out) || len(out.Events) != 1 {
		t.Fatalf("%d are remembered, %d events", len(c.p.formerMembers), len(out.Events))
	}
	c.at.Log += Retention + 1
	c.join(1_000)
	c.entry(func(out *Out) {
		completedEpoch, err := c.p.Leave(c.at, 1_000, out)
		c.must(err)
		again, err := c.p.Leave(c.at, 1_000, out)
		c.must(err)
		if completedEpoch != c.p.Epoch() || again != completedEpoch {
			t.Fatalf("left with %d, then %d, in epoch %d", completedEpoch, again, c.p.Epoch())
		}
	})
	if len(c.p.formerMembers) != 1 {
		t.Fatalf("%d are remembered", len(c.p.formerMembers))
	}
}

// TestFloor: epochs of a process made again begin above those of the one before.
func TestFloor(t *testing.T) {
	c := newWorkload(t, protocol.ProcessOptions{})
	c.join(1, 2)
	floor := c.p.HighestEpoch()
	p, err := New(c.at, floor, protocol.ProcessOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var out Out
	if _, err := p.Join(c.at, Join{Session: 1}, &out); err != nil {
		t.Fatal(err)
	}
	p.Tick(c.at, &out)
	if p.Epoch() <= floor || p.Topology() != 1 || p.Options() != c.p.Options() {
		t.Fatalf("epoch %d, floor %d", p.Epoch(), floor)
	}
	if _, err := New(c.at, maxCounter+1, protocol.ProcessOptions{}); err == nil {
		t.Fatal("a floor beyond all bounds is taken")
	}
}
