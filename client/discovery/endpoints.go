package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/internal/access"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Defaults and bounds of Watch.
const (
	DefaultSubset     = 100
	defaultPanicShare = 30 // per cent
	defaultHold       = 10 * time.Second
	maxHold           = 5 * time.Minute
)

// lingerTime is how long a copy that nobody uses goes on, for its next user.
const lingerTime = 30 * time.Second

// WatchOption is an option of Watch.
type WatchOption func(*watchOptions)

type watchOptions struct {
	caller caller
	hold   time.Duration
}

func watchOptionsOf(opts []WatchOption) (watchOptions, error) {
	o := watchOptions{caller: caller{subset: DefaultSubset, panicShare: defaultPanicShare, id: rand.Uint64()},
		hold: defaultHold}
	for _, f := range opts {
		f(&o)
	}
	switch {
	case len(o.caller.zone) > maxZone:
		return o, protocol.Errorf(protocol.StatusBadRequest, "the zone has %d bytes; at most %d are allowed",
			len(o.caller.zone), maxZone)
	case o.caller.subset < 0:
		return o, protocol.Errorf(protocol.StatusBadRequest, "the subset is %d; it must be at least 0",
			o.caller.subset)
	case o.caller.panicShare < 0 || o.caller.panicShare > 100:
		return o, protocol.Errorf(protocol.StatusBadRequest,
			"the panic share is %d; it must be 0 to 100 per cent", o.caller.panicShare)
	case o.hold < 0 || o.hold > maxHold:
		return o, protocol.Errorf(protocol.StatusBadRequest, "the hold is %s; it must be 0 to %s", o.hold, maxHold)
	}
	return o, nil
}

// InZone names the caller's zone: it uses the endpoints of its zone alone, while that has two that
// are used, and half of its weight is ready.
func InZone(zone string) WatchOption { return func(o *watchOptions) { o.caller.zone = zone } }

// Subset is how many endpoints are used at most: 100 by default, all with 0. A caller keeps its
// random choice as the list changes, so that it need not connect to each of thousands.
func Subset(most int) WatchOption { return func(o *watchOptions) { o.caller.subset = most } }

// PanicShare is from which share of ready weight on, among ready and failing, failing endpoints are
// not used: 0 to 100 per cent, 30 by default. With 0 they are used only if none is ready.
func PanicShare(percent int) WatchOption {
	return func(o *watchOptions) { o.caller.panicShare = percent }
}

// Hold is how long after an interruption endpoints stay that go missing with it, if they are more
// than half of at least four, or all: 0 to 5 min, 10 s by default. After a long outage, and after a
// restore from a backup, it gives services the time to register again. What goes later goes at once.
func Hold(d time.Duration) WatchOption { return func(o *watchOptions) { o.hold = d } }

// View is the list of a service at one moment, and what a caller uses of it. It does not change.
type View struct {
	// All has the valid members, one for each address, by token. Used has those that this caller
	// uses, in the same order.
	All, Used []*Endpoint
	// Version rises with each View.
	Version uint64
	// Known is false until the first snapshot: the list is not empty then, it is not known.
	Known bool
	// Live is false while the cluster is away: the list is the last one that was known then. Since
	// is since when Live is as it is.
	Live  bool
	Since time.Time
	// Panic is set while failing endpoints are used.
	Panic bool
	// Ignored is how many members are left out, because their data is not that of an Endpoint.
	Ignored int

	caller  caller
	reasons func() *reasons // made when it is asked for
}

// ViewOf is the view that a caller has of these members. It is for programs that show it: who calls
// members needs Watch. Errors: an option out of range.
func ViewOf(members []client.Member, opts ...WatchOption) (*View, error) {
	o, err := watchOptionsOf(opts)
	if err != nil {
		return nil, err
	}
	var owners []client.Owner
	for _, m := range members {
		owners = append(owners, client.Owner{Token: m.Token, Count: 1, Data: m.Data})
	}
	now := time.Now()
	l := newList(now, o.hold)
	l.event(now, &client.Event{Kind: client.EventChanged, Added: owners})
	l.event(now, &client.Event{Kind: client.EventSynced})
	return l.current().view(o.caller), nil
}

// Reason reports whether the view's caller uses an endpoint of All, and why or why not.
func (v *View) Reason(e *Endpoint) (used bool, why string) { return v.reasons().of(e) }

// In is the view that a caller in another zone has of the same list.
func (v *View) In(zone string) *View {
	c := v.caller
	c.zone = zone
	return v.by(c)
}

// by is the view of a caller.
func (v *View) by(c caller) *View {
	of := *v
	of.caller = c
	of.Used, of.Panic = choose(v.All, c)
	of.reasons = sync.OnceValue(func() *reasons { return reasonsOf(of.All, c) })
	return &of
}

// Find is what a member's data says: an endpoint of All, or with leftOut why callers leave it out. e
// is nil where the data is not that of an Endpoint.
func (v *View) Find(m *client.Member) (e *Endpoint, leftOut string) {
	i, found := slices.BinarySearchFunc(v.All, m.Token, func(e *Endpoint, token uint64) int {
		return cmp.Compare(e.Token, token)
	})
	if found {
		return v.All[i], ""
	}
	e, err := ParseEndpoint(m.Data)
	if err != nil {
		return nil, err.Error()
	}
	return e, "a newer member has the address"
}

func (p *published) view(c caller) *View {
	v := &View{All: p.all, Version: p.version, Known: p.known, Live: p.live, Since: p.since, Ignored: p.ignored}
	return v.by(c)
}

// Stats counts what happened to a copy of a list.
type Stats struct {
	Views         uint64 // made
	Interruptions uint64 // of the stream
	Held          int    // endpoints that are missing since an interruption, and that stay for now
}

// ErrClosed is the error of Endpoints after their Close.
var ErrClosed = errors.New("the endpoints are closed")

// Endpoints is a copy of the members of a service, for one caller. While the cluster is away, the
// last known list stays. Handles of one client, node, service and Hold share the copy. Methods may
// be called at once.
type Endpoints struct {
	copy    *sharedCopy
	caller  caller
	changed chan struct{} // capacity 1
	closed  chan struct{}
	once    sync.Once

	mu   sync.Mutex
	of   *published // what view was made of
	view *View
}

// Watch follows the members of a service until Close, or until the client is closed. It returns at
// once: Wait waits for the first list. Errors: an option out of range.
func Watch(c *client.Client, node, service string, opts ...WatchOption) (*Endpoints, error) {
	o, err := watchOptionsOf(opts)
	switch {
	case err != nil:
		return nil, err
	case service == "":
		return nil, protocol.Errorf(protocol.StatusBadRequest, "the service's name is empty; give it one")
	}
	e := &Endpoints{caller: o.caller, changed: make(chan struct{}, 1), closed: make(chan struct{})}
	key, copies := copyKey{node, service, o.hold}, access.Client(c).Values
	for {
		fresh := newSharedCopy(c, key)
		x, _ := copies.LoadOrStore(key, fresh)
		if e.copy = x.(*sharedCopy); e.copy.add(e) {
			return e, nil
		}
		copies.CompareAndDelete(key, x) // it has just ended
	}
}

// Wait returns when the list is known. Before, it returns the error if nothing can be read, as
// client.ErrNotFound for a node that does not exist; it is tried again all the same. If ctx ends
// first, the error is ctx's.
func (e *Endpoints) Wait(ctx context.Context) error {
	for {
		out, updated := e.copy.now()
		switch {
		case e.isClosed():
			return ErrClosed
		case out.known:
			return nil
		case out.err != nil:
			return out.err
		}
		select {
		case <-updated:
		case <-e.closed:
		case <-ctx.Done():
			return fmt.Errorf("nothing is known of service %q in %s yet: %w", e.copy.key.service, e.copy.key.node,
				context.Cause(ctx))
		}
	}
}

// View is the present view.
func (e *Endpoints) View() *View {
	out, _ := e.copy.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.view == nil || out.version > e.of.version {
		e.of, e.view = out, out.view(e.caller)
	}
	return e.view
}

// Changed has a value after each change of the View. Changes that nobody has taken are one.
func (e *Endpoints) Changed() <-chan struct{} { return e.changed }

// Err says why nothing is read, if a node or a right is missing, or the client is closed. It is nil
// while the cluster is away: View says that.
func (e *Endpoints) Err() error {
	out, _ := e.copy.now()
	return out.err
}

// Stats counts what happened to the copy of the list.
func (e *Endpoints) Stats() Stats {
	e.copy.mu.Lock()
	defer e.copy.mu.Unlock()
	l := e.copy.list
	return Stats{Views: l.version, Interruptions: l.interruptions, Held: len(l.held)}
}

// Close ends the handle. 30 s after the last one of a copy the cluster is not asked any more.
func (e *Endpoints) Close() {
	e.once.Do(func() {
		close(e.closed)
		e.copy.remove(e)
	})
}

func (e *Endpoints) isClosed() bool {
	select {
	case <-e.closed:
		return true
	default:
		return false
	}
}
