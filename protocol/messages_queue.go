package protocol

// QueuePolicy decides which waiters of a semaphore are examined first.
type QueuePolicy uint8

const (
	PolicyFIFO     QueuePolicy = 0 // in the order of their places
	PolicyPriority QueuePolicy = 1 // the highest level first; with aging, earlier arrivals count as higher levels
	PolicyFair     QueuePolicy = 2 // keys get granted units in proportion to their weights
)

// Bounds of the options of semaphores and acquires.
const (
	MaxPriority     = 9 // the highest level of an acquire
	DefaultPriority = 5 // of an acquire that names none
	MaxKeyLen       = 64
	MaxLabelLen     = 64 // of slot names too
	MaxLabels       = 8  // of a slot, and of an acquire
	MaxSlots        = 1024
	MaxSlotBytes    = 32 << 10 // names and labels of a semaphore's slots
	MaxWeights      = 256
	MaxWeight       = 1000
	MaxHistory      = 32 // rows
	MinAging        = 1000
	MaxAging        = 24 * 60 * 60 * 1000 // ms
	MaxFairLimit    = 1 << 20             // of a semaphore with PolicyFair
	MinHold         = 1000
	MaxHold         = 30 * 24 * 60 * 60 * 1000 // ms, of the longest hold
)

// SemaphoreOptions are the options by which a persistent semaphore differs from a plain one. The
// zero value is a plain semaphore.
type SemaphoreOptions struct {
	Policy   QueuePolicy
	Aging    uint64   // PolicyPriority: ms of waiting that count as one level; 0: never
	Weights  []Weight // PolicyFair: of keys; any other key has 1
	Numbered bool     // its units are slots named 0, 1, ... in decimal; the limit is their number
	Slots    []Slot   // its units are these slots; the limit is their number
	History  uint64   // how many rows are kept of holds that ended
	MaxHold  uint64   // ms after which the server ends a hold, MinHold to MaxHold; 0: never
	Extend   bool     // an owner may ask for more time, up to MaxHold from then on

	Preempt PreemptMode // which owners waiters may preempt
	Grace   uint64      // ms that a preempted owner has to yield, MinGrace to MaxGrace; 0: it is only notified
	MinHold uint64      // with a grace: ms that an owner has before it, up to MaxMinHold
}

// Weight is the share of a key, relative to the others.
type Weight struct {
	Key    []byte
	Weight uint64 // 1 to MaxWeight
}

// Slot is a unit with a name. A grant takes the first free slots of the list that its request
// admits, so scarce kinds go to the end.
type Slot struct {
	Name   string
	Labels []string
}

func (m *SemaphoreOptions) fields(f *fields) {
	enum(f, "options.policy", &m.Policy, "policy", PolicyFIFO, PolicyFair, "0 (fifo), 1 (priority) or 2 (fair)")
	f.uint("options.aging", &m.Aging)
	for l := list(f, "options.weights", 2, &m.Weights); l.next(f); {
		l.item().fields(f)
	}
	f.bool("options.numbered", &m.Numbered)
	for l := list(f, "options.slots", 2, &m.Slots); l.next(f); {
		l.item().fields(f)
	}
	f.uint("options.history", &m.History)
	f.uint("options.max hold", &m.MaxHold)
	f.bool("options.extend", &m.Extend)
	m.preemptFields(f)
	if f.checks() {
		m.check(f)
	}
}

func (m *Weight) fields(f *fields) {
	f.limited("weight.key", &m.Key, "key of a weight", MaxKeyLen)
	f.uint("weight.weight", &m.Weight)
	if m.Weight == 0 || m.Weight > MaxWeight {
		f.refuse("weight of the key %q is %d; it must be 1 to %d", m.Key, m.Weight, MaxWeight)
	}
}

func (m *Slot) fields(f *fields) {
	f.str("slot.name", &m.Name)
	f.strs("slot.labels", &m.Labels)
	if f.checks() {
		f.slotName(m.Name)
		f.slotLabels(m.Labels)
	}
}

// check refuses invalid values and lists.
func (m *SemaphoreOptions) check(f *fields) {
	if m.Aging != 0 && (m.Aging < MinAging || m.Aging > MaxAging) {
		f.refuse("aging is %d ms; it must be 0, for never, or %d to %d ms per level", m.Aging, MinAging, MaxAging)
	}
	if len(m.Weights) > MaxWeights {
		f.refuse("%d keys have weights; at most %d are allowed", len(m.Weights), MaxWeights)
	}
	keys := make(map[string]bool, len(m.Weights))
	for _, w := range m.Weights {
		if keys[string(w.Key)] {
			f.refuse("key %q has two weights; give it one", w.Key)
		}
		keys[string(w.Key)] = true
	}
	if m.Numbered && len(m.Slots) > 0 {
		f.refuse("slots are numbered and have names; choose one")
	}
	if len(m.Slots) > MaxSlots {
		f.refuse("semaphore has %d slots; at most %d are allowed", len(m.Slots), MaxSlots)
	}
	size, names := 0, make(map[string]bool, len(m.Slots))
	for _, s := range m.Slots {
		if names[s.Name] {
			f.refuse("two slots are named %q; give each its own name", s.Name)
		}
		names[s.Name] = true
		size += len(s.Name)
		for _, label := range s.Labels {
			size += len(label)
		}
	}
	if size > MaxSlotBytes {
		f.refuse("names and labels of the slots are %d bytes; at most %d are allowed", size, MaxSlotBytes)
	}
	if m.History > MaxHistory {
		f.refuse("history is %d rows; at most %d are allowed", m.History, MaxHistory)
	}
	if m.MaxHold != 0 && (m.MaxHold < MinHold || m.MaxHold > MaxHold) {
		f.refuse("longest hold is %d ms; it must be 0, for none, or %d to %d ms", m.MaxHold, MinHold, MaxHold)
	}
}

// Fit describes an option that contradicts another option, or the semaphore's limit; empty if all
// fit.
func (m *SemaphoreOptions) Fit(limit uint64) string {
	switch {
	case m.Aging != 0 && m.Policy != PolicyPriority:
		return "aging belongs to the policy priority; leave it out, or choose that policy"
	case len(m.Weights) > 0 && m.Policy != PolicyFair:
		return "weights belong to the policy fair; leave them out, or choose that policy"
	case m.Policy == PolicyFair && limit > MaxFairLimit:
		return "policy fair needs a limit of at most 1048576; lower the limit"
	case len(m.Slots) > 0 && uint64(len(m.Slots)) != limit:
		return "limit differs from the number of slots; give it as their number"
	case m.Numbered && limit > MaxSlots:
		return "a semaphore has at most 1024 slots; lower the limit"
	case m.Extend && m.MaxHold == 0:
		return "extend belongs to a longest hold; leave it out, or give one"
	}
	return m.preemptFit(limit)
}

// Plain reports whether the options are those of a plain semaphore.
func (m *SemaphoreOptions) Plain() bool {
	return m.Policy == PolicyFIFO && m.Aging == 0 && len(m.Weights) == 0 && !m.Numbered && len(m.Slots) == 0 &&
		m.History == 0 && m.MaxHold == 0 && !m.Extend && m.Preempt == PreemptOff
}

// slotText refuses a text with other bytes than those of slot names, and more for labels.
func (f *fields) slotText(s, what, more string) {
	if len(s) == 0 || len(s) > MaxLabelLen {
		f.refuse("%s is %d bytes long; it must be 1 to %d", what, len(s), MaxLabelLen)
		return
	}
	for _, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '.' || c == '_' || c == ':' || c == '/' || c == '-' || more != "" && c == more[0]:
		default:
			f.refuse("%s %q has other characters than A-Z a-z 0-9 . _ : / - %s; leave them out", what, s, more)
			return
		}
	}
}

func (f *fields) slotName(s string) { f.slotText(s, "name of a slot", "") }

// slotLabels are the labels of a slot, or the labels that a request asks for.
func (f *fields) slotLabels(labels []string) {
	if len(labels) > MaxLabels {
		f.refuse("%d labels are given; at most %d are allowed", len(labels), MaxLabels)
	}
	for i, label := range labels {
		f.slotText(label, "label", "=")
		for _, other := range labels[:i] {
			if other == label {
				f.refuse("label %q is given twice; give it once", label)
			}
		}
	}
}

// Flags of AcquireOptions.
const (
	// KnowsBounds: the client ends its hold by itself before the bound that answers give. Without
	// it a hold has no bound, and one that needs a bound is refused with RefusalBound.
	KnowsBounds uint8 = 1
	// AskDeadlock: the waiter may be chosen to leave the queue when sessions wait for each other. The
	// server only shows it.
	AskDeadlock uint8 = 2
)

// AcquireOptions are the options of an acquire beyond a plain one. All but Hold and the flags are
// only for persistent semaphores.
type AcquireOptions struct {
	Priority uint8 // the level plus 1, 1 to 10; 0: level 5
	Key      []byte
	Labels   []string // only slots that have all of them
	Names    []string // exactly these slots, as many as the count; not together with labels
	// ms after which the server ends the hold, MinHold to MaxHold; of an owner, counted from now;
	// 0: the semaphore's
	Hold  uint64
	Known uint64 // of an owner: the preemption whose bound the client has noted; 0: none
	Flags uint8  // KnowsBounds, AskDeadlock
}

func (m *AcquireOptions) fields(f *fields) {
	small(f, "options.priority", &m.Priority)
	f.limited("options.key", &m.Key, "key", MaxKeyLen)
	f.strs("options.labels", &m.Labels)
	f.strs("options.names", &m.Names)
	f.uint("options.hold", &m.Hold)
	f.uint("options.known", &m.Known)
	f.flags(&m.Flags, KnowsBounds|AskDeadlock, "acquire options")
	if !f.checks() {
		return
	}
	if m.Priority > MaxPriority+1 {
		f.refuse("priority is %d; it must be 0 to %d", m.Priority-1, MaxPriority)
	}
	if m.Hold != 0 && (m.Hold < MinHold || m.Hold > MaxHold) {
		f.refuse("hold is %d ms; it must be 0, for the semaphore's, or %d to %d ms", m.Hold, MinHold, MaxHold)
	}
	f.slotLabels(m.Labels)
	if len(m.Names) > 0 && len(m.Labels) > 0 {
		f.refuse("labels and names of slots are both given; choose one")
	}
	if len(m.Names) > MaxSlots {
		f.refuse("%d slots are named; a semaphore has at most %d", len(m.Names), MaxSlots)
	}
	names := make(map[string]bool, len(m.Names))
	for _, name := range m.Names {
		f.slotName(name)
		if names[name] {
			f.refuse("slot %q is named twice; name it once", name)
		}
		names[name] = true
	}
}

// Level is the priority that is asked for, 0 to MaxPriority.
func (m *AcquireOptions) Level() uint8 {
	if m == nil || m.Priority == 0 {
		return DefaultPriority
	}
	return m.Priority - 1
}

// Grant is the record of an owner beyond units of a plain semaphore, and of a waiter with
// KnowsBounds.
//
// A hold with a bound ends at Until, in time that only the difference to Now means anything of. The
// client relies on it for 0.99 x (Until - Now) from the moment that it sent the request with the
// answer, or of a later result, the request that was queued, with the Now of that answer.
type Grant struct {
	Slots      []string // by position
	Now        uint64   // ms, when the answer was made; with a bound or KnowsBounds
	Until      uint64   // ms; 0: no bound
	Preemption uint64   // number of the preemption, of an owner that is preempted; else 0
}

func (m *Grant) fields(f *fields) {
	f.strs("grant.slots", &m.Slots)
	f.uint("grant.now", &m.Now)
	f.uint("grant.until", &m.Until)
	f.uint("grant.preemption", &m.Preemption)
}

// OwnerOptions are an owner's requests and grants beyond units of a plain semaphore.
type OwnerOptions struct {
	Slots     []string // by position
	Priority  uint8    // the level plus 1
	Key       []byte
	Left      uint64 // ms until the hold ends by itself, in descriptions; 0: it has no bound
	Preempted bool   // a waiter preempts it, in descriptions
	Silent    bool   // it has not said that it knows its bound, which has passed
}

func (m *OwnerOptions) fields(f *fields) {
	f.strs("owner.slots", &m.Slots)
	small(f, "owner.priority", &m.Priority)
	f.bytes("owner.key", &m.Key)
	f.uint("owner.left", &m.Left)
	f.bool("owner.preempted", &m.Preempted)
	f.bool("owner.silent", &m.Silent)
}

// WaiterOptions are the options of a waiter beyond those of a plain semaphore.
type WaiterOptions struct {
	Priority uint8 // the level plus 1
	Key      []byte
	Labels   []string
	Names    []string
	Flags    uint8
	// Rank is the order in which the policy would serve the waiters one after the other, if nothing
	// else happened: 1 to 16, or 0 for those behind.
	Rank uint64
}

func (m *WaiterOptions) fields(f *fields) {
	small(f, "waiter.priority", &m.Priority)
	f.bytes("waiter.key", &m.Key)
	f.strs("waiter.labels", &m.Labels)
	f.strs("waiter.names", &m.Names)
	small(f, "waiter.flags", &m.Flags)
	f.uint("waiter.rank", &m.Rank)
}

// SemaphoreDetails are a description's details of a semaphore with options, on its first page.
type SemaphoreDetails struct {
	Options SemaphoreOptions
	Slots   []SlotInfo // with WithSlots
}

func (m *SemaphoreDetails) fields(f *fields) {
	o := f.enter("details.options")
	m.Options.fields(f)
	f.leave(o)
	for l := list(f, "details.slots", 6, &m.Slots); l.next(f); {
		l.item().fields(f)
	}
}

// SlotState is the state of a slot.
type SlotState uint8

const (
	SlotFree     SlotState = 1
	SlotHeld     SlotState = 2
	SlotDraining SlotState = 3 // held, and not granted again
	SlotDrained  SlotState = 4 // free, and not granted
	SlotLeaving  SlotState = 5 // held, and gone when it is given back
)

// SlotInfo describes a slot.
type SlotInfo struct {
	Name    string
	Labels  []string
	State   SlotState
	Token   uint64 // of the grant that has it, or had it last; 0: it was never granted
	Session uint64 // that has it
	Since   uint64 // wall clock of the grant that has it, ms since 1970
}

func (m *SlotInfo) fields(f *fields) {
	f.str("slot.name", &m.Name)
	f.strs("slot.labels", &m.Labels)
	small(f, "slot.state", &m.State)
	f.uint("slot.token", &m.Token)
	f.uint("slot.session", &m.Session)
	f.uint("slot.since", &m.Since)
}

// Fields of SemaphoreOptions that an Alter changes.
const (
	AlterPolicy uint64 = 1 << iota
	AlterAging
	AlterWeights
	AlterSlots // Numbered and Slots
	AlterHistory
	AlterMaxHold
	AlterExtend
	AlterPreempt
	AlterGrace
	AlterMinHold

	alterAll = 1<<iota - 1
)

// Alter changes options of a persistent semaphore, and which of its slots are drained. Repeated it
// changes nothing. The options that result must fit together, see SemaphoreOptions.Fit. Reply:
// Empty.
type Alter struct {
	Head
	Name    []byte
	Fields  uint64 // which options are changed
	Options SemaphoreOptions
	Drain   []string // slots that are not granted any more; owners keep them
	Undrain []string // slots that are granted again
	Reason  string   // for the audit log
}

func (m *Alter) fields(f *fields) {
	f.message("alter")
	f.head(&m.Head)
	f.name(&m.Name)
	f.uint("fields", &m.Fields)
	if unknown := m.Fields &^ alterAll; unknown != 0 {
		f.refuse("alter has unknown fields (bits %#x); leave them out, or upgrade the server first", unknown)
	}
	o := f.enter("options")
	m.Options.fields(f)
	f.leave(o)
	f.strs("drain", &m.Drain)
	f.strs("undrain", &m.Undrain)
	if f.checks() {
		m.checkDrains(f)
	}
	f.text("reason", &m.Reason, "reason", MaxDescriptionLen)
}

func (m *Alter) checkDrains(f *fields) {
	if len(m.Drain)+len(m.Undrain) > MaxSlots {
		f.refuse("%d slots are drained or undrained; a semaphore has at most %d", len(m.Drain)+len(m.Undrain), MaxSlots)
		return
	}
	names := make(map[string]bool, len(m.Drain)+len(m.Undrain))
	for _, list := range [][]string{m.Drain, m.Undrain} {
		for _, name := range list {
			f.slotName(name)
			if names[name] {
				f.refuse("slot %q is named twice; name it once", name)
			}
			names[name] = true
		}
	}
}

// SemaphoreHistory reads the last holds of a semaphore that ended. Reply: SemaphoreHistoryReply.
type SemaphoreHistory struct {
	Node        uint64
	Name        []byte
	Consistency Consistency
	MinIndex    uint64 // a relaxed read not older than this log index of the shard
}

func (m *SemaphoreHistory) fields(f *fields) {
	f.message("semaphore history")
	f.uint("node", &m.Node)
	f.name(&m.Name)
	f.consistency(&m.Consistency)
	f.uint("min index", &m.MinIndex)
}

// SemaphoreHistoryReply has as many rows as the semaphore's option History keeps.
type SemaphoreHistoryReply struct {
	Index uint64        // log index of the shard that it was read at
	Holds []HistoryHold // the hold that ended last comes first
}

func (m *SemaphoreHistoryReply) fields(f *fields) {
	f.message("semaphore history reply")
	f.uint("index", &m.Index)
	for l := list(f, "holds", 8, &m.Holds); l.next(f); {
		l.item().fields(f)
	}
}

// HoldEnd is the cause that ended a hold.
type HoldEnd uint8

const (
	HoldReleased     HoldEnd = 1
	HoldSessionEnded HoldEnd = 2
	HoldForced       HoldEnd = 3 // an operator took it away
	HoldTransferred  HoldEnd = 4 // its owner handed it over
	HoldMaxHold      HoldEnd = 5 // it was held for as long as a hold may be
	HoldPreempted    HoldEnd = 6 // a waiter preempted it, and its grace was over
)

// Link is the fate of the connection of a session that expired.
type Link uint8

const (
	LinkSilent Link = 1 // it was open, and nothing arrived on it
	LinkClosed Link = 2 // the client or the network closed it
	LinkCut    Link = 3 // the server closed it
	LinkUnread Link = 4 // the server closed it, because its client did not read
	LinkLeader Link = 5 // its shard got another leader, at which the session was not attached
)

// String is silent, closed, cut, unread or leader.
func (l Link) String() string {
	return enumName(int(l), "", "silent", "closed", "cut", "unread", "leader")
}

// Ending describes the end of a session, as its home shard knows it. Times are in ms.
type Ending struct {
	Reason EndReason // 0: it is not known where this is read
	Link   Link      // of one that expired
	Silent uint64    // for how long one that expired had not been heard
	Stood  uint64    // for how long its shard stood still last, if that was in this time
	Steady bool      // one leader led its shard in all of this time
}

func (m *Ending) fields(f *fields) {
	small(f, "ending.reason", &m.Reason)
	small(f, "ending.link", &m.Link)
	f.uint("ending.silent", &m.Silent)
	f.uint("ending.stood", &m.Stood)
	f.bool("ending.steady", &m.Steady)
}

// HistoryHold is a hold that ended.
type HistoryHold struct {
	Token       uint64
	Session     uint64
	Description string   // the first 64 bytes
	Count       uint64   // when it ended
	Slots       []string // the first 8
	Since       uint64   // wall clock, ms since 1970
	Until       uint64
	Cause       HoldEnd
	Ending      *Ending // with HoldSessionEnded, where it is known; left out otherwise
}

func (m *HistoryHold) fields(f *fields) {
	f.uint("hold.token", &m.Token)
	f.uint("hold.session", &m.Session)
	f.str("hold.description", &m.Description)
	f.uint("hold.count", &m.Count)
	f.strs("hold.slots", &m.Slots)
	f.uint("hold.since", &m.Since)
	f.uint("hold.until", &m.Until)
	small(f, "hold.cause", &m.Cause)
	if o, ok := trailing(f, "hold.ending", &m.Ending); ok {
		m.Ending.fields(f)
		f.leave(o)
	}
}
