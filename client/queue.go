package client

import (
	"bytes"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/millis"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Policy decides which waiters of a semaphore are served first.
type Policy uint8

// The policies.
const (
	PolicyFIFO     = Policy(protocol.PolicyFIFO)     // in the order in which they came
	PolicyPriority = Policy(protocol.PolicyPriority) // the highest priority first
	PolicyFair     = Policy(protocol.PolicyFair)     // keys share the units by weight
)

// DefaultPriority is that of an acquire without the option Priority.
const DefaultPriority = 5

// DefaultAging is a usual aging for ByPriority.
const DefaultAging = time.Minute

// SemaphoreOption is an option of Session.Create and Session.Alter. A semaphore that is created with
// any of them keeps a history of 32 holds unless KeepHistory says otherwise.
type SemaphoreOption interface{ alter(*semaphoreOptions) }

type semaphoreOption func(*semaphoreOptions)

func (f semaphoreOption) alter(x *semaphoreOptions) { f(x) }

// semaphoreOptions are what options change.
type semaphoreOptions struct {
	protocol.Alter
	err error // of the first option that is invalid
}

func semaphoreOptionsOf(opts []SemaphoreOption) (x semaphoreOptions) {
	for _, o := range opts {
		o.alter(&x)
	}
	return x
}

// FIFO serves waiters in the order in which they came, as a semaphore without options does.
func FIFO() SemaphoreOption { return policy(protocol.PolicyFIFO, 0, nil) }

// ByPriority serves the highest Priority first. aging is how much longer a waiter must have waited to
// be served before one that is one level higher: 0, for never, or 1 s to 1 day. A waiter is passed
// by only by requests that come less than 9 times aging after it. Use DefaultAging unless low
// priorities may wait for ever.
func ByPriority(aging time.Duration) SemaphoreOption {
	return policy(protocol.PolicyPriority, aging, nil)
}

// ByKey shares the units among the keys of waiters in proportion to their weights, 1 to 1,000 each;
// a key without a weight has 1. Units granted are shared, not the time that they are held. The limit
// must be at most 2^20.
func ByKey(weights map[string]uint64) SemaphoreOption {
	return policy(protocol.PolicyFair, 0, weights)
}

func policy(p protocol.QueuePolicy, aging time.Duration, weights map[string]uint64) SemaphoreOption {
	return semaphoreOption(func(x *semaphoreOptions) {
		x.Fields |= protocol.AlterPolicy | protocol.AlterAging | protocol.AlterWeights
		x.Options.Policy, x.Options.Aging, x.Options.Weights = p, millis.Of("aging", aging, &x.err), nil
		for key, weight := range weights {
			x.Options.Weights = append(x.Options.Weights, protocol.Weight{Key: []byte(key), Weight: weight})
		}
		slices.SortFunc(x.Options.Weights, func(a, b protocol.Weight) int { return bytes.Compare(a.Key, b.Key) })
	})
}

// Slot is a unit with a name, and labels that an acquire can ask for. Names and labels have 1 to 64
// of the characters A-Z a-z 0-9 . _ : / - and labels also =.
type Slot struct {
	Name   string
	Labels []string // at most 8
}

// NamedSlots gives the units names: at most 1,024, as many as the limit. A grant takes the first
// free ones of the list that the acquire admits, so scarce kinds go to the end. In an Alter the
// list is the new one: a slot that is left out goes when it is given back. Without slots the option
// makes the units plain again. Slots can be added to a semaphore, and removed from it, only while
// it has neither owners nor waiters.
func NamedSlots(list ...Slot) SemaphoreOption {
	return semaphoreOption(func(x *semaphoreOptions) {
		x.Fields |= protocol.AlterSlots
		x.Options.Numbered, x.Options.Slots = false, nil
		for _, s := range list {
			x.Options.Slots = append(x.Options.Slots, protocol.Slot{Name: s.Name, Labels: s.Labels})
		}
	})
}

// NumberedSlots makes the units slots that are named 0, 1, ... Resize changes their number.
func NumberedSlots() SemaphoreOption {
	return semaphoreOption(func(x *semaphoreOptions) {
		x.Fields |= protocol.AlterSlots
		x.Options.Numbered, x.Options.Slots = true, nil
	})
}

// KeepHistory keeps the last rows holds that ended, 0 to 32; see Node.History.
func KeepHistory(rows int) SemaphoreOption {
	return semaphoreOption(func(x *semaphoreOptions) {
		x.Fields |= protocol.AlterHistory
		x.Options.History = uint64(rows)
	})
}

// Drain stops grants of slots. An owner keeps a slot until it gives it back. Undrain makes them free
// again. Both are for Session.Alter.
func Drain(names ...string) SemaphoreOption {
	return semaphoreOption(func(x *semaphoreOptions) { x.Drain = append(x.Drain, names...) })
}

// Undrain ends a Drain.
func Undrain(names ...string) SemaphoreOption {
	return semaphoreOption(func(x *semaphoreOptions) { x.Undrain = append(x.Undrain, names...) })
}

// withoutReasons splits options into those of the semaphore and the reason.
func withoutReasons(opts []SemaphoreOption) (what []SemaphoreOption, reason string) {
	for _, o := range opts {
		if r, ok := o.(reasonOption); ok {
			reason = string(r)
		} else {
			what = append(what, o)
		}
	}
	return what, reason
}

// createOptions are those of a semaphore that is created; nil for a plain one.
func createOptions(opts []SemaphoreOption) (*protocol.SemaphoreOptions, error) {
	if len(opts) == 0 {
		return nil, nil
	}
	x := semaphoreOptionsOf(opts)
	if x.Fields&protocol.AlterHistory == 0 {
		x.Options.History = protocol.MaxHistory
	}
	return &x.Options, x.err
}

// asked returns the options by which the acquire differs from a plain one.
func (o *acquireOptions) asked() *protocol.AcquireOptions {
	if o.ask == nil {
		o.ask = new(protocol.AcquireOptions)
	}
	return o.ask
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
		o.count = uint64(len(o.ask.Names))
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
	Cause        HoldCause
}

// HoldCause is why a hold ended.
type HoldCause uint8

// The causes.
const (
	HoldReleased     = HoldCause(protocol.HoldReleased)
	HoldSessionEnded = HoldCause(protocol.HoldSessionEnded)
	HoldForced       = HoldCause(protocol.HoldForced)      // an operator took it away
	HoldTransferred  = HoldCause(protocol.HoldTransferred) // its owner handed it over
	HoldMaxHold      = HoldCause(protocol.HoldMaxHold)     // it was held for as long as it may be
	HoldPreempted    = HoldCause(protocol.HoldPreempted)   // a waiter preempted it, and its grace was over
)

var holdCauses = [...]string{HoldReleased: "released", HoldSessionEnded: "session ended", HoldForced: "forced",
	HoldTransferred: "transferred", HoldMaxHold: "max hold", HoldPreempted: "preempted"}

// String is for people: released, session ended, forced, transferred, max hold, preempted.
func (c HoldCause) String() string {
	if int(c) < len(holdCauses) && holdCauses[c] != "" {
		return holdCauses[c]
	}
	return "unknown"
}

// SemaphoreOptions are the options by which a semaphore differs from a plain one.
type SemaphoreOptions struct {
	Policy  Policy
	Aging   time.Duration     // PolicyPriority: of waiting that counts as one level; 0: never
	Weights map[string]uint64 // PolicyFair: of keys; any other key has 1
	History int               // rows
	Preempt PreemptMode
	Grace   time.Duration // that preempted owners have to yield; 0: they are only told
	MinHold time.Duration // that they have before it
	MaxHold time.Duration // that a hold lasts at most; 0: without a bound
	Extend  bool          // owners may ask for more time
	// Slots are its units if they have names; with IncludeSlots alone.
	Slots    []SlotStatus
	Numbered bool // they are named 0, 1, ...
}

// Takes are the slots that a waiter takes, also from other owners.
func (o *SemaphoreOptions) Takes(w *Waiter) (list []SlotStatus) {
	for _, slot := range o.Slots {
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

// SlotStatus describes a slot.
type SlotStatus struct {
	Slot
	State   SlotState
	Token   uint64    // of the last grant, which may have ended; 0: there was none
	Session uint64    // that holds it; 0: none
	Since   time.Time // of the grant that holds it
}

// IncludeSlots includes the slots in a description.
func IncludeSlots() ReadOption {
	return func(o *readOptions) { o.given, o.flags = o.given|readSlots, o.flags|protocol.WithSlots }
}

// optionsOf are those of a description; nil for a plain semaphore.
func optionsOf(d *protocol.SemaphoreDetails) *SemaphoreOptions {
	if d == nil {
		return nil
	}
	o := &SemaphoreOptions{Policy: Policy(d.Options.Policy), Aging: millis.Duration(d.Options.Aging),
		History: int(d.Options.History), Numbered: d.Options.Numbered, MaxHold: millis.Duration(d.Options.MaxHold),
		Extend: d.Options.Extend}
	o.setPreempt(&d.Options)
	if len(d.Options.Weights) > 0 {
		o.Weights = make(map[string]uint64, len(d.Options.Weights))
	}
	for _, w := range d.Options.Weights {
		o.Weights[string(w.Key)] = w.Weight
	}
	for _, x := range d.Slots {
		o.Slots = append(o.Slots, SlotStatus{Slot: Slot{x.Name, x.Labels}, State: SlotState(x.State), Token: x.Token,
			Session: x.Session, Since: millis.Time(x.Since)})
	}
	return o
}
