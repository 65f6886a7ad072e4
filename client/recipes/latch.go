package recipes

import (
	"context"
	"slices"
	"unicode/utf8"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Limits of a latch.
const (
	maxLatch     = 1000 // of its count
	maxLatchKeys = 64   // bytes of a key
)

// Latch opens when a number of keys are done, for good: all shards are imported, all workers have
// started. The state is the data of a semaphore of the name, with the limit 1, that stays; who deletes
// it starts over.
type Latch struct {
	record sharedRecord[latchRecord]
	n      int
}

// latchRecord is the data of a latch's semaphore.
type latchRecord struct {
	Latch int      `json:"latch"` // how many keys open it
	Done  []string `json:"done"`
}

// NewLatch is the latch with this name on the session's node, which opens when n keys are done, 1 to
// 1,000.
func NewLatch(s *client.Session, name string, n int) *Latch {
	valid := func(r *latchRecord) bool { return r.Latch > 0 }
	return &Latch{sharedRecord[latchRecord]{s, name, "latch", 1, valid}, n}
}

// CountDown says that a key is done, 1 to 64 bytes of UTF-8. A key counts once, however often it is
// said: after a lost answer, or by a program that was started again. Errors: ErrBadRequest for a
// wrong key or count; ErrPreconditionFailed if the semaphore has another use, or the latch another
// count; those of Session.Update.
func (l *Latch) CountDown(ctx context.Context, key string) error {
	err := l.check()
	if err == nil && (len(key) == 0 || len(key) > maxLatchKeys || !utf8.ValidString(key)) {
		err = protocol.Errorf(protocol.StatusBadRequest, "key is %q; it must be 1 to %d bytes of UTF-8", key, maxLatchKeys)
	}
	if err == nil {
		err = l.record.change(ctx, func(r *latchRecord, exists bool) (bool, error) { return l.count(r, exists, key) })
	}
	return driver.WithOp("count down", l.record.name, err)
}

// count counts a key, and reports whether the record changes.
func (l *Latch) count(r *latchRecord, exists bool, key string) (changed bool, err error) {
	if !exists {
		r.Latch = l.n
	}
	if err := l.checkRecord(r); err != nil || slices.Contains(r.Done, key) || len(r.Done) >= l.n {
		return false, err
	}
	r.Done = append(r.Done, key)
	return true, nil
}

// Done reads the keys that are done, in the order in which they came. Those that come when the latch is
// open are not kept. Errors: as CountDown.
func (l *Latch) Done(ctx context.Context) ([]string, error) {
	err := l.check()
	var r latchRecord
	if err == nil {
		if r, _, err = l.record.read(ctx); err == nil && r.Latch > 0 {
			err = l.checkRecord(&r)
		}
	}
	return r.Done, driver.WithOp("read", l.record.name, err)
}

// Wait returns nil once the latch is open. Errors: that of ctx, or of the session when it ends; as
// CountDown.
func (l *Latch) Wait(ctx context.Context) error {
	err := l.check()
	if err == nil {
		err = l.record.await(ctx, l.isOpen)
	}
	return driver.WithOp("wait for", l.record.name, err)
}

func (l *Latch) isOpen(r *latchRecord) (bool, error) {
	if r.Latch == 0 {
		return false, nil // no party has begun
	}
	return len(r.Done) >= l.n, l.checkRecord(r)
}

func (l *Latch) check() error {
	if l.n < 1 || l.n > maxLatch {
		return protocol.Errorf(protocol.StatusBadRequest, "latch counts %d keys; it must be 1 to %d", l.n, maxLatch)
	}
	return nil
}

func (l *Latch) checkRecord(r *latchRecord) error {
	if r.Latch != l.n {
		return protocol.Errorf(protocol.StatusPreconditionFailed,
			"the latch counts %d keys, not %d; use one count, or delete its semaphore to start over", r.Latch, l.n)
	}
	return nil
}
