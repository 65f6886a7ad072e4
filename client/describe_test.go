package client

import (
	"encoding/binary"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestDescriptionPages: a description has all owners, from AfterToken on, however many pages they
// take; MaxItems bounds it. A description with a one-shot watch is read in the same way.
func TestDescriptionPages(t *testing.T) {
	for name, c := range map[string]struct {
		opts []ReadOption
		want []uint64
	}{
		"all":           {nil, []uint64{1, 2, 3, 4, 5}},
		"after a token": {[]ReadOption{AfterToken(1)}, []uint64{2, 3, 4, 5}},
		"at most":       {[]ReadOption{MaxItems(1)}, []uint64{1}},
		"both":          {[]ReadOption{AfterToken(2), MaxItems(1)}, []uint64{3}},
	} {
		t.Run(name, func(t *testing.T) {
			testDescription(t, c.want, func(s *Session) (*Semaphore, error) {
				return s.Describe(bg, nameIn(1), append(c.opts, IncludeOwners())...)
			})
		})
	}
	t.Run("watch", func(t *testing.T) {
		testDescription(t, []uint64{1}, func(s *Session) (*Semaphore, error) {
			sem, fired, err := s.WatchOnce(bg, nameIn(1), OnOwners, MaxItems(1), IncludeOwners())
			if fired == nil {
				t.Error("there is no watch")
			}
			return sem, err
		})
	})
}

// testDescription describes a semaphore with owners 1 to 5, of which a page has two at most.
func testDescription(t *testing.T, want []uint64, describe func(*Session) (*Semaphore, error)) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		s := f.sessionIn(t, f.open(t), 0)
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind != protocol.KindDescribe {
					return false
				}
				m := decode[protocol.Describe](f.t, h.Body)
				reply := &protocol.DescribeReply{Index: 1, Revision: 1, Name: m.Name, NumOwners: 5}
				next, most := uint64(1), 2
				if len(m.Cursor) > 0 {
					next = binary.BigEndian.Uint64(m.Cursor[1:]) + 1
				}
				if m.Limit > 0 {
					most = min(most, int(m.Limit))
				}
				for ; next <= 5 && len(reply.Owners) < most; next++ {
					reply.Owners = append(reply.Owners, protocol.Owner{OrderID: next})
				}
				if next <= 5 {
					reply.Cursor = protocol.DescribeCursor(true, next-1)
				}
				fc.reply(h, reply)
				return true
			}
		})
		sem, err := describe(s)
		if err != nil {
			t.Fatal(err)
		}
		var got []uint64
		for _, o := range sem.Owners {
			got = append(got, o.Token)
		}
		if !slices.Equal(got, want) {
			t.Errorf("owners are %v, want %v", got, want)
		}
	})
}

// TestReadIndexesOverAMove: what is read while a bucket moves is recorded under the shard that was
// asked, and a shard is asked for the index that was read from it: another one's means nothing.
func TestReadIndexesOverAMove(t *testing.T) {
	for name, describe := range map[string]func(*Session) error{
		"describe": func(s *Session) error {
			_, err := s.Describe(bg, nameIn(1), IncludeOwners())
			return err
		},
		"watch": func(s *Session) error {
			_, _, err := s.WatchOnce(bg, nameIn(1), OnOwners, IncludeOwners())
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t)
				c := f.open(t)
				s := f.sessionIn(t, c, 0)
				pages, answer := 0, make(chan func(), 1)
				f.set(func() {
					f.on = func(fc *fakeConn, h protocol.Header) bool {
						if h.Kind != protocol.KindDescribe {
							return false
						}
						m := decode[protocol.Describe](f.t, h.Body)
						reply := &protocol.DescribeReply{Index: 100, Revision: 1, Name: m.Name, NumOwners: 1}
						if pages++; pages == 1 { // it comes when the bucket has moved
							reply.Cursor = protocol.DescribeCursor(true, 1)
							answer <- func() { fc.reply(h, reply) }
							return true
						}
						if m.MinIndex != 0 {
							t.Errorf("the new shard is asked for index %d", m.MinIndex)
						}
						reply.Index = 1000
						fc.reply(h, reply)
						return true
					}
				})
				described := make(chan error, 1)
				go func() { described <- describe(s) }()
				first := <-answer
				f.set(func() { f.version, f.moved = 2, map[uint64]uint64{1: 3} })
				if _, err := c.refreshMap(bg, c.routes.Load()); err != nil {
					t.Fatal(err)
				}
				f.set(first)
				if err := <-described; err != nil {
					t.Fatal(err)
				}
				if old, next := c.readIndex(2).Load(), c.readIndex(3).Load(); old != 100 || next != 1000 {
					t.Errorf("shard 2 was read at index %d and shard 3 at %d", old, next)
				}
			})
		})
	}
}
