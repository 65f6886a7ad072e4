package discovery

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var errWrite = errors.New("the write failed")

// failingWrites is a server whose writes fail, now and then: they are refused, or have their effect and
// the answer is lost.
type failingWrites struct {
	mu     sync.Mutex
	rng    *rand.Rand
	fails  bool
	failed int
	data   string // that others see
}

func (f *failingWrites) random(n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rng.IntN(n)
}

func (f *failingWrites) update(_ context.Context, data []byte) error {
	time.Sleep(time.Duration(f.random(1500)) * time.Millisecond)
	what := f.random(4)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.fails || what > 1 {
		f.data = string(data)
		return nil
	}
	if f.failed++; what == 1 {
		f.data = string(data)
	}
	return errWrite
}

// TestFailedWritesAreRepeated: whatever writes fail, at whatever moment and with whatever effect, in
// the end others see the state and the data that the member has, and State says so.
func TestFailedWritesAreRepeated(t *testing.T) {
	t.Parallel()
	failed := 0
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			f := &failingWrites{rng: rand.New(rand.NewPCG(seed, 0)), fails: true}
			e := Endpoint{Addr: "10.0.0.1:80"}
			r := &Registration{
				present: newPresent(e), log: slog.New(slog.DiscardHandler), update: f.update, changed: make(chan struct{}, 1),
				writing: make(chan struct{}, 1),
			}
			encoded := func() string {
				r.mu.Lock()
				defer r.mu.Unlock()
				data, err := r.present.get().encode(&r.status)
				if err != nil {
					t.Error(err)
				}
				return string(data)
			}
			f.data = encoded()
			r.noteWritten(e, 0, &r.status)
			go r.write(ctx)
			for range 8 {
				switch f.random(5) {
				case 0:
					r.observe(func(s *status) { s.drained = []string{"by a test", ""}[f.random(2)] })
				case 1, 2:
					r.observe(func(s *status) { s.health.failing, s.health.why = !s.health.failing, "no disk" })
				case 3, 4: // while another write is under way, or not
					if f.random(2) == 0 {
						r.observe(func(s *status) { s.drained = []string{"by a test", ""}[f.random(2)] })
						time.Sleep(time.Millisecond)
					}
					e.Weight = 1 + f.random(90)
					ctx, cancel := context.WithTimeout(ctx, time.Duration(1+f.random(1000))*time.Millisecond)
					if err := r.Update(ctx, e); err != nil && !errors.Is(err, errWrite) && ctx.Err() == nil {
						t.Error(err)
					}
					cancel()
				}
				time.Sleep(time.Duration(f.random(8000)) * time.Millisecond)
			}
			f.mu.Lock()
			f.fails = false
			f.mu.Unlock()
			time.Sleep(3 * stateInterval)
			synctest.Wait()
			state, _ := r.status.now("", "")
			if want := encoded(); f.data != want || r.State() != state {
				t.Errorf("seed %d: others see %s, and the member has %s; State says %s", seed, f.data, want, r.State())
			}
			failed += f.failed
			stop()
			synctest.Wait()
		})
	}
	if failed < 300 {
		t.Errorf("%d writes failed: the test does not try it", failed)
	}
}
