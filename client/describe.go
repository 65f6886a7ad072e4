package client

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/client/internal/handle"
	"github.com/signalbox-dev/signalbox/client/internal/millis"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Semaphore describes a semaphore.
type Semaphore struct {
	Name       string
	Data       []byte
	Version    uint64 // of the data, see IfVersion
	Used       uint64 // units held
	Limit      uint64
	Ephemeral  bool
	CreatedAt  time.Time
	NumOwners  uint64
	NumWaiters uint64
	Owners     []Owner          // by token
	Waiters    []Waiter         // in queue order; where there are lanes, lane by lane
	Config     *SemaphoreConfig // nil: a plain one
	// Revision is the shard's log index of the last change, Index the one the answer was read at.
	Revision, Index uint64
	// Torn says that the semaphore kept changing while its pages were read: Owners and Waiters are
	// from different moments.
	Torn bool
}

// Owner holds units of a semaphore.
type Owner struct {
	Token       uint64 // the fencing token
	Session     uint64
	Count       uint64
	Data        []byte
	Description string // of the session
	Since       time.Time
	Slots       []string // where units have names
	Priority    int
	Key         string
	Preempted   bool // a waiter preempted it
	Silent      bool // it was preempted, and has not yielded within the Grace
	// Left is how long it holds the units at most, when the answer was made; 0: without a bound. Always
	// 0 in events of watches.
	Left time.Duration
}

// Waiter waits for units of a semaphore.
type Waiter struct {
	Place       uint64 // in the queue, see OnQueued: those that came earlier have lower ones
	Session     uint64
	Count       uint64
	Data        []byte
	Description string
	Since       time.Time
	Timeout     time.Duration // as asked for; Forever
	Priority    int
	Key         string
	Labels      []string // that its slots must have
	Slots       []string // that it waits for
	// Rank is the order in which the policy would serve the waiters one after the other, if nothing
	// else happened: 1 to 16, or 0 for those behind. Always 0 where there are no lanes.
	Rank           int
	FailOnDeadlock bool // it was asked for with this option
}

// Forever is the timeout of a waiter that waits until its client gives up.
const Forever time.Duration = 1<<63 - 1

// Consistency says how new a read's answer is, or what an attach waits for.
type Consistency uint8

const (
	// Strict reads see every change that was acknowledged before they began.
	Strict Consistency = Consistency(protocol.Strict)
	// Relaxed reads are answered from the memory of any replica. The answer may be older than the
	// newest change by up to the node's grace period. One client never sees its reads go back in
	// time.
	Relaxed Consistency = Consistency(protocol.Relaxed)
)

// ReadOption is an option of a read. A read names those that it takes, and refuses others with
// ErrBadRequest.
type ReadOption func(*readOptions)

type readOptions struct {
	given       readOption
	flags       uint8
	consistency protocol.Consistency
	session     uint64

	most         int    // items; 0: all
	after        string // name
	afterToken   uint64
	afterSession uint64
}

// readOption is a set of options.
type readOption uint16

const (
	readOwners readOption = 1 << iota
	readWaiters
	readSlots
	readConsistency
	readOfSession
	readMaxItems
	readAfter
	readAfterToken
	readAfterSession
)

var readOptionNames = [...]string{"IncludeOwners", "IncludeWaiters", "IncludeSlots", "ReadConsistency", "OfSession",
	"MaxItems",
	"After", "AfterToken", "AfterSession"}

// Options that each read takes.
const (
	describeOptions    = readOwners | readWaiters | readSlots | readConsistency | readMaxItems | readAfterToken
	listOptions        = readOfSession | readConsistency | readMaxItems | readAfter
	memberOptions      = readConsistency | readMaxItems | readAfterToken
	configOptions      = readConsistency
	nameListOptions    = readMaxItems | readAfter
	sessionListOptions = readMaxItems | readAfterSession
)

// IncludeOwners includes the owners in a description.
func IncludeOwners() ReadOption {
	return func(o *readOptions) { o.given, o.flags = o.given|readOwners, o.flags|protocol.WithOwners }
}

// IncludeWaiters includes the waiters in a description.
func IncludeWaiters() ReadOption {
	return func(o *readOptions) { o.given, o.flags = o.given|readWaiters, o.flags|protocol.WithWaiters }
}

// ReadConsistency is Strict or Relaxed for this read of a semaphore, a configuration, a service, or
// a list of semaphores. Default: the node's.
func ReadConsistency(c Consistency) ReadOption {
	return func(o *readOptions) { o.given, o.consistency = o.given|readConsistency, protocol.Consistency(c) }
}

// OfSession limits a list of semaphores to what a session holds or waits for.
func OfSession(id uint64) ReadOption {
	return func(o *readOptions) { o.given, o.session = o.given|readOfSession, id }
}

// MaxItems bounds the result of a read, and the server's work for it: a list ends after n
// items, and a description has at most n owners and waiters together. 1 to 10,000; default all.
func MaxItems(n int) ReadOption {
	return func(o *readOptions) { o.given, o.most = o.given|readMaxItems, n }
}

// maxItems is how many items a server puts into one page.
const maxItems = 10_000

// After begins a list of semaphores, configurations, nodes, processes, rollouts or rate limits
// behind this name.
func After(name string) ReadOption {
	return func(o *readOptions) { o.given, o.after = o.given|readAfter, name }
}

// AfterToken begins a description, or the members of a service, behind an entry: the owner with
// this fencing token if owners are included, else the waiter with this place. Such a description
// has no data of the semaphore.
func AfterToken(token uint64) ReadOption {
	return func(o *readOptions) { o.given, o.afterToken = o.given|readAfterToken, token }
}

// AfterSession begins a list of sessions behind this id.
func AfterSession(id uint64) ReadOption {
	return func(o *readOptions) { o.given, o.afterSession = o.given|readAfterSession, id }
}

// readOptionsOf refuses options that a read does not take.
func readOptionsOf(opts []ReadOption, takes readOption) (o readOptions, err error) {
	for _, f := range opts {
		f(&o)
	}
	for i, name := range readOptionNames {
		if o.given&^takes&(1<<i) != 0 {
			return o, protocol.Errorf(protocol.StatusBadRequest, "this read does not take the option %s; leave it out", name)
		}
	}
	if o.given&readMaxItems != 0 && (o.most < 1 || o.most > maxItems) {
		err = protocol.Errorf(protocol.StatusBadRequest, "MaxItems is %d; give 1 to %d", o.most, maxItems)
	}
	return o, err
}

// maxRereads is how often a description is begun again because it changed between its pages.
const maxRereads = 5

// Describe reads a semaphore. Errors: ErrNotFound.
func (n *Node) Describe(ctx context.Context, name string, opts ...ReadOption) (*Semaphore, error) {
	sem, err := n.describe(ctx, name, opts...)
	return sem, withOp("describe", name, err)
}

func (n *Node) describe(ctx context.Context, name string, opts ...ReadOption) (*Semaphore, error) {
	if name == "" {
		return nil, handle.ErrNoSemaphore
	}
	o, err := readOptionsOf(opts, describeOptions)
	if err != nil {
		return nil, err
	}
	req := protocol.Describe{Node: n.h.ID, Name: []byte(name), Flags: o.flags, Limit: uint32(o.most)}
	if o.given&readAfterToken != 0 {
		req.Cursor = protocol.DescribeCursor(o.flags&protocol.WithOwners != 0, o.afterToken)
	}
	return pages(&req, func(reply *protocol.DescribeReply) error {
		return driver.Err(n.c.d.Call(ctx, &core.Call{
			Kind: protocol.KindDescribe, Msg: &req, Reply: reply, To: n.h.At(name),
			Read: n.h.Read(o.consistency, &req.Consistency, &req.MinIndex, &reply.Index),
		}))
	})
}

// pages reads the pages of a description from req.Cursor on, and puts those together that fit; with
// req.Limit it reads one. read reads the page at req.Cursor.
func pages(req *protocol.Describe, read func(*protocol.DescribeReply) error) (*Semaphore, error) {
	start := req.Cursor
	for begun := 0; ; begun++ {
		req.Cursor = start
		var sem *Semaphore
		for {
			var reply protocol.DescribeReply
			if err := read(&reply); err != nil {
				return nil, err
			}
			if sem == nil {
				sem = firstPage(&reply)
			}
			sem.Torn = sem.Torn || sem.Revision != reply.Revision
			sem.addPage(&reply)
			if len(reply.Cursor) == 0 || req.Limit > 0 {
				break
			}
			if sem.Torn && begun < maxRereads {
				break
			}
			req.Cursor = reply.Cursor
		}
		if !sem.Torn || begun >= maxRereads {
			return sem, nil
		}
		req.Flags &^= protocol.WatchData | protocol.WatchOwners // armed by the first page already
	}
}

func firstPage(r *protocol.DescribeReply) *Semaphore {
	return &Semaphore{
		Name: string(r.Name), Data: bytes.Clone(r.Data), Version: r.Version, Used: r.Used,
		Limit: r.Limit, Ephemeral: r.Ephemeral,
		CreatedAt: millis.Time(r.CreatedAt), NumOwners: r.NumOwners, NumWaiters: r.NumWaiters,
		Revision: r.Revision, Index: r.Index, Config: configOf(r.Details),
	}
}

func (s *Semaphore) addPage(r *protocol.DescribeReply) {
	for i := range r.Owners {
		s.Owners = append(s.Owners, ownerOf(&r.Owners[i]))
	}
	for i := range r.Waiters {
		w := &r.Waiters[i]
		timeout := Forever
		if w.Timeout != protocol.Forever {
			timeout = millis.Duration(w.Timeout)
		}
		x := Waiter{
			Place: w.OrderID, Session: w.Session, Count: w.Count, Data: bytes.Clone(w.Data),
			Description: w.Description, Since: millis.Time(w.Since), Timeout: timeout, Priority: DefaultPriority,
		}
		if o := w.Options; o != nil {
			x.Priority, x.Key, x.Labels, x.Slots, x.Rank = int(o.Priority)-1, string(o.Key), o.Labels, o.Names, int(o.Rank)
			x.FailOnDeadlock = o.Flags&protocol.AskDeadlock != 0
		}
		s.Waiters = append(s.Waiters, x)
	}
}

func ownerOf(o *protocol.Owner) Owner {
	x := Owner{
		Token: o.OrderID, Session: o.Session, Count: o.Count, Data: bytes.Clone(o.Data),
		Description: o.Description, Since: millis.Time(o.Since), Priority: DefaultPriority,
	}
	if p := o.Options; p != nil {
		x.Slots, x.Priority, x.Key = p.Slots, int(p.Priority)-1, string(p.Key)
		x.Preempted, x.Silent, x.Left = p.Preempted, p.Silent, millis.Duration(p.Left)
	}
	return x
}

// QueueStatus explains why a session waits for a semaphore.
type QueueStatus struct {
	Holding bool // the session holds the semaphore
	Waiting bool // it waits for it
	// Position is the place in the queue, from 1, while it waits. Where the semaphore has a policy or
	// slots it is the rank, see Waiter, or 0 behind the first 16.
	Position int
	Own      Waiter  // its own entry, while it waits
	Holders  []Owner // who holds, by token
	Ahead    []Waiter
	Free     uint64 // units without an owner; they are not granted out of turn
	Limit    uint64
	Config   *SemaphoreConfig // with slots; nil: a plain one

	// Behind lists the waits of the holders and of the waiters ahead for other semaphores, the
	// nearest first.
	Behind []WaitStep
	// Deadlock is one that the session is in or waits behind; nil if none was seen.
	Deadlock *Deadlock
	// Unread says what of those waits could not be read, and so counts as able to go on; empty:
	// nothing.
	Unread string
}

// NeverGranted is the first waiter, the session's own or one ahead of it, that wants more than the
// limit, or more of the slots that it takes than are granted any more. It waits until the limit is
// raised, a slot is undrained, or it leaves the queue. So does everything behind it that wants the
// same units. ok is false if there is none.
func (s *QueueStatus) NeverGranted() (w Waiter, ok bool) {
	for _, w := range s.Ahead {
		if !s.servable(&w) {
			return w, true
		}
	}
	return s.Own, s.Waiting && !s.servable(&s.Own)
}

// servable reports whether a waiter fits if nobody holds anything.
func (s *QueueStatus) servable(w *Waiter) bool {
	if w.Count > s.Limit {
		return false
	}
	if s.Config == nil || len(s.Config.Slots) == 0 {
		return true
	}
	granted := uint64(0)
	for _, slot := range s.Config.Takes(w) {
		if slot.State == SlotFree || slot.State == SlotHeld {
			granted++
		}
	}
	return granted >= w.Count
}

// ExplainWait says why a session waits for a semaphore: who holds it, who is ahead in the queue, and
// what those wait for themselves. It follows the waits over at most 64 sessions, 256 semaphores and 16
// steps, for 2 s; if that ends in a deadlock, it reads all of it again 1 s later. Session 0 is a waiter
// that would come now. See [QueueStatus.NeverGranted]. Errors: ErrNotFound.
func (n *Node) ExplainWait(ctx context.Context, name string, session uint64) (*QueueStatus, error) {
	sem, err := n.Describe(ctx, name, IncludeOwners(), IncludeWaiters(), IncludeSlots(), ReadConsistency(Strict))
	if err != nil {
		return nil, err
	}
	st := &QueueStatus{Holders: sem.Owners, Limit: sem.Limit, Config: sem.Config}
	if sem.Limit > sem.Used {
		st.Free = sem.Limit - sem.Used
	}
	for _, o := range sem.Owners {
		st.Holding = st.Holding || o.Session == session
	}
	for i, w := range sem.Waiters {
		if w.Session == session {
			st.Waiting, st.Position, st.Own, st.Ahead = true, i+1, w, sem.Waiters[:i]
			break
		}
	}
	if ranked := slices.ContainsFunc(sem.Waiters, func(w Waiter) bool { return w.Rank > 0 }); ranked && st.Waiting {
		st.Position, st.Ahead = st.Own.Rank, rankedAhead(sem.Waiters, st.Own)
	}
	var from []uint64
	switch {
	case st.Waiting:
		from = []uint64{session}
	case session == 0: // who comes now waits for everybody
		st.Ahead = slices.Clone(sem.Waiters)
		// 0 is last
		slices.SortStableFunc(st.Ahead, func(a, b Waiter) int { return cmp.Compare(uint(a.Rank)-1, uint(b.Rank)-1) })
		for _, o := range sem.Owners {
			from = append(from, o.Session)
		}
		for _, w := range sem.Waiters {
			from = append(from, w.Session)
		}
	}
	if len(from) > 0 && len(sem.Waiters)+len(sem.Owners) > 0 {
		var r *waitReads
		st.Deadlock, st.Behind, r = findDeadlock(ctx, n, from)
		st.Behind = slices.DeleteFunc(st.Behind, func(s WaitStep) bool { return s.Name == name })
		st.Unread = r.cut
	}
	return st, nil
}

// rankedAhead are the waiters that are served before own, in this order: those with a rank, and those
// of its own lane, which is listed by place.
func rankedAhead(waiters []Waiter, own Waiter) (ahead []Waiter) {
	for _, w := range waiters {
		if w.Rank > 0 && (own.Rank == 0 || w.Rank < own.Rank) {
			ahead = append(ahead, w)
		}
	}
	slices.SortFunc(ahead, func(a, b Waiter) int { return cmp.Compare(a.Rank, b.Rank) })
	for _, w := range waiters {
		if w.Rank == 0 && w.Place < own.Place && w.Priority == own.Priority && w.Key == own.Key &&
			slices.Equal(w.Labels, own.Labels) && slices.Equal(w.Slots, own.Slots) {
			ahead = append(ahead, w)
		}
	}
	return ahead
}

// History reads the holds of a semaphore that ended last, the last one first: as many as
// SemaphoreConfig.History says. Errors: ErrNotFound.
func (n *Node) History(ctx context.Context, name string) ([]Hold, error) {
	if name == "" {
		return nil, withOp("history", name, handle.ErrNoSemaphore)
	}
	req := protocol.SemaphoreHistory{Node: n.h.ID, Name: []byte(name), Consistency: protocol.Strict}
	var reply protocol.SemaphoreHistoryReply
	if _, err := n.h.Call(ctx, n.h.At(name), protocol.KindSemaphoreHistory, &req, &reply); err != nil {
		return nil, withOp("history", name, err)
	}
	list := make([]Hold, 0, len(reply.Holds))
	for i := range reply.Holds {
		list = append(list, holdOf(&reply.Holds[i]))
	}
	return list, nil
}

// Mutex is the lock with this name on the session's node.
func (s *Session) Mutex(name string) *Mutex { return &Mutex{s, name} }

// RWMutex is the read-write lock with this name on the session's node.
func (s *Session) RWMutex(name string) *RWMutex { return &RWMutex{Mutex{s, name}} }

// Election is the election with this name on the session's node.
func (s *Session) Election(name string, opts ...ElectionOption) *Election {
	e := &Election{ElectionReader: s.node.Election(name), s: s}
	for _, f := range opts {
		f(e)
	}
	return e
}

// Service is the service with this name on the session's node.
func (s *Session) Service(name string) *Service {
	return &Service{ServiceReader: s.node.Service(name), s: s}
}

// Config is the configuration with this name on the session's node. Names are 1 to 1,016 bytes
// long.
func (s *Session) Config(name string) *ConfigValue {
	return &ConfigValue{ConfigReader: s.node.Config(name), s: s}
}
