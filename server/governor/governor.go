// Package governor carries out what the meta state has decided: it brings instances, replicasets, raft groups, masters, buckets and coordination nodes to where
// they are wanted, until the state says that nothing is pending. Plan is a pure function from the state and the health of instances to the next steps;
// Governor is the loop that takes them, where the meta shard leads, and the service that the server calls to change nodes and the cluster. DESIGN.md has the
// flow.
package governor

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// Meta is the meta shard's replica on this instance.
type Meta interface {
	// Propose returns the result of applying cmd, once it is applied here. After an error it may have been applied, or may be later, or never.
	Propose(ctx context.Context, cmd []byte) (result []byte, err error)
	// View calls f while nothing is applied. f must be short, and keep nothing but a copy of the machine's State.
	View(f func(m *meta.Machine))
	// Leading says that this replica seems to lead. It may be wrong: two governors at once waste work, no more.
	Leading() bool
	// Changed returns a channel that is closed, or sent to, when something was applied or Leading may have changed since the call.
	Changed() <-chan struct{}
}

// Shards are the data shards, wherever they run.
type Shards interface {
	// Propose returns nil once the shard has applied the command and answered OK. After an error it may have been applied, or may be later, or never.
	Propose(ctx context.Context, shard uint64, c shard.Command) error
	// LeaderEpoch is the shard's leader epoch, read behind a barrier that began after the call.
	LeaderEpoch(ctx context.Context, shard uint64) (uint64, error)
	// CopyBuckets has the leader of the target shard fetch the frozen copy of a run of buckets from
	// the source shard and import it. A call takes a bounded time and goes on where the last one
	// stopped; done says that the target has all chunks. ABORTED: try again soon. After an error,
	// chunks may have been imported, or may be later.
	CopyBuckets(ctx context.Context, source, target uint64, run shard.BucketsBody) (done bool, err error)
}

// Groups are the raft groups, wherever they run; the meta shard's has the id meta.MetaShardID. Every change names the state of the group that it was made
// for (Membership.ConfigChange) and is refused in any other, so that a late or repeated one does nothing. After an error it may have been made all the same.
type Groups interface {
	// Members is the membership, read behind a barrier that began after the call.
	Members(ctx context.Context, shard uint64) (Membership, error)
	// AddNonVoting lets a replica without a vote follow.
	AddNonVoting(ctx context.Context, shard, replica uint64, address string, configChange uint64) error
	// Promote gives a replica without a vote one.
	Promote(ctx context.Context, shard, replica, configChange uint64) error
	// Remove removes a replica for ever, member or not: its id cannot be added afterwards.
	Remove(ctx context.Context, shard, replica, configChange uint64) error
	// Transfer has a voter lead, and returns nil when it does in a term after the given one, 0 for any. What was proposed before is committed or refused, not lost.
	Transfer(ctx context.Context, shard, replica, after uint64) error
}

// Instances are the processes of the cluster.
type Instances interface {
	// Health is the last heartbeat of each instance, by id, this one included. The caller may keep the map and must not write to it.
	Health() map[uint64]Health
	// Changed returns a channel that is closed when a heartbeat said something new since the call:
	// of a process, a leader, or the members of a group.
	Changed() <-chan struct{}
}

// Clock is the instance's clock. Pauses between retries do not use it.
type Clock interface {
	Now() time.Duration // monotonic
	Wall() time.Time    // for people
}

// Config of a governor. Meta, Shards and Clock are needed. Without Groups and Instances nothing that needs them is done: enough for one instance.
type Config struct {
	Meta         Meta
	Shards       Shards
	Groups       Groups
	Instances    Instances
	Clock        Clock
	OfflineAfter time.Duration // after which an instance does not count as alive any more; default DefaultOfflineAfter
	Logger       *slog.Logger  // default slog.Default()
	Random       io.Reader     // default crypto/rand
}

// ErrLater is in the error of a step that is in order and has to wait for others: it is not worth a warning.
var ErrLater = errors.New("later")

const (
	// Backoff is the pause before a failed step or proposal is tried again; of a step that goes on failing it doubles up to MaxBackoff.
	Backoff    = 250 * time.Millisecond
	MaxBackoff = time.Second
	// StepTimeout bounds one try of a step or a proposal.
	StepTimeout = 3 * time.Second
	// MaxStepsPerShard is how many steps about one shard are under way at a time: one that does not answer holds up no other.
	MaxStepsPerShard = 64
)

// Governor is the loop and the service of one instance. Its methods may be called from any goroutine; those that change something come back only while
// Run runs, here and where the meta shard leads, and must be given a context that ends.
type Governor struct {
	meta         Meta
	shards       Shards
	groups       Groups
	instances    Instances
	clock        Clock
	offlineAfter time.Duration
	log          *slog.Logger
	random       io.Reader
	changes      notifier
	lastPlan     atomic.Pointer[planner] // the last plan of Run, which nothing changes any more
	planned      notifier                // wakes who waits for the next one
	stepsDone    atomic.Uint64
	stepsFailed  atomic.Uint64
}

// Steps is how many steps this governor has carried out, and how many tries failed, since it was made.
func (g *Governor) Steps() (taken, failed uint64) { return g.stepsDone.Load(), g.stepsFailed.Load() }

// New makes a governor that is not running yet.
func New(c Config) *Governor {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Random == nil {
		c.Random = rand.Reader
	}
	return &Governor{
		meta: c.Meta, shards: c.Shards, groups: c.Groups, instances: c.Instances, clock: c.Clock, offlineAfter: c.OfflineAfter, log: c.Logger, random: c.Random,
	}
}

// State is the meta state as this instance has applied it. It never changes: keep it as long as you like.
func (g *Governor) State() *meta.State {
	var s meta.State
	g.meta.View(func(m *meta.Machine) { s = m.State })
	return &s
}

// turn wakes everybody who waits for the meta shard or a heartbeat, whichever kind of channel
// Meta.Changed is.
type notifier struct {
	mu sync.Mutex
	ch chan struct{}
}

// wait returns a channel that is closed by the next call of wake. Take it before looking at what it tells of.
func (t *notifier) wait() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ch == nil {
		t.ch = make(chan struct{})
	}
	return t.ch
}

func (t *notifier) wake() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ch != nil {
		close(t.ch)
		t.ch = nil
	}
}

// listen wakes g.turn with every change of the meta shard, and of what instances say of themselves.
func (g *Governor) watchChanges(ctx context.Context) {
	for {
		changed := g.meta.Changed()
		var heard <-chan struct{}
		if g.instances != nil {
			heard = g.instances.Changed()
		}
		g.changes.wake() // after the channels are taken: what they do not tell any more, this does
		select {
		case <-changed:
		case <-heard:
		case <-ctx.Done():
			return
		}
	}
}
