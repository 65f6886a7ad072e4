package shard

import (
	"bytes"
	"fmt"
	"testing"
)

// TestSkipAhead: a machine whose counters were moved on is whole, holds what it held, and goes on.
func TestSkipAhead(t *testing.T) {
	for seed := range uint64(5) {
		x := newChurn(seed, New(3))
		for range 800 {
			x.step()
		}
		m, err := Restore(bytes.NewReader(snapshotOf(t, x.m)))
		if err != nil {
			t.Fatal(err)
		}
		const made, seconds = skipOrigin + 5_000_000, 1000
		m.BumpCounters(made, made+seconds*1000)
		if err := m.Check(); err != nil {
			t.Fatal(err)
		}
		if m.Metrics().Sizes() != x.m.Metrics().Sizes() {
			t.Fatalf("%+v of %+v", m.Metrics().Sizes(), x.m.Metrics().Sizes())
		}
		moved, processes, tracks := 0, 0, 0
		for i := range m.buckets {
			now, old := &m.buckets[i], &x.m.buckets[i]
			const since = 5000 + seconds // more than the churn gives out
			ahead := now.orderCounter == skipOrders+since*skipOrdersPerSecond &&
				now.versionFloor == now.orderCounter && now.sessionCounter == skipSessions+since*skipSessionsPerSecond
			if ahead != (old.state != bucketAbsent) || now.state != old.state || now.epoch != old.epoch {
				t.Fatalf("bucket %d: %+v of %+v", i, now, old)
			}
			if ahead {
				moved++
			}
			for key, p := range old.objects[kindProcess] {
				if is := now.objects[kindProcess][key].process().HighestEpoch(); is != now.orderCounter {
					t.Fatalf("a process's last token is %d, was %d", is, p.process().HighestEpoch())
				}
				processes++
			}
			for key, tr := range old.objects[kindTrack] {
				if is := now.objects[kindTrack][key].track().Revision(); is != now.orderCounter {
					t.Fatalf("a track's revision is %d, was %d", is, tr.track().Revision())
				}
				tracks++
			}
		}
		if moved == 0 || processes == 0 || tracks == 0 {
			t.Fatalf("the machine has %d buckets, %d processes, %d tracks", moved, processes, tracks)
		}
		r, err := Restore(bytes.NewReader(snapshotOf(t, m)))
		if err != nil {
			t.Fatal(err)
		}
		if r.Digest() != m.Digest() {
			t.Fatal("its snapshot has another digest")
		}
		x.m = r
		for range 400 {
			x.step()
		}
		if err := x.m.Check(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSecondRestore: a cluster that is made of another backup of the same old one, or of the same
// one, gives out nothing that the first one gave out before. Backups are older or younger, and the
// first cluster may have been restored itself.
func TestSecondRestore(t *testing.T) {
	const hour = 3_600_000
	start := uint64(skipOrigin + 1000*hour)
	bumped := func(counter, made, now uint64) uint64 {
		m := bucketTable{buckets: []bucket{{state: bucketActive, orderCounter: counter, sessionCounter: counter}}}
		m.BumpCounters(made, now)
		return m.buckets[0].orderCounter
	}
	for _, x := range []struct {
		what            string
		counter         uint64
		first, second   uint64 // when the backups were made
		restored, again uint64 // when they were restored
	}{
		{"the same file", 1000, 0, 0, hour, hour + 1000},
		{"the younger one second", 1000, 0, 24 * hour, 25 * hour, 26 * hour},
		{"the older one second", 1000, 24 * hour, 0, 25 * hour, 26 * hour},
		{"logs that are recovered twice", 1000, hour, 9 * hour, hour, 9 * hour},
		{"the same, of a restored cluster", bumped(1000, start-9*hour, start-5*hour), hour, 9 * hour, hour, 9 * hour},
	} {
		first := bumped(x.counter, start+x.first, start+x.restored)
		granted := (x.again - x.restored) / 1000 * (skipOrdersPerSecond - 1)
		if second := bumped(x.counter, start+x.second, start+x.again); second <= first+granted {
			t.Errorf("%s: the second restore continues at %d, the first has given out %d to %d", x.what, second, first, first+granted)
		}
	}
}

// TestHighestToken: versions of data count, while their semaphore is there, after it is deleted, and
// after a restart.
func TestHighestToken(t *testing.T) {
	r := newTableTest(t)
	check := func(want uint64) {
		t.Helper()
		m, err := Restore(bytes.NewReader(snapshotOf(t, r.machine)))
		if err != nil {
			t.Fatal(err)
		}
		if got, restored := r.machine.HighestToken(), m.HighestToken(); got != want || restored != want {
			t.Errorf("the highest token is %d, %d when restored, and %d was given out", got, restored, want)
		}
	}
	r.create("a", 1)
	for i := range 3 {
		r.update("a", fmt.Sprint(i), 0)
	}
	check(4)
	r.remove("a", false)
	check(4)
}
