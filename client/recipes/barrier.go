package recipes

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"unicode/utf8"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/internal/contexts"
	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Limits of a barrier.
const (
	maxBarrier         = 1000      // of its parties
	maxBarrierKey      = 64        // bytes
	maxBarrierPayload  = 1 << 10   // bytes of one party
	maxBarrierPayloads = 384 << 10 // bytes of all: as base64, with keys, they fit into a semaphore's data
)

// Barrier is where n parties meet: each waits until all are there, and is told who they are. Then it
// can be used again. A party is a session that waits, with a key. It dies with its session, and is
// not counted any more. One that is started again and waits with its key counts once. One too many
// waits for the next meeting.
//
// The state is a semaphore of the name, with the limit client.Max, that stays. Each party that
// waits holds a unit of it.
type Barrier struct {
	record sharedRecord[barrierRecord]
	n      int
}

// BarrierMember is a party of a meeting.
type BarrierMember struct {
	Key     string `json:"key"`
	Payload []byte `json:"payload,omitempty"`
}

// barrierRecord is the data of a barrier's semaphore.
type barrierRecord struct {
	Barrier    int            `json:"barrier"`    // how many parties meet
	Generation uint64         `json:"generation"` // of the next meeting, from 1; for people
	Members    []barrierEntry `json:"members"`    // of the last meeting, by token
}

// barrierEntry is a party that waits, or has met; the member is the data of its unit.
type barrierEntry struct {
	BarrierMember
	Token uint64 `json:"token"`
}

// Invariant: a meeting is written down only when each party of the last one has given its unit back,
// or died. So a party finds its own meeting in the record, however late it looks, and each other holder
// of a unit waits for the next one.

// meeting is the record after the next meeting, if all are there: the members of the last one have
// gone, and n keys wait. Of parties with one key the latest counts: it was started again.
func (r *barrierRecord) meeting(entries []barrierEntry) (next barrierRecord, complete bool) {
	latest := make(map[string]barrierEntry, r.Barrier)
	for _, p := range entries {
		if r.has(p.Token) {
			return next, false
		}
		if known, ok := latest[p.Key]; !ok || known.Token < p.Token {
			latest[p.Key] = p
		}
	}
	if r.Barrier == 0 || len(latest) < r.Barrier {
		return next, false
	}
	next = barrierRecord{Barrier: r.Barrier, Generation: r.Generation + 1}
	for _, p := range latest {
		next.Members = append(next.Members, p)
	}
	slices.SortFunc(next.Members, func(a, b barrierEntry) int { return cmp.Compare(a.Token, b.Token) })
	next.Members = next.Members[:r.Barrier]
	return next, true
}

// barrierTurn is the next step of a party.
type barrierTurn uint8

const (
	barrierWaits  barrierTurn = iota // for others
	barrierMet                       // its meeting is in the record
	barrierWrites                    // all are there, and it is the one that writes that down
)

// turn returns the next step of a party that knows this record and these parties. One party writes:
// the last to arrive of those that meet. If all of a thousand tried, each would send the record.
func (r *barrierRecord) turn(own *barrierEntry, entries []barrierEntry) barrierTurn {
	if r.has(own.Token) {
		return barrierMet
	}
	if next, complete := r.meeting(entries); complete && next.Members[r.Barrier-1].Token == own.Token {
		return barrierWrites
	}
	return barrierWaits
}

func (r *barrierRecord) has(token uint64) bool {
	_, ok := slices.BinarySearchFunc(r.Members, token, func(p barrierEntry, t uint64) int {
		return cmp.Compare(p.Token, t)
	})
	return ok
}

// NewBarrier is the barrier with this name on the session's node, at which n parties meet, 1 to
// 1,000.
func NewBarrier(s *client.Session, name string, n int) *Barrier {
	valid := func(r *barrierRecord) bool { return r.Barrier > 0 }
	return &Barrier{sharedRecord[barrierRecord]{s, name, "barrier", client.Max, valid}, n}
}

// Wait waits until n parties with different keys wait, and returns them in the order in which they
// came, this one among them. key is 1 to 64 bytes of UTF-8. The other parties get payload, at
// most 1 KiB, and with more than 384 parties at most 384 KiB / n. A session waits once at a time.
//
// If ctx ends, the party leaves; the others may have met with it. A party that died in a meeting
// before it gave its unit back delays the next meeting until its session ends.
//
// Errors: that of ctx, or of the session when it ends; ErrAlreadyHeld; ErrLeaseLost if an operator
// deletes the semaphore; ErrBadRequest for a wrong n, key or payload; ErrPreconditionFailed if the
// semaphore has another use, or the barrier another n.
func (b *Barrier) Wait(ctx context.Context, key string, payload []byte) ([]BarrierMember, error) {
	members, err := b.wait(ctx, barrierEntry{BarrierMember: BarrierMember{key, bytes.Clone(payload)}})
	return members, driver.WithOp("wait for", b.record.name, err)
}

func (b *Barrier) check(p *barrierEntry) error {
	most := min(maxBarrierPayload, maxBarrierPayloads/max(b.n, 1))
	switch {
	case b.n < 1 || b.n > maxBarrier:
		return protocol.Errorf(protocol.StatusBadRequest, "barrier has %d parties; it must be 1 to %d", b.n, maxBarrier)
	case len(p.Key) == 0 || len(p.Key) > maxBarrierKey || !utf8.ValidString(p.Key):
		return protocol.Errorf(protocol.StatusBadRequest, "key is %q; it must be 1 to %d bytes of UTF-8", p.Key,
			maxBarrierKey)
	case len(p.Payload) > most:
		return protocol.Errorf(protocol.StatusBadRequest,
			"payload is %d bytes long; it must be at most %d at a barrier of %d", len(p.Payload), most, b.n)
	}
	return nil
}

func (b *Barrier) wait(ctx context.Context, own barrierEntry) ([]BarrierMember, error) {
	if err := b.check(&own); err != nil {
		return nil, err
	}
	s := b.record.s
	ctx, end := contexts.Both(s.Context(), ctx)
	defer end()
	ctx, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	if err := b.present(ctx); err != nil { // so that the watch begins with it
		return nil, err
	}
	var lease *client.Lease
	defer func() {
		if lease != nil {
			release, done := contexts.ForRelease(ctx)
			defer done()
			_ = lease.Release(release)
		}
	}()
	view := barrierView{entries: map[uint64]barrierEntry{}}
	for ev, err := range s.Node().Watch(ctx, b.record.name) {
		if err != nil {
			return nil, driver.WithoutOp(err)
		}
		view.apply(&ev)
		switch {
		case lease == nil && ev.Kind != client.EventSynced: // a party that cannot watch would hold up the others
			continue
		case lease == nil:
			if lease, err = b.enter(ctx, &own); err != nil {
				return nil, err
			}
			held := lease.Context()
			context.AfterFunc(held, func() { lost(context.Cause(held)) })
		case ev.Kind == client.EventDeleted: // the lease ends at once
			continue
		}
		record, err := b.step(ctx, &own, &view)
		if err != nil {
			return nil, err
		}
		if record != nil {
			members := make([]BarrierMember, len(record.Members))
			for i, p := range record.Members {
				members[i] = p.BarrierMember
			}
			return members, nil
		}
	}
	return nil, interrupted(ctx)
}

// present makes the record if there is none.
func (b *Barrier) present(ctx context.Context) error {
	return b.record.change(ctx, func(r *barrierRecord, exists bool) (bool, error) {
		if !exists {
			r.Barrier, r.Generation = b.n, 1
		}
		if r.Barrier != b.n {
			return false, protocol.Errorf(protocol.StatusPreconditionFailed,
				"the barrier has %d parties, not %d; use one number, or delete its semaphore to start over", r.Barrier, b.n)
		}
		return !exists, nil
	})
}

// enter takes the party's unit.
func (b *Barrier) enter(ctx context.Context, own *barrierEntry) (*client.Lease, error) {
	for {
		if err := b.present(ctx); err != nil {
			return nil, err
		}
		data, err := json.Marshal(own.BarrierMember)
		if err != nil {
			return nil, err
		}
		lease, err := b.record.s.Acquire(ctx, b.record.name, client.Data(data))
		if err == nil {
			own.Token = lease.Token()
			return lease, nil
		}
		if !refused(err, client.ErrNotFound) {
			return nil, driver.WithoutOp(err)
		} // it was deleted meanwhile
	}
}

// step does what a change asks of a party. It returns the record once the party's meeting is there.
func (b *Barrier) step(ctx context.Context, own *barrierEntry, view *barrierView) (*barrierRecord, error) {
	if view.record.Barrier != b.n { // it has another use now, and the error says so
		return nil, b.present(ctx)
	}
	switch view.record.turn(own, view.list()) {
	case barrierMet:
		return &view.record, nil
	case barrierWrites:
		return b.write(ctx, own)
	default:
		return nil, nil
	}
}

// write writes a meeting down, if all are there in one strict read. If not, something has changed since
// the watch's last event, and the next one comes.
func (b *Barrier) write(ctx context.Context, own *barrierEntry) (*barrierRecord, error) {
	sem, err := describe(ctx, b.record.s, b.record.name, client.IncludeOwners())
	if err != nil || sem.Torn {
		return nil, err
	}
	var present barrierRecord
	if err := json.Unmarshal(sem.Data, &present); err != nil {
		return nil, err
	}
	next, complete := present.meeting(entriesOf(sem.Owners))
	if !complete || !next.has(own.Token) {
		return nil, nil
	}
	data, err := json.Marshal(next)
	if err != nil {
		return nil, err
	}
	_, err = b.record.s.Update(ctx, b.record.name, data, client.IfVersion(sem.Version))
	switch {
	case err == nil:
		return &next, nil
	case refused(err, client.ErrPreconditionFailed, client.ErrNotFound):
		return nil, nil // another party was faster, or it was deleted
	}
	return nil, driver.WithoutOp(err)
}

// barrierView is a barrier as the watch has told of it.
type barrierView struct {
	record  barrierRecord
	entries map[uint64]barrierEntry // by token
}

func (v *barrierView) apply(ev *client.Event) {
	switch {
	case ev.Kind == client.EventDeleted:
		v.record = barrierRecord{}
		clear(v.entries)
	case ev.Created || ev.DataChanged:
		v.record = barrierRecord{}
		_ = json.Unmarshal(ev.Data, &v.record) // invalid data leave generation 0, which completes nothing
	}
	for _, o := range ev.Removed {
		delete(v.entries, o.Token)
	}
	for _, p := range entriesOf(slices.Concat(ev.Added, ev.Updated)) {
		v.entries[p.Token] = p
	}
}

func (v *barrierView) list() []barrierEntry {
	list := make([]barrierEntry, 0, len(v.entries))
	for _, p := range v.entries {
		list = append(list, p)
	}
	return list
}

// entriesOf are the owners of units that are parties.
func entriesOf(owners []client.Owner) (list []barrierEntry) {
	for _, o := range owners {
		var p barrierEntry
		if json.Unmarshal(o.Data, &p.BarrierMember) == nil && p.Key != "" {
			p.Token = o.Token
			list = append(list, p)
		}
	}
	return list
}
