package cluster

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// Links carry words between instances. A mesh is one.
type Links interface {
	Caller
	Handle(method uint8, f func(ctx context.Context, from string, body []byte) ([]byte, error))
	OnSend(kind uint8, f func(from string, payload []byte))
}

// Config of a member. All of it is needed.
type Config struct {
	Links Links
	Local Local
	State func() *meta.State   // the map as this instance has it; never nil
	Now   func() time.Duration // monotonic
	// Join takes an instance in: it returns when the cluster has given it an id and a replica of the meta shard, or refuses.
	Join func(ctx context.Context, r *JoinRequest) (JoinReply, error)
	// Update notes in the meta shard that an instance comes or goes. An error when it is not led here.
	Update func(ctx context.Context, instance uint64, target meta.Variant, reason string) error
	// Heard is told of each heartbeat of another instance: the index of the meta shard's log that is applied there. May be nil.
	Heard func(instance, applied uint64)
	// Plan is what the governor here is about to do, as JSON, for operators who ask another instance. An
	// error when it does not govern.
	Plan func(ctx context.Context) ([]byte, error)
	// Backup is a part of a backup of a shard that is led here, or whose backup was begun here: both documents are JSON, for operators who ask another instance.
	Backup func(ctx context.Context, request []byte) ([]byte, error)
	// Ended says whether the process of the instance at a raft address has ended, as far as this one can tell. May be nil.
	Ended  func(ctx context.Context, address string) bool
	Logger *slog.Logger
}

// Member is an instance among the others. Its methods may be called from any goroutine.
type Member struct {
	cfg    Config
	health *healthTable
	any    *anywhere

	self        atomic.Uint64 // this instance's id; 0 before it is known
	open        atomic.Bool   // what is asked of Local can be answered
	incarnation atomic.Uint64
	seq         atomic.Uint64
	hurry       chan struct{} // the next heartbeat is to come soon
}

// New makes a member, and registers with the links, which must not run yet, what others may ask of it. They are told to come again until Open.
func New(c Config) *Member {
	m := &Member{cfg: c, health: newHealthTable(c.Now), hurry: make(chan struct{}, 1)}
	m.any = &anywhere{self: m.self.Load, local: c.Local, caller: c.Links, state: c.State, health: m.health}
	m.answer()
	return m
}

// Be says which instance this is.
func (m *Member) Be(instance uint64) { m.self.Store(instance) }

// Open says that the log engine runs: from now on the others are answered.
func (m *Member) Open() { m.open.Store(true) }

// Shards reaches data shards wherever they are led.
func (m *Member) Shards() governor.Shards { return m.any }

// Groups reaches raft groups wherever they are led.
func (m *Member) Groups() governor.Groups { return m.any }

// Instances is who has been heard here.
func (m *Member) Instances() governor.Instances { return m.any }

// Started notes the incarnation that this process was given: from now on its heartbeats speak for it.
func (m *Member) Started(incarnation uint64) { m.incarnation.Store(incarnation) }

// Send brings a message to the leader of another shard, wherever it is thought to be. It may be lost. It implements replica.Peers.
func (m *Member) Send(to, from uint64, msg []byte) {
	s := m.cfg.State()
	x, ok := s.Shard(to)
	if !ok {
		return
	}
	words := encode(&letterWords{To: to, From: from, Bytes: msg})
	instance := x.Master
	if r, ok := m.cfg.Local.Report()[to]; ok && r.Leader != 0 {
		if leader, ok := x.Replica(r.Leader); ok {
			instance = leader.Instance
		}
	}
	if i, ok := s.Instance(instance); ok && instance != m.self.Load() && !i.Expelled() {
		m.cfg.Links.Send(i.RaftAddress, kindLetter, words)
	}
}

// Hurry has the next heartbeat sent soon: a leader or the members of a group have changed here, and
// the governor waits for it. It may be called from anywhere.
func (m *Member) Hurry() {
	select {
	case m.hurry <- struct{}{}:
	default:
	}
}

// Run sends heartbeats until ctx ends.
func (m *Member) Run(ctx context.Context) {
	t := time.NewTimer(HeartbeatPeriod)
	defer t.Stop()
	for {
		last := time.Now()
		m.Beat()
		t.Reset(HeartbeatPeriod)
		select {
		case <-t.C:
			continue
		case <-m.hurry:
		case <-ctx.Done():
			return
		}
		t.Reset(heartbeatGap - time.Since(last))
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// Beat sends one heartbeat to every other instance: to those that may govern, for that, and to all for what
// they say about the cluster's health.
func (m *Member) Beat() {
	s := m.cfg.State()
	b := heartbeatOf(m.self.Load(), m.incarnation.Load(), m.seq.Add(1), m.cfg.Local.Report())
	m.health.heard(b)
	m.health.forget(func(id uint64) bool {
		i, ok := s.Instance(id)
		return ok && !i.Expelled()
	})
	words := encode(b)
	group := s.MetaShard()
	for _, r := range group.Replicas {
		if i, ok := s.Instance(r.Instance); ok && r.Instance != m.self.Load() {
			m.cfg.Links.Send(i.RaftAddress, kindHeartbeat, words)
		}
	}
}

// AskPlan asks the instance that governs for its plan.
func (m *Member) AskPlan(ctx context.Context) (plan []byte, err error) {
	var answer planAnswer
	err = m.any.ask(ctx, meta.MetaShardID, func(ctx context.Context) (err error) {
		answer.Plan, err = m.cfg.Plan(ctx)
		return err
	}, methodPlan, &shardWords{Shard: meta.MetaShardID}, &answer)
	return answer.Plan, err
}

// AskBackup asks the instance that leads a shard for a part of a backup.
func (m *Member) AskBackup(ctx context.Context, shard uint64, request []byte) ([]byte, error) {
	var answer backupAnswer
	err := m.any.ask(ctx, shard, func(ctx context.Context) (err error) {
		answer.Body, err = m.cfg.Backup(ctx, request)
		return err
	}, methodBackup, &backupWords{Body: request}, &answer)
	return answer.Body, err
}

type backupWords struct {
	Body []byte
}

type backupAnswer struct {
	Body []byte
}

// Update has the leader of the meta shard note that this instance comes or goes. It is asked directly, over the way that heartbeats take.
func (m *Member) Update(ctx context.Context, target meta.Variant, reason string) error {
	self := m.self.Load()
	return m.any.ask(ctx, meta.MetaShardID, func(ctx context.Context) error { return m.cfg.Update(ctx, self, target, reason) }, methodUpdate,
		&updateWords{Instance: self, Target: uint8(target), Reason: reason}, nil)
}

// knows says whether an address is that of another instance of the cluster.
func (m *Member) knows(address string) bool {
	return slices.ContainsFunc(m.cfg.State().Instances(), func(i meta.Instance) bool {
		return i.RaftAddress == address && i.ID != m.self.Load() && !i.Expelled()
	})
}

// Answers asks another instance for a sign of life: it is there, reached, and works.
func (m *Member) Answers(ctx context.Context, instance uint64) error {
	i, ok := m.cfg.State().Instance(instance)
	if !ok {
		return protocol.Errorf(protocol.StatusNotFound, "there is no instance %d", instance)
	}
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	if _, err := m.cfg.Links.Call(ctx, i.RaftAddress, methodEnded, encode(&endedWords{})); err != nil {
		return protocol.Errorf(protocol.StatusUnavailable, "instance %q does not answer: %v", i.Name, err)
	}
	return nil
}

// answerLimit is how long a sign of life is waited for.
const answerLimit = 500 * time.Millisecond

// AskEnded is told that the process at a raft address has ended. It asks all other instances whether they find the same, and tells the address of each that says so, as the answers come.
func (m *Member) AskEnded(ctx context.Context, address string, says func(from string)) {
	if !m.knows(address) {
		return
	}
	for _, i := range m.cfg.State().Instances() {
		if i.RaftAddress == address {
			m.health.ended(i.ID)
		}
	}
	var all sync.WaitGroup
	for _, i := range m.cfg.State().Instances() {
		if i.ID == m.self.Load() || i.RaftAddress == address || i.Expelled() {
			continue
		}
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			var answer endedAnswer
			b, err := m.cfg.Links.Call(ctx, i.RaftAddress, methodEnded, encode(&endedWords{Address: address}))
			if err == nil && decode(b, &answer) == nil && answer.Ended {
				says(i.RaftAddress)
			}
		})
	}
	all.Wait()
}

type planAnswer struct {
	Plan []byte
}

// answer registers what the others may ask.
func (m *Member) answer() {
	l, local := m.cfg.Links, m.cfg.Local
	l.OnSend(kindHeartbeat, func(_ string, b []byte) {
		var w heartbeat
		if decode(b, &w) != nil || w.Instance == m.self.Load() {
			return
		}
		m.health.heard(&w)
		for _, x := range w.Shards {
			if x.Shard == meta.MetaShardID && m.cfg.Heard != nil {
				m.cfg.Heard(w.Instance, x.Applied)
			}
		}
	})
	l.OnSend(kindLetter, func(_ string, b []byte) {
		var w letterWords
		if m.open.Load() && decode(b, &w) == nil {
			local.Letter(w.To, w.From, w.Bytes)
		}
	})
	l.Handle(methodWho, on(m, func(_ context.Context, w *whoWords) (any, error) {
		s := m.cfg.State()
		i, ok := s.InstanceByUUID(w.UUID)
		if !ok {
			return nil, protocol.Errorf(protocol.StatusNotFound, "there is no instance with the uuid %s", w.UUID)
		}
		// Who is to be expelled and is not yet has buckets to give away, and is needed for that.
		answer := whoAnswer{Instance: i.ID, Expelled: i.Expelled()}
		group := s.MetaShard()
		if r, ok := group.On(i.ID); ok {
			answer.MetaReplica = r.Replica
		}
		return &answer, nil
	}))
	l.Handle(methodJoin, on(m, func(ctx context.Context, w *JoinRequest) (any, error) {
		reply, err := m.cfg.Join(ctx, w)
		return &reply, err
	}))
	l.Handle(methodPropose, on(m, func(ctx context.Context, w *proposeWords) (any, error) {
		c := shard.Command{Kind: shard.CommandKind(w.Kind), Node: w.Node, Epoch: w.Epoch, Client: w.Client, Body: w.Body}
		return nil, local.Propose(ctx, w.Shard, c)
	}))
	l.Handle(methodLeaderEpoch, on(m, func(ctx context.Context, w *shardWords) (any, error) {
		epoch, err := local.LeaderEpoch(ctx, w.Shard)
		return &epochAnswer{Epoch: epoch}, err
	}))
	l.Handle(methodExport, on(m, func(ctx context.Context, w *exportWords) (any, error) {
		chunk, next, err := local.Export(ctx, w.Shard, governor.ExportRequest{Tier: w.Tier, First: w.First, Count: w.Count, Epoch: w.Epoch, Cursor: w.Cursor})
		return &exportAnswer{Chunk: chunk, Next: next}, err
	}))
	l.Handle(methodMembers, on(m, func(ctx context.Context, w *shardWords) (any, error) {
		found, err := local.Members(ctx, w.Shard)
		words := membersWords(&found)
		return &words, err
	}))
	l.Handle(methodChange, on(m, func(ctx context.Context, w *changeWords) (any, error) {
		switch w.What {
		case changeAdd:
			return nil, local.AddNonVoting(ctx, w.Shard, w.Replica, w.Address, w.ConfigChange)
		case changePromote:
			return nil, local.Promote(ctx, w.Shard, w.Replica, w.ConfigChange)
		case changeRemove:
			return nil, local.Remove(ctx, w.Shard, w.Replica, w.ConfigChange)
		}
		return nil, protocol.Errorf(protocol.StatusUnsupported, "membership change %d is not known here; upgrade this instance", w.What)
	}))
	l.Handle(methodTransfer, on(m, func(ctx context.Context, w *transferWords) (any, error) {
		return nil, local.Transfer(ctx, w.Shard, w.Replica, w.After)
	}))
	l.Handle(methodUpdate, on(m, func(ctx context.Context, w *updateWords) (any, error) {
		return nil, m.cfg.Update(ctx, w.Instance, meta.Variant(w.Target), w.Reason)
	}))
	l.Handle(methodBackup, on(m, func(ctx context.Context, w *backupWords) (any, error) {
		body, err := m.cfg.Backup(ctx, w.Body)
		return &backupAnswer{Body: body}, err
	}))
	l.Handle(methodEnded, on(m, func(ctx context.Context, w *endedWords) (any, error) {
		var answer endedAnswer
		if m.cfg.Ended != nil && m.knows(w.Address) {
			answer.Ended = m.cfg.Ended(ctx, w.Address)
		}
		return &answer, nil
	}))
	l.Handle(methodPlan, on(m, func(ctx context.Context, _ *shardWords) (any, error) {
		plan, err := m.cfg.Plan(ctx)
		return &planAnswer{Plan: plan}, err
	}))
}

// on makes a handler of a function of words. An error that carries no status is one of this instance at this moment: another may do better.
func on[W any](m *Member, f func(ctx context.Context, w *W) (any, error)) func(context.Context, string, []byte) ([]byte, error) {
	return func(ctx context.Context, _ string, body []byte) ([]byte, error) {
		if !m.open.Load() {
			return nil, protocol.Errorf(protocol.StatusUnavailable, "this instance is starting; ask again")
		}
		w := new(W)
		if err := decode(body, w); err != nil {
			return nil, err
		}
		answer, err := f(ctx, w)
		var told *protocol.Error
		switch {
		case errors.As(err, &told):
			return nil, err
		case err != nil:
			return nil, protocol.Errorf(protocol.StatusUnavailable, "%v", err)
		case answer == nil:
			return nil, nil
		}
		return encode(answer), nil
	}
}

// Sponsor is the address of an instance that takes others in, this one's if it can, else of one that is Online; empty while none is known: for a discovery's Settle.
func (m *Member) Sponsor(self string) string {
	s := m.cfg.State()
	if i, ok := s.Instance(m.self.Load()); !ok || i.Current.Variant == meta.Online || len(s.Instances()) == 1 {
		return self
	}
	for _, i := range s.Instances() {
		if i.Current.Variant == meta.Online {
			return i.RaftAddress
		}
	}
	return ""
}
