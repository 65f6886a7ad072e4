package contexts

import (
	"context"
	"errors"
	"testing"
)

var errOver = errors.New("over")

// late is a lease that is over by the clock, and whose timer is late.
type late struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	over   bool
	asked  int // how often Held was asked
}

func newLate() *late {
	l := new(late)
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	return l
}

func (l *late) Context() context.Context {
	return &Checked{l.ctx, func() {
		if l.over {
			l.cancel(errOver)
		}
	}}
}

func (l *late) Held() bool {
	l.asked++
	return !l.over && l.asked > 2 // in doubt at first
}

// TestBothLooks: Err of what joins two contexts is right before the timer has come.
func TestBothLooks(t *testing.T) {
	l := newLate()
	both, end := Both(l.Context(), context.Background())
	defer end()
	if err := both.Err(); err != nil {
		t.Fatal(err)
	}
	l.over = true
	if both.Err() == nil || context.Cause(both) != errOver {
		t.Errorf("%v, because of %v", both.Err(), context.Cause(both))
	}
}

// TestCall: what is over is not worked on, what is in doubt is once that is decided.
func TestCall(t *testing.T) {
	l := newLate()
	work := func(context.Context) error {
		if !l.Held() {
			t.Error("it is not held")
		}
		return nil
	}
	if called, err := Call(context.Background(), l, work); !called || err != nil {
		t.Error(called, err)
	}
	l.over = true
	if called, err := Call(context.Background(), l, work); called || err != errOver {
		t.Error(called, err)
	}
	l = newLate()
	l.asked = -1 << 30
	ctx, cancel := context.WithCancelCause(context.Background())
	stopped := errors.New("stopped")
	cancel(stopped)
	if called, err := Call(ctx, l, work); called || err != stopped {
		t.Error(called, err)
	}
}
