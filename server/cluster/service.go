package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/server/peer"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica/beat"
)

// Transport carries calls and messages between instances. A [peer.Transport] is one.
type Transport interface {
	Caller
	HandleCall(method uint8, f func(ctx context.Context, from string, body []byte) ([]byte, error))
	HandleMessage(kind uint8, f func(from string, payload []byte))
	// Reach connects to the instance that advertises an address.
	Reach(ctx context.Context, address string) error
	// Unreached reports why the instance that advertises an address is not reached.
	Unreached(address string) peer.Unreached
}

// Config of a Service. All fields are required unless they say otherwise.
type Config struct {
	Transport Transport
	Local     Local
	State     func() *meta.State   // the map as known here; never nil
	Now       func() time.Duration // monotonic
	// Join lets an instance join: it returns when the cluster has given it an id and a replica of
	// the meta shard, or an error.
	Join func(ctx context.Context, r *JoinRequest) (JoinReply, error)
	// CheckApplicant reports why this instance does not reach the process that advertises a raft
	// address and wants to join; empty: it does. It fails if the meta shard is not led here.
	CheckApplicant func(ctx context.Context, name, address string) (why string, err error)
	// SetTarget sets the target of an instance in the meta shard. It fails if that is not led here.
	SetTarget func(ctx context.Context, u meta.InstanceUpdate) error
	// HeartbeatReceived is called with each heartbeat of another instance: the incarnation of its
	// process, 0 while that does not know it, and the index of the meta shard's log applied there.
	// May be nil.
	HeartbeatReceived func(instance, incarnation, applied uint64)
	// Plan returns the governor's plan, as JSON, for operators that ask another instance. It fails
	// if the governor is not active here.
	Plan func(ctx context.Context) ([]byte, error)
	// Backup returns a part of a backup of a shard that is led here, or whose backup was begun
	// here. Both documents are JSON, for operators that ask another instance.
	Backup func(ctx context.Context, request []byte) ([]byte, error)
	// ProcessExited reports whether the process of the instance at a raft address has ended, by
	// this instance's knowledge. May be nil.
	ProcessExited func(ctx context.Context, address string) bool
	// FetchKeys has the keys of a trust be fetched from its issuer. It fails if the governor is not
	// active here.
	FetchKeys func(ctx context.Context, trust string) error
	// Refusals says in sentences which new connections to this instance fail by its own doing.
	Refusals func() []string
	Logger   *slog.Logger
}

// Service is this instance's service to the others, and its client of theirs. Its methods are safe
// for concurrent use.
type Service struct {
	cfg     Config
	health  *healthTable
	leaders *shardClient

	self          atomic.Uint64 // this instance's id; 0 while unknown
	ready         atomic.Bool   // Local can be used
	incarnation   atomic.Uint64
	seq           atomic.Uint64
	heartbeatSoon chan struct{} // wakes Run for an early heartbeat
}

// New returns a service, and registers its handlers with the transport, which must not be started
// yet. They reply "ask again" until SetReady.
func New(c Config) *Service {
	m := &Service{cfg: c, health: newHealthTable(c.Now), heartbeatSoon: make(chan struct{}, 1)}
	m.leaders = &shardClient{self: m.self.Load, local: c.Local, caller: c.Transport, state: c.State, health: m.health,
		unreached: c.Transport.Unreached}
	m.registerHandlers()
	return m
}

// SetInstance sets this instance's id.
func (s *Service) SetInstance(instance uint64) { s.self.Store(instance) }

// SetReady starts to serve the others: the raft engine runs.
func (s *Service) SetReady() { s.ready.Store(true) }

// Shards reaches data shards wherever they are led.
func (s *Service) Shards() governor.Shards { return s.leaders }

// Export reads a chunk of a frozen copy of buckets, wherever its shard is led; see Local.
func (s *Service) Export(
	ctx context.Context, id uint64, run shard.BucketsBody, cursor []byte,
) (chunk, next []byte, err error) {
	return s.leaders.Export(ctx, id, run, cursor)
}

// Groups reaches raft groups wherever they are led.
func (s *Service) Groups() governor.Groups { return s.leaders }

// Instances is the health of the instances as heard here.
func (s *Service) Instances() governor.Instances { return s.leaders }

// SetIncarnation sets the incarnation of this process for its heartbeats.
func (s *Service) SetIncarnation(incarnation uint64) { s.incarnation.Store(incarnation) }

// Send sends a message to the leader of another shard, where it is thought to be. It may be lost.
// It implements replica.MessageSender.
func (s *Service) Send(to, from uint64, msg []byte) {
	state := s.cfg.State()
	x, ok := state.Shard(to)
	if !ok {
		return
	}
	message := encode(&leaderMessage{To: to, From: from, Bytes: msg})
	instance := x.Master
	if r, ok := s.cfg.Local.Report()[to]; ok && r.Leader != 0 {
		if leader, ok := x.Replica(r.Leader); ok {
			instance = leader.Instance
		}
	}
	if i, ok := state.Instance(instance); ok && instance != s.self.Load() && !i.Expelled() {
		s.cfg.Transport.Send(i.RaftAddress, kindLeaderMessage, message)
	}
}

// HeartbeatSoon sends the next heartbeat early: a leader or the members of a group have changed
// here, and the governor waits for that. It is safe for concurrent use.
func (s *Service) HeartbeatSoon() {
	select {
	case s.heartbeatSoon <- struct{}{}:
	default:
	}
}

// Run sends heartbeats until ctx ends.
func (s *Service) Run(ctx context.Context) {
	t := time.NewTimer(beat.Next(HeartbeatPeriod))
	defer t.Stop()
	for {
		last := time.Now()
		s.SendHeartbeat()
		t.Reset(beat.Next(HeartbeatPeriod))
		select {
		case <-t.C:
			continue
		case <-s.heartbeatSoon:
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

// SendHeartbeat sends a heartbeat to all instances with a replica of the meta shard. Those that
// vote may govern next; each one reports the cluster's health.
func (s *Service) SendHeartbeat() {
	state := s.cfg.State()
	b := newHeartbeat(s.self.Load(), s.incarnation.Load(), s.seq.Add(1), s.cfg.Local.Report(), s.cfg.Refusals())
	s.health.received(b)
	s.health.retain(func(id uint64) bool {
		i, ok := state.Instance(id)
		return ok && !i.Expelled()
	})
	message := encode(b)
	group := state.MetaShard()
	for _, r := range group.Replicas {
		if i, ok := state.Instance(r.Instance); ok && r.Instance != s.self.Load() {
			s.cfg.Transport.Send(i.RaftAddress, kindHeartbeat, message)
		}
	}
}

// FetchPlan returns the plan of the instance that governs.
func (s *Service) FetchPlan(ctx context.Context) (plan []byte, err error) {
	var answer planReply
	err = s.leaders.call(ctx, meta.MetaShardID, func(ctx context.Context) (err error) {
		answer.Plan, err = s.cfg.Plan(ctx)
		return err
	}, methodPlan, &shardRequest{Shard: meta.MetaShardID}, &answer)
	return answer.Plan, err
}

// FetchKeys has the instance that governs fetch the keys of a trust from its issuer, unless it has
// just done so.
func (s *Service) FetchKeys(ctx context.Context, trust string) error {
	return s.leaders.call(ctx, meta.MetaShardID, func(ctx context.Context) error { return s.cfg.FetchKeys(ctx, trust) },
		methodFetchKeys, &fetchKeysRequest{trust}, &struct{}{})
}

// FetchBackup returns a part of a backup from the instance that leads a shard. A part that did not
// come in time is UNAVAILABLE: clients ask for it again.
func (s *Service) FetchBackup(ctx context.Context, shard uint64, request []byte) ([]byte, error) {
	var answer backupReply
	err := s.leaders.call(ctx, shard, func(ctx context.Context) (err error) {
		answer.Body, err = s.cfg.Backup(ctx, request)
		return err
	}, methodBackup, &backupRequest{Body: request}, &answer)
	if late := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, peer.ErrUndetermined); late &&
		ctx.Err() == nil {
		err = protocol.Errorf(protocol.StatusUnavailable,
			"a part of the backup did not come in time (%v); ask for it again", err)
	}
	return answer.Body, err
}

type backupRequest struct {
	Body []byte
}

type backupReply struct {
	Body []byte
}

// SetTarget asks the leader of the meta shard to set this instance's target, directly, on the route
// of the heartbeats. IfNotNeeded: see [meta.InstanceUpdate].
func (s *Service) SetTarget(ctx context.Context, target meta.Variant, reason string, ifNotNeeded bool) error {
	u := meta.InstanceUpdate{Instance: s.self.Load(), Target: target, Reason: reason, IfNotNeeded: ifNotNeeded}
	return s.leaders.call(ctx, meta.MetaShardID,
		func(ctx context.Context) error { return s.cfg.SetTarget(ctx, u) }, methodSetTarget,
		&setTargetRequest{Instance: u.Instance, Target: uint8(target), Reason: reason, IfNotNeeded: ifNotNeeded}, nil)
}

// CheckApplicant asks the leader of the meta shard whether it reaches a process that wants to join,
// as it will have to. why is the reason if it does not, else empty.
func (s *Service) CheckApplicant(ctx context.Context, name, address string) (why string, err error) {
	var answer applicantReply
	err = s.leaders.call(ctx, meta.MetaShardID,
		func(ctx context.Context) (err error) {
			answer.Why, err = s.cfg.CheckApplicant(ctx, name, address)
			return err
		}, methodCheckApplicant, &applicantRequest{Name: name, Address: address}, &answer)
	return answer.Why, err
}

// Reach reports why this instance does not reach the process that advertises a raft address; empty:
// it does.
func (s *Service) Reach(ctx context.Context, address string) (why string) {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	switch err := s.cfg.Transport.Reach(ctx, address); {
	case err == nil:
		return ""
	case ctx.Err() != nil:
		return fmt.Sprintf("no answer within %s", reachTimeout)
	default:
		return err.Error()
	}
}

// reachTimeout bounds an attempt to reach a process that wants to join. It ends before the call
// that asks for it.
const reachTimeout = attemptTimeout * 4 / 5

// isOtherInstance reports whether an address belongs to another instance of the cluster.
func (s *Service) isOtherInstance(address string) bool {
	return slices.ContainsFunc(s.cfg.State().Instances(), func(i meta.Instance) bool {
		return strings.EqualFold(i.RaftAddress, address) && i.ID != s.self.Load() && !i.Expelled()
	})
}

// Ping calls another instance to see whether it is reachable and works.
func (s *Service) Ping(ctx context.Context, instance uint64) error {
	i, ok := s.cfg.State().Instance(instance)
	if !ok {
		return protocol.Errorf(protocol.StatusNotFound, "there is no instance %d", instance)
	}
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if _, err := s.cfg.Transport.Call(ctx, i.RaftAddress, methodProcessExited,
		encode(&processExitedRequest{})); err != nil {
		return protocol.Errorf(protocol.StatusUnavailable, "instance %q does not answer: %v", i.Name, err)
	}
	return nil
}

// pingTimeout bounds a Ping.
const pingTimeout = 500 * time.Millisecond

// ConfirmProcessExit asks all other instances whether they find too that the process at a raft
// address has ended. It calls says with the address of each that does, as the replies come. The
// address may be in small letters or capitals.
func (s *Service) ConfirmProcessExit(ctx context.Context, address string, says func(from string)) {
	if !s.isOtherInstance(address) {
		return
	}
	for _, i := range s.cfg.State().Instances() {
		if strings.EqualFold(i.RaftAddress, address) {
			s.health.processExited(i.ID)
		}
	}
	var all sync.WaitGroup
	for _, i := range s.cfg.State().Instances() {
		if i.ID == s.self.Load() || strings.EqualFold(i.RaftAddress, address) || i.Expelled() {
			continue
		}
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
			defer cancel()
			var answer processExitedReply
			b, err := s.cfg.Transport.Call(ctx, i.RaftAddress, methodProcessExited,
				encode(&processExitedRequest{Address: address}))
			if err == nil && decode(b, &answer) == nil && answer.Ended {
				says(i.RaftAddress)
			}
		})
	}
	all.Wait()
}

type planReply struct {
	Plan []byte
}

// registerHandlers registers the handlers of other instances' calls.
func (s *Service) registerHandlers() {
	l, local := s.cfg.Transport, s.cfg.Local
	l.HandleMessage(kindHeartbeat, func(_ string, b []byte) {
		var w heartbeat
		if decode(b, &w) != nil || w.Instance == s.self.Load() {
			return
		}
		s.health.received(&w)
		for _, x := range w.Shards {
			if x.Shard == meta.MetaShardID && s.cfg.HeartbeatReceived != nil {
				s.cfg.HeartbeatReceived(w.Instance, w.Incarnation, x.Applied)
			}
		}
	})
	l.HandleMessage(kindLeaderMessage, func(_ string, b []byte) {
		var w leaderMessage
		if s.ready.Load() && decode(b, &w) == nil {
			local.LeaderMessage(w.To, w.From, w.Bytes)
		}
	})
	l.HandleCall(methodInstanceStatus, handler(s, func(_ context.Context, w *instanceStatusRequest) (any, error) {
		state := s.cfg.State()
		i, ok := state.InstanceByUUID(w.UUID)
		if !ok {
			return nil, protocol.Errorf(protocol.StatusNotFound, "there is no instance with the uuid %s", w.UUID)
		}
		// An instance that is being expelled is still needed to give its buckets away.
		answer := instanceStatusReply{Instance: i.ID, Expelled: i.Expelled()}
		group := state.MetaShard()
		if r, ok := group.On(i.ID); ok {
			answer.MetaReplica = r.Replica
		}
		if u := s.cfg.Transport.Unreached(i.RaftAddress); u.Err != nil {
			answer.Unreached = u.Err.Error()
		}
		return &answer, nil
	}))
	l.HandleCall(methodJoin, handler(s, func(ctx context.Context, w *JoinRequest) (any, error) {
		reply, err := s.cfg.Join(ctx, w)
		return &reply, err
	}))
	l.HandleCall(methodPropose, handler(s, func(ctx context.Context, w *proposeRequest) (any, error) {
		c := shard.Command{Kind: shard.CommandKind(w.Kind), Node: w.Node, Epoch: w.Epoch, Sender: w.Client,
			Body: w.Body}
		return nil, local.Propose(ctx, w.Shard, c)
	}))
	l.HandleCall(methodRegisters, handler(s, func(ctx context.Context, w *registersRequest) (any, error) {
		at, err := local.Registers(ctx, w.Shard, w.Node)
		return &at, err
	}))
	l.HandleCall(methodExport, handler(s, func(ctx context.Context, w *exportRequest) (any, error) {
		chunk, next, err := local.Export(ctx, w.Shard,
			shard.BucketsBody{Tier: w.Tier, First: w.First, Count: w.Count, Epoch: w.Epoch}, w.Cursor)
		return &exportReply{Chunk: chunk, Next: next}, err
	}))
	l.HandleCall(methodCopyBuckets, handler(s, func(ctx context.Context, w *copyRequest) (any, error) {
		run := shard.BucketsBody{Tier: w.Tier, Total: w.Total, First: w.First, Count: w.Count, Epoch: w.Epoch}
		done, err := local.CopyBuckets(ctx, w.Source, w.Shard, run)
		return &copyReply{Done: done}, err
	}))
	l.HandleCall(methodMembers, handler(s, func(ctx context.Context, w *shardRequest) (any, error) {
		found, err := local.Members(ctx, w.Shard)
		reply := newMembersReply(&found)
		return &reply, err
	}))
	l.HandleCall(methodChangeMembers, handler(s, func(ctx context.Context, w *changeMembersRequest) (any, error) {
		switch w.What {
		case changeAdd:
			return nil, local.AddNonVoting(ctx, w.Shard, w.Replica, w.Address, w.ConfigChange)
		case changePromote:
			return nil, local.Promote(ctx, w.Shard, w.Replica, w.ConfigChange)
		case changeRemove:
			return nil, local.Remove(ctx, w.Shard, w.Replica, w.ConfigChange)
		}
		return nil, protocol.Errorf(protocol.StatusUnsupported,
			"membership change %d is unknown here; upgrade this instance", w.What)
	}))
	l.HandleCall(methodTransfer, handler(s, func(ctx context.Context, w *transferRequest) (any, error) {
		return nil, local.Transfer(ctx, w.Shard, w.Replica, w.After)
	}))
	l.HandleCall(methodCheckApplicant, handler(s, func(ctx context.Context, w *applicantRequest) (any, error) {
		why, err := s.cfg.CheckApplicant(ctx, w.Name, w.Address)
		return &applicantReply{Why: why}, err
	}))
	l.HandleCall(methodSetTarget, handler(s, func(ctx context.Context, w *setTargetRequest) (any, error) {
		return nil, s.cfg.SetTarget(ctx, meta.InstanceUpdate{Instance: w.Instance, Target: meta.Variant(w.Target),
			Reason: w.Reason, IfNotNeeded: w.IfNotNeeded})
	}))
	l.HandleCall(methodBackup, handler(s, func(ctx context.Context, w *backupRequest) (any, error) {
		body, err := s.cfg.Backup(ctx, w.Body)
		return &backupReply{Body: body}, err
	}))
	l.HandleCall(methodProcessExited, handler(s, func(ctx context.Context, w *processExitedRequest) (any, error) {
		var answer processExitedReply
		if s.cfg.ProcessExited != nil && s.isOtherInstance(w.Address) {
			answer.Ended = s.cfg.ProcessExited(ctx, w.Address)
		}
		return &answer, nil
	}))
	l.HandleCall(methodFetchKeys, handler(s, func(ctx context.Context, w *fetchKeysRequest) (any, error) {
		return nil, s.cfg.FetchKeys(ctx, w.Trust)
	}))
	l.HandleCall(methodPlan, handler(s, func(ctx context.Context, _ *shardRequest) (any, error) {
		plan, err := s.cfg.Plan(ctx)
		return &planReply{Plan: plan}, err
	}))
}

// handler makes a handler of a function of messages. An error without a status concerns this
// instance at this moment: it becomes UNAVAILABLE, so that the caller tries another.
func handler[W any](
	m *Service, f func(ctx context.Context, w *W) (any, error),
) func(context.Context, string, []byte) ([]byte, error) {
	return func(ctx context.Context, _ string, body []byte) ([]byte, error) {
		if !m.ready.Load() {
			return nil, protocol.Errorf(protocol.StatusUnavailable, "this instance is starting; ask again")
		}
		w := new(W)
		if err := decode(body, w); err != nil {
			return nil, err
		}
		answer, err := f(ctx, w)
		var statusError *protocol.Error
		switch {
		case errors.As(err, &statusError):
			return nil, err
		case err != nil:
			return nil, protocol.Errorf(protocol.StatusUnavailable, "%v", err)
		case answer == nil:
			return nil, nil
		}
		return encode(answer), nil
	}
}

// JoinAddress returns the address of an instance that lets others join: this one if it can, else
// one that is Online; empty while unknown. It is for [Bootstrap.AnnounceLeader].
func (s *Service) JoinAddress(self string) string {
	state := s.cfg.State()
	if i, ok := state.Instance(s.self.Load()); !ok || i.Current.Variant == meta.Online || len(state.Instances()) == 1 {
		return self
	}
	for _, i := range state.Instances() {
		if i.Current.Variant == meta.Online {
			return i.RaftAddress
		}
	}
	return ""
}
