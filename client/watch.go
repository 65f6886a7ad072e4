package client

import (
	"context"
	"iter"

	"github.com/signalbox-dev/signalbox/client/internal/core"
	"github.com/signalbox-dev/signalbox/client/internal/handle"
	"github.com/signalbox-dev/signalbox/protocol"
)

// EventKind says what an Event of a watch is.
type EventKind uint8

const (
	// EventChanged: the semaphore is as the event says. Created to Removed say what changed since
	// the last event about it.
	EventChanged EventKind = 1
	// EventDeleted: the semaphore and its owners are gone.
	EventDeleted EventKind = 2
	// EventSynced: everything that existed when the watch began, or resumed, has been delivered.
	EventSynced EventKind = 3
	// EventInterrupted: the stream is lost, and the delivered state may be stale from now on. It comes
	// once for each interruption, before the watch resumes. The events up to the next EventSynced are
	// the differences to that state. Changes that were undone in between are missing.
	EventInterrupted EventKind = 4
)

// Event is a step of a watch. Steps of one semaphore that a slow consumer has not taken yet are
// merged. Its slices must not be changed.
type Event struct {
	Kind EventKind
	Name string

	Created      bool // the semaphore was not known before this event
	DataChanged  bool
	LimitChanged bool
	Data         []byte
	Version      uint64
	Limit        uint64
	Ephemeral    bool

	Added   []Owner // by token
	Updated []Owner // with another count or data
	Removed []Owner // as last delivered
}

// WatchOption is an option of Watch and WatchFunc.
type WatchOption func(*watchOptions)

type watchOptions = core.Watch

// Prefix watches all semaphores whose name begins with the given one, which may be empty. Events of
// different shards have no order.
func Prefix() WatchOption { return func(o *watchOptions) { o.Prefix = true } }

// Watch yields the state of a semaphore, which need not exist yet, and then every change, until ctx
// ends. It resumes by itself when the connection is lost. The last pair carries the error that
// ended it: ctx's, ErrNotFound when the node was dropped, ErrForbidden. A watch that a limit keeps
// from being opened is tried until ctx ends; the error then names the limit. A program that waits
// for one change leaves the loop with it.
//
// A consumer that stops taking events costs at most the memory of two copies of the state.
func (n *Node) Watch(ctx context.Context, name string, opts ...WatchOption) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		w, err := n.newWatch(name, opts)
		if err != nil {
			yield(Event{}, err)
			return
		}
		for ev, err := range n.c.d.Watch(ctx, w) {
			if err != nil {
				yield(Event{}, withOp("watch", name, err))
				return
			}
			if !yield(eventOf(&ev), nil) {
				return
			}
		}
	}
}

// WatchFunc is [Node.Watch] for programs with thousands of watches: it calls a function with each
// step instead of blocking a goroutine. It returns at once. The watch goes on until ctx ends; the
// last call carries the error that ended it, as the last pair of Watch does.
//
// The calls of one watch do not overlap; those of different watches may. The functions of a client
// mostly share a goroutine, so one that blocks delays other watches. Close and CloseWithoutRelease
// return after the last calls: a function may use the client, but must not close it, nor wait for
// another goroutine that does. A watch that is started on a closed client gets its last call at
// once.
func (n *Node) WatchFunc(ctx context.Context, name string, step func(Event, error), opts ...WatchOption) {
	w, err := n.newWatch(name, opts)
	if err != nil {
		go step(Event{}, err)
		return
	}
	n.c.d.WatchFunc(ctx, w, func(ev core.WatchEvent, err error) {
		if err != nil {
			step(Event{}, withOp("watch", name, err))
			return
		}
		step(eventOf(&ev), nil)
	})
}

// newWatch is a watch that is not begun yet.
func (n *Node) newWatch(name string, opts []WatchOption) (*core.Watch, error) {
	w := &core.Watch{Node: n.h.ID, Tier: n.h.Tier, Name: name}
	for _, f := range opts {
		f(w)
	}
	if name == "" && !w.Prefix {
		return nil, withOp("watch", name, handle.ErrNoSemaphore)
	}
	return w, nil
}

func eventOf(ev *core.WatchEvent) Event {
	return Event{
		Kind: EventKind(ev.Kind), Name: ev.Name, Created: ev.Created, DataChanged: ev.DataChanged,
		LimitChanged: ev.LimitChanged,
		Data:         ev.Data, Version: ev.Version, Limit: ev.Limit, Ephemeral: ev.Ephemeral,
		Added: eventOwners(ev.Added), Updated: eventOwners(ev.Updated), Removed: eventOwners(ev.Removed),
	}
}

func eventOwners(list []protocol.Owner) []Owner {
	if len(list) == 0 {
		return nil
	}
	owners := make([]Owner, len(list))
	for i := range list {
		owners[i] = ownerOf(&list[i])
	}
	return owners
}
