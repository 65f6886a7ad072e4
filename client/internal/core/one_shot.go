package core

import (
	"maps"
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// OneShot is a one-shot watch, which a Call arms that describes a semaphore for a session. It is over
// when what is watched changes, and when a change may have been missed: its connection is lost, the
// session has ended, or the server says so. Then Waiter is in Ready.Wake, once, unless the call
// fails. A session has one at a semaphore: a newer one ends the older.
type OneShot struct {
	Waiter        Waiter
	DataChanged   bool // set at its end; if both are false, a change may have been missed
	OwnersChanged bool

	s      *Session
	on     *Conn // that it is armed on; nil: none
	id     uint64
	shard  uint64
	tier   uint8
	bucket uint64
	armed  bool // the call was answered
	early  bool // it was over before that
}

// arm makes the watch known where the call is sent. The message gets its id.
func (o *OneShot) arm(e *Engine, x *Call, c *Conn) {
	o.disarm()
	e.lastOneShot++
	o.s, o.on, o.id, o.early = x.session, c, e.lastOneShot, false
	o.shard, o.tier, o.bucket = x.shard, x.tier, x.arg
	put(&c.oneShots, o.id, o)
	put(&o.s.oneShots, o.id, o)
	x.Msg.(*protocol.Describe).WatchID = o.id
}

// put puts into a map that is made for its first entry.
func put[K comparable, T any](m *map[K]T, key K, x T) {
	if *m == nil {
		*m = make(map[K]T)
	}
	(*m)[key] = x
}

// Disarm forgets a watch that nobody waits for any more: its Waiter is not woken. The server's goes on
// until it fires, or a newer one ends it.
func (e *Engine) Disarm(now time.Duration, o *OneShot) {
	e.enter(now)
	o.disarm()
}

func (o *OneShot) disarm() {
	if o.on != nil {
		delete(o.on.oneShots, o.id)
		delete(o.s.oneShots, o.id)
		o.on = nil
	}
}

// answered: the call was answered.
func (o *OneShot) answered(e *Engine, err error) {
	switch {
	case err != nil:
		o.disarm()
	case o.early:
		e.ready.Wake = append(e.ready.Wake, o.Waiter)
	default:
		o.armed = true
	}
}

// fire ends the watch. A RELAXED read that follows must not miss the change. The instance that fired
// has it; a change that may have been missed can be anywhere, and in another shard if the bucket has
// moved.
func (o *OneShot) fire(e *Engine, data, owners bool) {
	instance := o.on.instance
	o.disarm()
	o.DataChanged, o.OwnersChanged = data, owners
	if !data && !owners {
		instance = 0
		if w := e.routes.table.tier(o.tier).owner(uint32(o.bucket)); w != nil {
			e.routes.memory(w.shard).wrote(e.now, 0)
		}
	}
	e.routes.memory(o.shard).wrote(e.now, instance)
	if o.early = !o.armed; o.armed {
		e.ready.Wake = append(e.ready.Wake, o.Waiter)
	}
}

// missed ends watches that may miss a change from now on. Those whose call is not answered are armed
// again where that is sent.
func missed(e *Engine, all map[uint64]*OneShot) {
	for _, id := range slices.Sorted(maps.Keys(all)) {
		if o := all[id]; o != nil && o.armed {
			o.fire(e, false, false)
		}
	}
}
