package client

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestRestoreRetries: a restore is tried under one epoch and one nonce until it is answered, and
// given up with its context. The same client may go on with it; any other restore of the same state
// is another heir's.
func TestRestoreRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		old := f.sessionIn(t, c, 0)
		saved := old.Save()
		bad, lost := 3, false
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind == protocol.KindSessionAttach && bad != 0 {
					bad--
					fc.fail(h, protocol.StatusUnavailable)
					return true
				}
				if h.Kind == protocol.KindSessionAttach && lost { // applied, and the answer is lost
					m := decode[protocol.SessionAttach](t, h.Body)
					f.epochs[m.Session], f.nonces[m.Session] = m.Epoch, m.Nonce
					return true
				}
				return false
			}
		})
		s, err := c.Restore(bg, saved)
		if err != nil {
			t.Fatal(err)
		}
		attaches := func(from int) (list []protocol.SessionAttach) {
			for _, r := range f.all(protocol.KindSessionAttach) {
				if m := decode[protocol.SessionAttach](t, r.body); m.Epoch >= 1<<32 { // not the first holder's
					list = append(list, m)
				}
			}
			return list[from:]
		}
		first := attaches(0)
		if len(first) != 4 || first[0].Epoch != 1<<32+1 || string(first[0].Key) != string(saved.Key) || s.Save().Generation != 1 {
			t.Fatalf("%+v", first)
		}
		for _, m := range first {
			if m.Epoch != first[0].Epoch || m.Nonce != first[0].Nonce || m.Nonce == 0 {
				t.Fatalf("%+v", first)
			}
		}
		if _, err := s.Update(bg, "x", nil); err != nil {
			t.Fatal(err)
		}
		if m := decode[protocol.Update](t, f.all(protocol.KindUpdate)[0].body); m.Seq != 1<<40+1 || m.Low != m.Seq {
			t.Fatalf("%+v", m)
		}
		// Behind what was sent more than once an epoch is left out. The nonce stays that of the
		// holder.
		f.drop()
		time.Sleep(time.Second) // of the bubble
		synctest.Wait()
		if m := attaches(4); len(m) != 1 || m[0].Epoch != 1<<32+3 || m[0].Nonce != first[0].Nonce || s.Err() != nil {
			t.Fatalf("%+v, %v", m, s.Err())
		}
		// Another heir of the same state.
		if _, err := c.Restore(bg, saved); !errors.Is(err, BadSession) {
			t.Fatal(err)
		}
		if m := attaches(5); len(m) != 1 || m[0].Epoch != 1<<32+1 || m[0].Nonce == first[0].Nonce {
			t.Fatalf("%+v", m)
		}
		// What the heir saved is good. The restore is given up, and then gone on with.
		saved = s.Save()
		f.set(func() { lost = true })
		ctx, cancel := brief()
		defer cancel()
		if _, err := c.Restore(ctx, saved); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		f.set(func() { lost = false })
		r, err := c.Restore(bg, saved)
		if err != nil {
			t.Fatal(err)
		}
		m := slices.DeleteFunc(attaches(6), func(m protocol.SessionAttach) bool { return m.Epoch < 2<<32 }) // the first heir's, in vain
		if len(m) != 2 || m[0].Epoch != 2<<32+1 || m[1].Epoch != m[0].Epoch || m[1].Nonce != m[0].Nonce ||
			m[0].Nonce == first[0].Nonce || r.Save().Generation != 2 {
			t.Fatalf("%+v", m)
		}
		if _, err := c.Restore(bg, saved); !errors.Is(err, BadSession) {
			t.Fatal(err)
		}
		f.set(func() { bad = -1 })
		ctx, cancel = brief()
		defer cancel()
		if _, err := c.Restore(ctx, saved); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, Unavailable) {
			t.Fatal(err)
		}
		if _, err := c.Restore(bg, Saved{Node: "/n", Session: 1}); err == nil {
			t.Fatal("a key of no bytes was taken")
		}
	})
}
