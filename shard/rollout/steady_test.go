package rollout

import (
	"fmt"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// steadyTrack is a track with so many instances that all have the target, and their polls.
func steadyTrack(t testing.TB, n int) (*Track, Now, []Caller, []protocol.UpdateReport) {
	now := Now{Log: 1000, Wall: 1000}
	var out Events
	x, err := New(now, protocol.TrackConfig{Source: protocol.SourcePublished,
		Locations: []protocol.LocationConfig{{Name: "SAS"}, {Name: "MAN", Delay: 5000}, {Name: "VLA", Delay: 5000}}}, &out)
	if err != nil {
		t.Fatal(err)
	}
	callers, reports := make([]Caller, n), make([]protocol.UpdateReport, n)
	for i := range n {
		id := fmt.Sprintf("host-%05d.example.net", i)
		in, err := x.Register(now, Registration{Session: uint64(i + 1), ID: id,
			Location: []string{"SAS", "MAN", "VLA"}[i%3], Role: protocol.InstanceLeader}, &out)
		if err != nil {
			t.Fatal(err)
		}
		callers[i] = Caller{Session: uint64(i + 1), ID: id, Incarnation: in}
	}
	if _, err := x.Publish(now, 0, nil, &out); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		now.Log += 5000
		for i := range callers {
			r := &reports[i]
			r.Seq++
			a, err := x.Poll(now, callers[i], r, &out)
			if err != nil {
				t.Fatal(err)
			}
			if a.Version != 0 {
				r.Current, r.Target, r.Code = a.Version, a.Version, CodeOK
			}
			out.Reset()
		}
	}
	return x, now, callers, reports
}

// TestSteadyPollsWriteNothing: ten thousand instances that have the target, and repeat their
// reports, make no log entry, however long they poll. A poll allocates nothing.
func TestSteadyPollsWriteNothing(t *testing.T) {
	x, now, callers, reports := steadyTrack(t, 10_000)
	digest := x.Digest()
	for range 5 {
		now.Log += 1000
		for i := range callers {
			if a, ok, err := x.Peek(now, callers[i], &reports[i]); !ok || err != nil ||
				a.Version != 1 || a.State != protocol.StateConverged {
				t.Fatal(a, ok, err)
			}
		}
	}
	if x.Digest() != digest {
		t.Fatal("reading changed something")
	}
	i := 0
	if n := testing.AllocsPerRun(1000, func() {
		_, _, _ = x.Peek(now, callers[i%len(callers)], &reports[i%len(reports)])
		i++
	}); n > 0 && !form.Race {
		t.Fatalf("a poll that changes nothing allocates %v times", n)
	}
}

func BenchmarkSteadyPoll(b *testing.B) {
	x, now, callers, reports := steadyTrack(b, 10_000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, ok, _ := x.Peek(now, callers[i%len(callers)], &reports[i%len(reports)]); !ok {
			b.Fatal("an entry in the log")
		}
	}
}

// BenchmarkReportedPoll is a poll with a report that tells something, one of ten thousand.
func BenchmarkReportedPoll(b *testing.B) {
	x, now, callers, reports := steadyTrack(b, 10_000)
	var out Events
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r := &reports[i%len(reports)]
		r.Seq++
		r.Attempts++
		if _, err := x.Poll(now, callers[i%len(callers)], r, &out); err != nil {
			b.Fatal(err)
		}
		out.Reset()
	}
}
