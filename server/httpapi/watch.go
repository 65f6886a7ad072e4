package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
)

// queueTime is how often a lock is read that a caller watches: its queue changes without an event.
const queueTime = 2 * time.Second

// shown is an answer to a read.
type shown struct {
	tag  string // its ETag: another one after each change
	kind string
	body []byte
}

// taggedDocument shows a document. What is added to its body later is not in the tag: ages change
// by themselves.
func taggedDocument(d document) *shown {
	body := encode(d)
	sum := sha256.Sum256(body)
	return &shown{tag: `"` + hex.EncodeToString(sum[:12]) + `"`, kind: jsonKind, body: body}
}

// watched is what a read shows, and how its changes are noticed.
type watched struct {
	x    *call
	read func(context.Context, []client.ReadOption) (*shown, error)
	// watch gives what has a value after each change from its call on. fail says why it ends.
	watch  func(ctx context.Context, fail context.CancelCauseFunc) <-chan struct{}
	period time.Duration // between reads, for changes without an event; 0: there are none
}

// answer answers with what read gives, and 304 if its tag is in If-None-Match. With wait it does so
// when another one is there, or at its end.
func (v watched) answer() error {
	x := v.x
	opts, wait := x.readOptions(), x.duration("wait")
	known := tags(x.r.Header.Values("If-None-Match"))
	for i, tag := range known { // they are compared weakly
		known[i] = strings.TrimPrefix(tag, "W/")
	}
	matches := func(now *shown) bool { return slices.Contains(known, now.tag) || isStar(known) }
	if len(known) > 0 {
		opts = []client.ReadOption{client.ReadConsistency(client.Strict)}
	} else if wait > 0 {
		return badRequest("wait is for a change: send the ETag that you know as If-None-Match")
	}
	var now *shown
	var err error
	if wait > 0 {
		now, err = v.share(x.ctx)
	} else {
		now, err = v.read(x.ctx, opts)
	}
	if err == nil && wait > 0 && matches(now) {
		now, err = v.next(now, wait, matches)
	}
	if err != nil {
		return err
	}
	x.w.Header().Set("ETag", now.tag)
	if matches(now) {
		x.status = http.StatusNotModified
		x.w.WriteHeader(x.status)
		return nil
	}
	if now.kind == bytesKind {
		x.w.Header().Set("Content-Disposition", "attachment")
	}
	writeBytes(x.w, http.StatusOK, now.kind, now.body)
	return nil
}

// tags are the ETags that a condition lists.
func tags(lines []string) []string {
	return strings.FieldsFunc(strings.Join(lines, ","), func(c rune) bool { return c == ',' || c == ' ' || c == '\t' })
}

// isStar reports whether a condition is for each version: a star within the tag of another server is
// none.
func isStar(tags []string) bool { return len(tags) == 1 && tags[0] == "*" }

// next waits until there is something that the caller does not know, and else returns the newest that
// was read.
func (v watched) next(now *shown, wait time.Duration, known func(*shown) bool) (*shown, error) {
	gone := v.x.r.Context().Done()
	ctx, fail := context.WithCancelCause(context.WithoutCancel(v.x.r.Context()))
	defer fail(nil)
	end := time.NewTimer(wait)
	defer end.Stop()
	var tick <-chan time.Time
	if v.period > 0 {
		t := time.NewTicker(v.period)
		defer t.Stop()
		tick = t.C
	}
	wake := v.watch(ctx, fail)
	for {
		select {
		case <-wake:
		case <-tick:
		case <-end.C:
			return now, nil
		case <-gone:
			return now, nil
		case <-v.x.api.ctx.Done():
			return nil, errClosing
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		next, err := v.share(ctx)
		if err != nil || !known(next) {
			return next, err
		}
		now = next
	}
}

// readKey is what all show alike who may read it with a token.
type readKey struct {
	callers    *callers
	route      *route
	node, name string
}

// sharedRead is a read for all that wanted one before it began: a change that thousands wait for is
// read a few times.
type sharedRead struct {
	read  func(context.Context) (*shown, error)
	done  chan struct{} // closed when shown or err is set
	shown *shown
	err   error
	next  *sharedRead // begins then; nil: nobody wants it. Guarded by API.mu.
}

// share is a strict read, for several callers at once. What a session sees is its own.
func (v watched) share(ctx context.Context) (*shown, error) {
	x, a := v.x, v.x.api
	opts := []client.ReadOption{client.ReadConsistency(client.Strict)}
	if x.s != nil || !x.route.reads {
		asked, end := context.WithTimeout(ctx, answerTimeout)
		defer end()
		return v.read(asked, opts)
	}
	key := readKey{x.conn.State, x.route, x.node, x.name}
	own := &sharedRead{done: make(chan struct{}),
		read: func(ctx context.Context) (*shown, error) { return v.read(ctx, opts) }}
	a.mu.Lock()
	switch now := a.reads[key]; {
	case now == nil:
		a.reads[key] = own
		go a.readAll(key, own)
	case now.next == nil:
		now.next = own
	default:
		own = now.next
	}
	a.mu.Unlock()
	select {
	case <-own.done:
		return own.shown, own.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// readAll reads until nobody wants it any more.
func (a *API) readAll(key readKey, r *sharedRead) {
	for r != nil {
		ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
		r.shown, r.err = r.read(ctx)
		cancel()
		a.mu.Lock()
		next := r.next
		if a.reads[key] = next; next == nil {
			delete(a.reads, key)
		}
		a.mu.Unlock()
		close(r.done)
		r = next
	}
}

// watchSemaphore follows a semaphore. The first value is about its present state, so nothing that
// changed between a read and the watch is missed.
func watchSemaphore(n *client.Node, name string) func(context.Context, context.CancelCauseFunc) <-chan struct{} {
	return func(ctx context.Context, fail context.CancelCauseFunc) <-chan struct{} {
		wake := make(chan struct{}, 1)
		n.WatchFunc(ctx, name, func(_ client.Event, err error) {
			if err != nil {
				fail(err)
			}
			select {
			case wake <- struct{}{}:
			default:
			}
		})
		return wake
	}
}
