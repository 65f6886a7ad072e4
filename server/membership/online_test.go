package membership

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/cluster"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// updateRecorder is a cluster that takes an instance for dead some times after it has said that it
// is there.
type updateRecorder struct {
	deaf int // so often
	err  error
	said int
}

func (l *updateRecorder) UpdateInstance(_ context.Context, c meta.InstanceUpdate) (meta.Instance, error) {
	l.said++
	i := meta.Instance{ID: c.Instance, Target: meta.InstanceState{Variant: c.Target, Incarnation: uint64(l.said)}}
	if l.said <= l.deaf {
		i.Target.Variant = meta.Offline
	}
	return i, l.err
}

// TestRegisterInstance: an instance that is taken for dead between its first words and the moment
// at which it could know that they were heard says them again.
func TestRegisterInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		words := meta.InstanceUpdate{Instance: 7, Target: meta.Online, Start: true}
		for _, deaf := range []int{0, 1, 5} {
			l := &updateRecorder{deaf: deaf}
			i, err := registerInstance(t.Context(), l, words)
			if err != nil || i.Target != (meta.InstanceState{Variant: meta.Online, Incarnation: uint64(deaf + 1)}) || l.said != deaf+1 {
				t.Errorf("taken for dead %d times: %+v, %v, said %d times", deaf, i.Target, err, l.said)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := registerInstance(ctx, &updateRecorder{deaf: 1 << 30}, words); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("never heard: %v", err)
		}
		refusal := errors.New("no")
		l := &updateRecorder{err: refusal}
		if _, err := registerInstance(t.Context(), l, words); !errors.Is(err, refusal) || l.said != 1 {
			t.Errorf("refused: %v, said %d times", err, l.said)
		}
	})
}

// TestAdmitRefuses: a process that cannot be an instance is refused with a sentence that says why,
// before the map is changed.
func TestAdmitRefuses(t *testing.T) {
	fresh := cluster.JoinRequest{UUID: "u4", Name: "i4", RaftAddress: address(4), Tier: "default", Version: meta.Version{Minor: 1}}
	for _, x := range []struct {
		what   string
		change func(m *testMember, r *cluster.JoinRequest)
		status protocol.Status
		want   string
	}{
		{"the instance starts", func(m *testMember, _ *cluster.JoinRequest) { m.Started = func() bool { return false } },
			protocol.StatusUnavailable, "this instance is starting"},
		{"no such tier", func(_ *testMember, r *cluster.JoinRequest) { r.Tier = "gold" },
			protocol.StatusNotFound, `there is no tier "gold"; the cluster was made with the tiers default`},
		{"not reached", func(*testMember, *cluster.JoinRequest) {},
			protocol.StatusUnavailable, "does not reach this instance at a4:1, the raft address that it advertises (connection refused)"},
		{"a name that is taken", func(_ *testMember, r *cluster.JoinRequest) { r.Name = "i2" },
			protocol.StatusAlreadyExists, "i2"},
		{"an address that is taken", func(_ *testMember, r *cluster.JoinRequest) { r.RaftAddress = address(2) },
			protocol.StatusAlreadyExists, "a2:1"},
	} {
		m := newLeader(t)
		r := fresh
		x.change(m, &r)
		before := m.Meta.State().Revision()
		_, err := m.Admit(t.Context(), &r)
		if !errors.Is(err, x.status) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %v with %q", x.what, err, x.status, x.want)
		}
		if got := m.Meta.State().Revision(); got != before {
			t.Errorf("%s: the map was changed", x.what)
		}
	}
}

// TestAdmitWithoutMajority: without a majority of the meta shard nobody is admitted, and the refusal
// says so rather than let the process wait.
func TestAdmitWithoutMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMember(t, 2)
		_, err := m.Admit(t.Context(), &cluster.JoinRequest{UUID: "u4", Name: "i4", RaftAddress: address(4)})
		if !errors.Is(err, protocol.StatusUnavailable) || !strings.Contains(err.Error(), "nobody can be taken in now: ") {
			t.Error(err)
		}
	})
}

// TestCheckApplicantByTheLeader: only the leader of the meta shard, which will have to reach an
// applicant, reports whether it does.
func TestCheckApplicantByTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if _, err := newMember(t, 2).CheckApplicant(t.Context(), "i4", address(4)); !errors.Is(err, protocol.StatusWrongShard) {
			t.Errorf("a follower answers with %v", err)
		}
	})
	if why, err := newLeader(t).CheckApplicant(t.Context(), "i4", address(4)); err != nil || why != "connection refused" {
		t.Errorf("the leader answers with %q, %v", why, err)
	}
}

// TestAdmitFromNowhere: an instance whose raft address is that of every machine admits nobody.
func TestAdmitFromNowhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMember(t, 2)
		m.do(&meta.InstanceUpdate{Instance: 2, Target: meta.Online, Start: true, Address: "a2:2", RaftAddress: "0.0.0.0:1",
			Version: meta.Version{Minor: 1}})
		_, err := m.Admit(t.Context(), &cluster.JoinRequest{UUID: "u4", Name: "i4", RaftAddress: address(4)})
		if !errors.Is(err, protocol.StatusPreconditionFailed) || !strings.Contains(err.Error(), "which is that of every machine") {
			t.Error(err)
		}
	})
}

// TestHolders: a process that joins clashes with other instances that have its name or address, not
// with itself and not with one that was expelled.
func TestHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMember(t, 1)
		for _, x := range []struct {
			r    cluster.JoinRequest
			want int
		}{
			{cluster.JoinRequest{UUID: "u4", Name: "i4", RaftAddress: address(4)}, 0},
			{cluster.JoinRequest{UUID: "u4", Name: "i2", RaftAddress: address(4)}, 1},
			{cluster.JoinRequest{UUID: "u4", Name: "i2", RaftAddress: address(3)}, 2},
			{cluster.JoinRequest{UUID: "u2", Name: "i2", RaftAddress: address(2)}, 0},
		} {
			if got := holders(m.Meta.State(), &x.r); len(got) != x.want {
				t.Errorf("%+v clashes with %d instances, want %d", x.r, len(got), x.want)
			}
		}
		taken := protocol.Errorf(protocol.StatusAlreadyExists, "there is an i2; expel it")
		alive := []*cluster.Service{m.service, m.process(2, 1), m.process(3, 1)}
		for _, p := range alive {
			p.SendHeartbeat()
		}
		r := &cluster.JoinRequest{UUID: "u4", Name: "i2", RaftAddress: address(4)}
		if err := explainTaken(taken, m.observeNow(), r); err != error(taken) {
			t.Errorf("an instance that can be expelled: %v", err)
		}
		m.clock.Advance(governor.FreshLimit + 1)
		m.service.SendHeartbeat()
		if err := explainTaken(taken, m.observeNow(), r); !errors.Is(err, protocol.StatusAlreadyExists) ||
			!strings.Contains(err.Error(), "there is an i2; expel it; `i2` cannot be expelled now: ") {
			t.Errorf("two of three voters are gone: %v", err)
		}
	})
}
