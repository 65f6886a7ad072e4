package membership

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// updateRecorder is a cluster that takes an instance for dead some times after it has said that it
// is there.
type updateRecorder struct {
	deaf int // so often
	err  error
	said int
}

func (l *updateRecorder) UpdateInstance(_ context.Context, c meta.InstanceUpdate) (meta.Instance, error) {
	l.said++
	i := meta.Instance{ID: c.Instance, Target: meta.InstanceState{Variant: c.Target, Incarnation: uint64(l.said)}}
	if l.said <= l.deaf {
		i.Target.Variant = meta.Offline
	}
	return i, l.err
}

// TestRegisterInstance: an instance that is taken for dead between its first words and the moment
// at which it could know that they were heard says them again.
func TestRegisterInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		words := meta.InstanceUpdate{Instance: 7, Target: meta.Online, Start: true}
		for _, deaf := range []int{0, 1, 5} {
			l := &updateRecorder{deaf: deaf}
			i, err := registerInstance(t.Context(), l, words)
			if err != nil || i.Target != (meta.InstanceState{Variant: meta.Online, Incarnation: uint64(deaf + 1)}) || l.said != deaf+1 {
				t.Errorf("taken for dead %d times: %+v, %v, said %d times", deaf, i.Target, err, l.said)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := registerInstance(ctx, &updateRecorder{deaf: 1 << 30}, words); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("never heard: %v", err)
		}
		refusal := errors.New("no")
		l := &updateRecorder{err: refusal}
		if _, err := registerInstance(t.Context(), l, words); !errors.Is(err, refusal) || l.said != 1 {
			t.Errorf("refused: %v, said %d times", err, l.said)
		}
	})
}
