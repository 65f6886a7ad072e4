package client

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/millis"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Policy decides which waiters of a semaphore are served first.
type Policy uint8

// The policies.
const (
	PolicyFIFO     = Policy(protocol.PolicyFIFO)     // in the order in which they came
	PolicyPriority = Policy(protocol.PolicyPriority) // the highest Priority first
	PolicyFair     = Policy(protocol.PolicyFair)     // keys share the units by weight
)

// DefaultPriority is that of an acquire without the option Priority.
const DefaultPriority = 5

// DefaultAging is a usual Aging of PolicyPriority.
const DefaultAging = time.Minute

// SemaphoreConfig says by what a semaphore differs from a plain one, which is the zero value. It goes
// with Session.Create, Session.Alter changes it, and descriptions have it.
type SemaphoreConfig struct {
	Policy Policy
	// Aging is of PolicyPriority: how much longer a waiter must have waited to be served before one
	// that is one level higher: 0, for never, or 1 s to 1 day. A waiter is passed by only by requests
	// that come less than 9 times Aging after it. Use DefaultAging unless low priorities may wait for
	// ever.
	Aging time.Duration
	// Weights are of PolicyFair, 1 to 1,000 by key; any other key has 1. Units granted are shared, not
	// the time that they are held. The limit must be at most 2^20.
	Weights map[string]uint64
	// Slots gives the units names: at most 1,024, as many as the limit. A grant takes the first free
	// ones of the list that the acquire admits, so scarce kinds go to the end. A slot that an Alter
	// leaves out goes when it is given back. Slots can be added to a semaphore, and removed from it,
	// only while it has neither owners nor waiters. Descriptions have them with IncludeSlots alone.
	Slots    []Slot
	Numbered bool // the units are slots that are named 0, 1, ...; Resize changes their number
	// History is how many of the holds that ended last are kept, see Node.History: 1 to 32. 0 is 32
	// for a semaphore that is created with anything else of this, and none for a plain one; NoHistory
	// is none. Descriptions have 0 for none: who creates by one says NoHistory.
	History int
	// Preempt says which owners waiters may preempt: as few owners as the first waiter needs and they
	// can serve, those of the lowest priority first with PreemptLower, those of the newest grants first
	// with PreemptAny. Lease.Preempted tells them. The limit must be at most 4,096.
	Preempt PreemptMode
	// Grace is how long a preempted owner has to yield: 0 for owners that are only told, or 1 s to 1
	// day. Then its lease ends by itself, see Lease.Until and ErrPreempted. An owner whose client does
	// not say that it knows that, because it is cut off for example, keeps its lease: it is told again,
	// is the last to be chosen, and shows as silent in descriptions and metrics. It goes with Preempt.
	Grace time.Duration
	// MinHold is how long an owner holds its units at least before its Grace begins: 0 to 1 day. It
	// goes with Grace.
	MinHold time.Duration
	// MaxHold bounds how long a lease lasts, whatever its holder does: 1 s to 30 days from the grant; 0
	// is no bound. The server ends the lease then, and this client a little before; see Lease.Until.
	// Leases that are already held stay unbounded, and so do earlier waiters whose clients do not know
	// bounds. Clients that do not know bounds cannot acquire such a semaphore: ErrPreconditionFailed.
	//
	// The bound is time of the semaphore's bucket, which stands still without a leader and while the
	// bucket moves: the server may end the lease later by as much, a second or two as a rule. The
	// client ends it by its own clock, which does not stand still, counted from the answer that set the
	// bound.
	MaxHold time.Duration
	Extend  bool // owners may ask for more time with Lease.Extend, as often as they like; with MaxHold
}

var errAlterEphemeral = protocol.Errorf(protocol.StatusPreconditionFailed,
	"semaphore is ephemeral: it lives while somebody owns or waits for it, and its limit is fixed")

// NoHistory is the History of a semaphore that keeps none.
const NoHistory = -1

// SemaphoreOption is an option of Session.Create: a SemaphoreConfig, or a Reason.
type SemaphoreOption interface{ create(*createRequest) error }

type createRequest struct{ protocol.Create }

func (c SemaphoreConfig) create(m *createRequest) error {
	if m.Options != nil {
		return protocol.Errorf(protocol.StatusBadRequest, "two configurations are given; keep one")
	}
	o, err := c.wire()
	plain := o.Plain() && o.Grace == 0 && o.MinHold == 0
	if c.History == 0 && !plain {
		o.History = protocol.MaxHistory
	}
	if !plain {
		m.Options = o
	}
	return err
}

// wire are the options as requests have them. Slots that leave are none of them.
func (c *SemaphoreConfig) wire() (*protocol.SemaphoreOptions, error) {
	var err error
	o := &protocol.SemaphoreOptions{Policy: protocol.QueuePolicy(c.Policy), Aging: millis.Of("aging", c.Aging, &err),
		Numbered: c.Numbered, History: uint64(c.History), Preempt: protocol.PreemptMode(c.Preempt),
		Grace: millis.Of("grace", c.Grace, &err), MinHold: millis.Of("least hold", c.MinHold, &err),
		MaxHold: millis.Of("longest hold", c.MaxHold, &err), Extend: c.Extend}
	if c.History == NoHistory {
		o.History = 0
	}
	for _, key := range slices.Sorted(maps.Keys(c.Weights)) {
		o.Weights = append(o.Weights, protocol.Weight{Key: []byte(key), Weight: c.Weights[key]})
	}
	for i, s := range c.Slots {
		if numbered := c.Numbered && s.Name == strconv.Itoa(i); !numbered && s.State != SlotLeaving {
			o.Slots = append(o.Slots, protocol.Slot{Name: s.Name, Labels: slices.Clone(s.Labels)})
		}
	}
	return o, err
}

// changed are the fields in which two configurations differ. A policy goes with what is its own.
func changed(a, b *protocol.SemaphoreOptions) (fields uint64) {
	for field, same := range map[uint64]bool{
		protocol.AlterPolicy | protocol.AlterAging | protocol.AlterWeights: a.Policy == b.Policy && a.Aging == b.Aging &&
			reflect.DeepEqual(a.Weights, b.Weights),
		protocol.AlterSlots:   a.Numbered == b.Numbered && reflect.DeepEqual(a.Slots, b.Slots),
		protocol.AlterHistory: a.History == b.History,
		protocol.AlterMaxHold: a.MaxHold == b.MaxHold,
		protocol.AlterExtend:  a.Extend == b.Extend,
		protocol.AlterPreempt: a.Preempt == b.Preempt,
		protocol.AlterGrace:   a.Grace == b.Grace,
		protocol.AlterMinHold: a.MinHold == b.MinHold,
	} {
		if !same {
			fields |= field
		}
	}
	return fields
}

// Slot is a unit with a name, and labels that an acquire can ask for. Names and labels have 1 to 64
// of the characters A-Z a-z 0-9 . _ : / - and labels also =.
type Slot struct {
	Name   string
	Labels []string // at most 8
	// What descriptions say of it, and requests leave out.
	State   SlotState
	Token   uint64    // of the last grant, which may have ended; 0: there was none
	Session uint64    // that holds it; 0: none
	Since   time.Time // of the grant that holds it
}

// asked returns the options by which the acquire differs from a plain one.
func (o *acquireOptions) asked() *protocol.AcquireOptions {
	if o.Options == nil {
		o.Options = new(protocol.AcquireOptions)
	}
	return o.Options
}

// Priority is the level of the request, 0 to 9, the highest first; default 5. It counts where the
// semaphore's policy is PolicyPriority, or becomes it. Levels order colleagues: every client may ask
// for any.
func Priority(level int) AcquireOption {
	return func(o *acquireOptions) {
		if level < 0 || level > protocol.MaxPriority {
			o.err = protocol.Errorf(protocol.StatusBadRequest, "priority is %d; it must be 0 to %d", level,
				protocol.MaxPriority)
			return
		}
		o.asked().Priority = uint8(level + 1)
	}
}

// Key is whose share the units are of, at most 64 bytes; default empty. It counts where the
// semaphore's policy is PolicyFair, or becomes it.
func Key(key string) AcquireOption {
	return func(o *acquireOptions) { o.asked().Key = []byte(key) }
}

// Labels takes only slots that have all of these labels, of which there may be 8.
func Labels(labels ...string) AcquireOption {
	return func(o *acquireOptions) { o.asked().Labels = append(o.asked().Labels, labels...) }
}

// Slots takes exactly these slots, and sets Count to their number. It does not go with Labels.
func Slots(names ...string) AcquireOption {
	return func(o *acquireOptions) {
		o.asked().Names = append(o.asked().Names, names...)
		o.Count = uint64(len(o.Options.Names))
	}
}

// FailOnDeadlock looks for a deadlock while the acquire waits: after 2 s, and then about every 5 s.
// If this session and others wait for each other, and a second read confirms it, one of those that
// wait with this option leaves its queue: the session with the highest id. Its acquire ends with
// ErrDeadlock, and it should release what it holds. Other sessions are not affected. It goes with
// ephemeral semaphores too.
func FailOnDeadlock() AcquireOption {
	return func(o *acquireOptions) {
		o.given |= givenWait
		o.asked().Flags |= protocol.AskDeadlock
	}
}

// Slots are the names of the slots that are held, in the order of the semaphore's list; none where
// units have no names. The token of each is Token.
func (l *Lease) Slots() []string { return l.d.SlotNames() }

// Keep names the slots that are kept, as many as the count. Default: the first ones of the list.
func Keep(names ...string) ReduceOption { return func(o *reduceOptions) { o.Keep = names } }

// Hold is a hold of a semaphore that ended.
type Hold struct {
	Token        uint64
	Session      uint64
	Description  string   // of the session, at most 64 bytes
	Count        uint64   // units that were held when it ended
	Slots        []string // at most 8
	Since, Until time.Time
	// Cause is released, transferred, session_closed, session_expired, session_ended where it is not
	// known how, or one of the causes of a [Loss].
	Cause string
	// Detail is what the server saw of a session that expired: its connection, for how long it was not
	// heard, and whether the shard stood still. Otherwise it is empty.
	Detail string
}

// holdOf is a hold of the history.
func holdOf(h *protocol.HistoryHold) Hold {
	x := Hold{Token: h.Token, Session: h.Session, Description: h.Description, Count: h.Count, Slots: h.Slots,
		Since: millis.Time(h.Since), Until: millis.Time(h.Until)}
	how := cmp.Or(h.Ending, new(protocol.Ending))
	switch h.Cause {
	case protocol.HoldReleased:
		x.Cause = "released"
	case protocol.HoldTransferred:
		x.Cause = "transferred"
	case protocol.HoldForced:
		x.Cause = "released_by_operator"
	case protocol.HoldMaxHold:
		x.Cause = "max_hold"
	case protocol.HoldPreempted:
		x.Cause = "preempted"
	default:
		x.Cause = endings[how.Reason]
		x.Detail = detailOf(how)
	}
	return x
}

var endings = map[protocol.EndReason]string{0: "session_ended", protocol.EndStopped: "session_closed",
	protocol.EndExpired: "session_expired", protocol.EndKilled: "session_ended_by_operator",
	protocol.EndNodeDropped: "node_deleted"}

// detailOf is what the server saw of a session that expired; empty: it was another end.
func detailOf(how *protocol.Ending) string {
	text := [...]string{
		protocol.LinkSilent: "its connection was open and silent for %s",
		protocol.LinkClosed: "its connection was closed by the client or the network, and it did not come back for %s",
		protocol.LinkCut:    "the server closed its connection, and it did not come back for %s",
		protocol.LinkUnread: "the server closed its connection, which was not read, and it did not come back for %s",
		protocol.LinkLeader: "its shard got another leader, and it did not come to that one for %s",
	}
	if how.Link == 0 || int(how.Link) >= len(text) {
		return ""
	}
	detail := fmt.Sprintf(text[how.Link], fmt.Sprintf("%.1f s", float64(how.Silent)/1000))
	switch {
	case how.Stood > 0:
		detail += fmt.Sprintf("; its leader stood still for %.1f s meanwhile", float64(how.Stood)/1000)
	case how.Steady:
		detail += "; one leader led in that time, and did not stand still in it"
	}
	return detail
}

// Takes are the slots that a waiter takes, also from other owners.
func (c *SemaphoreConfig) Takes(w *Waiter) (list []Slot) {
	for _, slot := range c.Slots {
		lacks := func(label string) bool { return !slices.Contains(slot.Labels, label) }
		if named := len(w.Slots) > 0; named && slices.Contains(w.Slots, slot.Name) || !named &&
			!slices.ContainsFunc(w.Labels, lacks) {
			list = append(list, slot)
		}
	}
	return list
}

// SlotState is the state of a slot.
type SlotState uint8

// The states.
const (
	SlotFree     = SlotState(protocol.SlotFree)
	SlotHeld     = SlotState(protocol.SlotHeld)
	SlotDraining = SlotState(protocol.SlotDraining) // held, and not granted again
	SlotDrained  = SlotState(protocol.SlotDrained)  // free, and not granted
	SlotLeaving  = SlotState(protocol.SlotLeaving)  // held, and gone when it is given back
)

var slotStates = [...]string{SlotFree: "free", SlotHeld: "held", SlotDraining: "draining", SlotDrained: "drained",
	SlotLeaving: "leaving"}

// String is for people: free, held, draining, drained, leaving.
func (c SlotState) String() string {
	if int(c) < len(slotStates) && slotStates[c] != "" {
		return slotStates[c]
	}
	return "unknown"
}

// IncludeSlots includes the slots in a description.
func IncludeSlots() ReadOption {
	return func(o *readOptions) { o.given, o.flags = o.given|readSlots, o.flags|protocol.WithSlots }
}

// configOf is that of a description; nil for a plain semaphore.
func configOf(d *protocol.SemaphoreDetails) *SemaphoreConfig {
	if d == nil {
		return nil
	}
	o := &d.Options
	c := &SemaphoreConfig{Policy: Policy(o.Policy), Aging: millis.Duration(o.Aging), History: int(o.History),
		Numbered: o.Numbered, MaxHold: millis.Duration(o.MaxHold), Extend: o.Extend, Preempt: PreemptMode(o.Preempt),
		Grace: millis.Duration(o.Grace), MinHold: millis.Duration(o.MinHold)}
	if len(o.Weights) > 0 {
		c.Weights = make(map[string]uint64, len(o.Weights))
	}
	for _, w := range o.Weights {
		c.Weights[string(w.Key)] = w.Weight
	}
	for _, x := range d.Slots {
		c.Slots = append(c.Slots, Slot{Name: x.Name, Labels: x.Labels, State: SlotState(x.State), Token: x.Token,
			Session: x.Session, Since: millis.Time(x.Since)})
	}
	return c
}
