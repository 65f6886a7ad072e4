package rollout

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// corpus are records of tracks with something in every field.
func corpus(t testing.TB) (list [][]byte) {
	for seed := range uint64(12) {
		x := newRandomRun(&testing.T{}, seed, false)
		for range 200 {
			x.step()
			x.invariants()
		}
		list = append(list, x.track.Append(nil))
	}
	return list
}

// exerciseTrack makes calls on whatever Decode accepted: nothing may panic, and every state that
// follows is one that Decode accepts.
func exerciseTrack(t testing.TB, x *Track) {
	var out Events
	now := Now{Log: x.clock, Wall: 1 << 40}
	for i := range uint64(4) {
		x.Describe(now)
		_, _ = x.Next()
		for _, l := range x.locations {
			_, _ = x.History(l.name)
			_ = x.Promote(now, []string{l.name}, &out)
			if i == 1 {
				_ = x.Reelect(now, []string{l.name}, &out)
			}
			if len(l.history) > 0 && i == 2 {
				_ = x.Rollback(now, []string{l.name}, l.history[0].version, &out)
			}
		}
		for id, p := range x.instances.byID {
			c := Caller{Session: p.session, ID: id, Incarnation: p.incarnation}
			_, _ = x.Poll(now, c, nil, &out)
			_, _ = x.Poll(now, c,
				&protocol.UpdateReport{Seq: p.seq + 1, Current: p.sent, Target: p.sent, Code: CodeOK}, &out)
			_ = x.SetRole(now, c, protocol.InstanceLeader, &out)
			_, _ = x.Instance(id)
		}
		for _, g := range x.PendingGates() {
			_ = x.ReportGate(now, g.Location, g.Version, g.Gate.Name,
				g.Attempt, protocol.GateOutcome(i%3+1), "", &out)
		}
		_, _ = x.Publish(now, 0, nil, &out)
		c := x.Config()
		if len(c.Locations) > 1 && i == 2 {
			c.Locations = c.Locations[1:]
			_ = x.Configure(now, x.Revision(), c, &out)
		}
		now.Log += 100_000
		x.Tick(now, &out)
		if u, err := Decode(x.Append(nil)); err != nil || u.Digest() != x.Digest() {
			t.Fatalf("a state is not what Decode accepts: %v, check %v", err, x.Check())
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, b := range corpus(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := Decode(b)
		if err != nil {
			return
		}
		if !bytes.Equal(x.Append(nil), b) {
			t.Fatal("two records for one state")
		}
		exerciseTrack(t, x)
	})
}

// TestDamagedRecords changes bytes of records: Decode refuses them, or takes them for another state
// that is as good.
func TestDamagedRecords(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	accepted := 0
	for _, good := range corpus(t) {
		for range 150 {
			b := bytes.Clone(good)
			for range 1 + rng.IntN(2) {
				b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
			}
			if rng.IntN(4) == 0 {
				b = b[:rng.IntN(len(b))]
			}
			x, err := Decode(b)
			if err != nil {
				continue
			}
			accepted++
			exerciseTrack(t, x)
		}
	}
	if accepted == 0 {
		t.Fatal("none of the damaged records was accepted: the test shows nothing")
	}
}

func appendConfig(b []byte, c *protocol.TrackConfig) []byte {
	return varint.Encode(b, func(f *varint.Fields) { configFields(c, f) })
}

func readConfig(r *varint.Reader) (c protocol.TrackConfig) {
	varint.Decode(r, func(f *varint.Fields) { configFields(&c, f) })
	return c
}

func FuzzConfig(f *testing.F) {
	c, _ := Normalize(protocol.TrackConfig{Source: protocol.SourceTSO,
		Locations: []protocol.LocationConfig{{Name: "SAS", Gates: []protocol.GateConfig{{Name: "g", Kind: protocol.GateCommand}}},
			{Name: "MAN", Delay: 5}}})
	f.Add(appendConfig(nil, &c))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := varint.Reader{Rest: b}
		n, err := Normalize(readConfig(&r))
		if r.Failed || err != nil {
			return
		}
		r = varint.Reader{Rest: appendConfig(nil, &n)}
		again := readConfig(&r)
		if r.Failed || len(r.Rest) > 0 {
			t.Fatalf("%+v is not read back", n)
		}
		if _, err := Normalize(again); err != nil {
			t.Fatal(err)
		}
	})
}
