// Package governor reconciles the cluster with the meta state: it moves instances, replicasets,
// raft groups, leaderships, buckets and coordination nodes to where they are wanted. Plan is a pure
// function from the state and the instances' heartbeats to the next steps. Governor runs the plans
// where the meta shard leads, and offers the calls that change nodes and the cluster. DESIGN.md has
// the flow.
package governor

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// Meta is the meta shard's replica on this instance.
type Meta interface {
	// Propose returns the result of a command once it is applied here. After an error the command
	// may have been applied, or may be later, or never.
	Propose(ctx context.Context, cmd []byte) (result []byte, err error)
	// State returns the state applied here. It never changes, and the caller must not change it.
	State() *meta.State
	// Leading reports whether this replica believes that it leads. It may be wrong: two governors
	// at once waste work and do no harm.
	Leading() bool
	// Changed returns a channel that is closed, or sent to, when an entry was applied or Leading
	// may have changed since the call.
	Changed() <-chan struct{}
}

// Shards are the data shards, wherever they run.
type Shards interface {
	// Propose returns nil once the shard has applied the command with status OK. After an error the
	// command may have been applied, or may be later, or never.
	Propose(ctx context.Context, shard uint64, c shard.Command) error
	// Registers reads the shard's registers, and a node's contents there, behind a barrier that
	// began after the call.
	Registers(ctx context.Context, shard, node uint64) (Registers, error)
	// CopyBuckets has the leader of the target shard fetch the frozen copy of a run of buckets from
	// the source shard, and import it. A call takes a bounded time. The next call resumes where it
	// stopped. done says that the target has all chunks. ABORTED: call again soon. After an error,
	// chunks may have been imported, or may be later.
	CopyBuckets(ctx context.Context, source, target uint64, run shard.BucketsBody) (done bool, err error)
}

// Registers are the values that a governor reads from a shard.
type Registers struct {
	Epoch uint64 // of its leader
	Token uint64 // the highest fencing token that it may have given out
	Node  shard.Contents
}

// Groups are the raft groups, wherever they run; the meta shard's id is meta.MetaShardID. Every
// change names the membership for which it was planned (Membership.ConfigChange), and is refused in
// any other: a late or repeated change does nothing. After an error it may have been made.
type Groups interface {
	// Members is the membership, read behind a barrier that began after the call.
	Members(ctx context.Context, shard uint64) (Membership, error)
	// AddNonVoting adds a non-voting replica.
	AddNonVoting(ctx context.Context, shard, replica uint64, address string, configChange uint64) error
	// Promote makes a non-voting replica a voter.
	Promote(ctx context.Context, shard, replica, configChange uint64) error
	// Remove removes a replica for ever, member or not: its id cannot be added again.
	Remove(ctx context.Context, shard, replica, configChange uint64) error
	// Transfer transfers leadership to a voter. It returns nil when the voter leads in a term after
	// the given one, 0 for any. Earlier proposals are committed or refused, never lost.
	Transfer(ctx context.Context, shard, replica, after uint64) error
}

// Instances are the processes of the cluster.
type Instances interface {
	// Health is the last heartbeat of each instance, by id, this instance included. The caller may
	// keep the map and must not write to it.
	Health() map[uint64]Heartbeat
	// Unreached are the instances that this one does not reach at their raft address, by id.
	Unreached() map[uint64]Unreached
	// Changed returns a channel that is closed when a heartbeat brings news: of a process, a
	// leader, or the members of a group.
	Changed() <-chan struct{}
}

// Clock is the instance's clock. Pauses between retries use the runtime's timers.
type Clock interface {
	Now() time.Duration // monotonic
	Wall() time.Time    // for people
}

// Config of a governor. Meta, Shards and Clock are required. Without Groups and Instances, steps
// that need them are left out: enough for one instance.
type Config struct {
	Meta      Meta
	Shards    Shards
	Groups    Groups
	Instances Instances
	Clock     Clock
	// OfflineAfter is the age of its last heartbeat above which an instance does not count as alive
	// any more; default DefaultOfflineAfter. Below FreshLimit it is FreshLimit.
	OfflineAfter time.Duration
	Logger       *slog.Logger // default slog.Default()
}

const (
	// Backoff is the pause before a failed step or proposal is tried again. It doubles with each
	// failure of a step, up to MaxBackoff.
	Backoff    = 250 * time.Millisecond
	MaxBackoff = time.Second
	// StepTimeout bounds one try of a step or a proposal.
	StepTimeout = 3 * time.Second
	// MaxStepsPerShard bounds the steps in flight for one shard: a shard that does not answer
	// delays no other.
	MaxStepsPerShard = 64
)

// Governor is the loop of one instance, and its service. Its methods may be called from any
// goroutine.
type Governor struct {
	Service
	groups       Groups
	instances    Instances
	offlineAfter time.Duration
	log          *slog.Logger
	lastPlan     atomic.Pointer[planner] // the last plan of Run; immutable

	applicants  applicantTable
	planned     notifier // wakes goroutines that wait for the next plan
	stepsDone   atomic.Uint64
	stepsFailed atomic.Uint64
}

// Service is the calls that change the cluster, its nodes, tokens, rights and keys. They return
// only while [Governor.Run] runs, here and where the meta shard leads: give them a context that
// ends.
type Service struct {
	*metaLog
	shards Shards
}

// Steps counts the steps that this governor has executed, and the failed tries.
func (g *Governor) Steps() (taken, failed uint64) { return g.stepsDone.Load(), g.stepsFailed.Load() }

// New makes a governor. Run starts it.
func New(c Config) *Governor {
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return &Governor{
		Service: Service{&metaLog{meta: c.Meta, clock: c.Clock}, c.Shards},
		groups:  c.Groups, instances: c.Instances, offlineAfter: c.OfflineAfter, log: c.Logger,
	}
}

// NoteApplicant notes for operators why a process was not admitted; empty: it can be.
func (g *Governor) NoteApplicant(name, address, why string) {
	g.applicants.note(Applicant{Name: name, Address: address, Why: why, At: g.clock.Now()})
}

// notifier wakes all goroutines that wait for a change, whichever kind of channel Meta.Changed is.
type notifier struct {
	mu sync.Mutex
	ch chan struct{}
}

// wait returns a channel that the next wake closes. Take the channel before reading the state that
// may change.
func (n *notifier) wait() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch == nil {
		n.ch = make(chan struct{})
	}
	return n.ch
}

func (n *notifier) wake() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch != nil {
		close(n.ch)
		n.ch = nil
	}
}

// watchChanges wakes g.changes with every change of the meta shard and every new heartbeat.
func (g *Governor) watchChanges(ctx context.Context) {
	for {
		changed := g.meta.Changed()
		var heard <-chan struct{}
		if g.instances != nil {
			heard = g.instances.Changed()
		}
		g.changes.wake() // after the channels are taken: it covers earlier changes
		select {
		case <-changed:
		case <-heard:
		case <-ctx.Done():
			return
		}
	}
}
