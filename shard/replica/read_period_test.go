package replica

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestReadRoundsAreAligned: whatever a shard's rounds have been before, none is later than the
// period and the time between two looks; and the rounds of shards that nobody asks for fall
// together after two periods.
func TestReadRoundsAreAligned(t *testing.T) {
	const look = 100 * time.Millisecond
	random := rand.New(rand.NewPCG(1, 2))
	for _, period := range []time.Duration{500 * time.Millisecond, time.Second, 5 * time.Second} {
		start := 3*time.Hour + time.Duration(random.Int64N(int64(period)))
		var shards [64]roundStart // the last ones are busy: they prove themselves by what they apply
		for i := range shards {
			shards[i].note(start - time.Duration(random.Int64N(int64(period))))
		}
		const busy = 56
		for now := start; now < start+10*period; now += look + time.Duration(random.Int64N(int64(look/10))) {
			rounds := 0
			for i := range shards {
				x := &shards[i]
				if age := now - time.Duration(x.at.Load()); age > period+2*look {
					t.Fatalf("a round after %s, the period is %s", age, period)
				}
				if i >= busy && random.IntN(4) > 0 {
					x.note(now - time.Duration(random.Int64N(int64(look))))
				}
				if x.due(now, period) {
					x.note(now)
					if i < busy {
						rounds++
					}
				}
			}
			if now > start+2*period && rounds != 0 && rounds != busy {
				t.Fatalf("rounds of %d of %d idle shards at a time", rounds, busy)
			}
		}
	}
	var never roundStart
	if !never.due(time.Nanosecond, time.Hour) {
		t.Error("no first round is due")
	}
	x := roundStart{}
	x.note(time.Hour - time.Millisecond)
	if x.due(time.Hour+time.Millisecond, time.Second) {
		t.Error("a round is due right after another one")
	}
}

// TestFollowersKnowThePeriods: a replica that does not lead looks at its nodes' periods too, and
// makes its rounds within the least grace period.
func TestFollowersKnowThePeriods(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	c.populate()
	l := c.leader()
	for i, s := range c.shards {
		eventually(t, fmt.Sprintf("replica %d to know the periods", i+1), func() bool {
			p := &s.barriers.periods
			return p.selfCheck.Load() == protocol.DefaultSelfCheckPeriod &&
				p.grace.Load() == protocol.DefaultGracePeriod
		})
	}
	for i, s := range c.shards {
		if got := s.barriers.periods.follower(); i != l && got != protocol.DefaultGracePeriod*time.Millisecond/2 {
			t.Errorf("the period of replica %d, which does not lead, is %s", i+1, got)
		}
	}
	for _, x := range []struct{ selfCheck, grace, want uint64 }{{0, 0, 1000},
		{protocol.DefaultSelfCheckPeriod, 2000, 1000}, {500, 1500, 750}, {10_000, 11_000, 10_000}} {
		var p readPeriods
		p.selfCheck.Store(x.selfCheck)
		p.grace.Store(x.grace)
		if got := uint64(p.follower() / time.Millisecond); got != x.want {
			t.Errorf("self-check %d, grace %d: a follower's period is %d, want %d", x.selfCheck, x.grace, got, x.want)
		}
	}
}
