package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/discovery"
	"github.com/signalbox-dev/signalbox/client/gateway"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/protocol"
)

const (
	maxEntries  = 1000 // owners and waiters of a description
	defaultPage = 100  // names of a list
	maxPage     = 1000
	maxShown    = 4 << 20 // bytes of data in a document
	maxPages    = 16      // of a description, about a megabyte each
)

// owners describes who holds something. Of their data as much is shown as room has bytes left.
func owners(list []client.Owner, room *int) []document {
	out := make([]document, len(list))
	for i, o := range list {
		d := document{"token": o.Token, "count": count(o.Count), "holder": o.Description, "since": timeText(o.Since),
			"session_id": idText(o.Session), "preempted": o.Preempted}
		if len(o.Slots) > 0 {
			d["slots"] = o.Slots
		}
		if room != nil {
			d["data_len"] = len(o.Data)
			if *room -= len(o.Data); *room >= 0 {
				setBytes(d, "data", o.Data)
			} else {
				*room += len(o.Data)
			}
		}
		out[i] = d
	}
	return out
}

func getLock(x *call) error {
	if x.r.Header.Get(sessionHeader) != "" {
		if err := x.open(0, ""); err != nil {
			return err
		}
		defer x.s.leave()
	}
	return watched{x, x.readLock, watchSemaphore(x.n, x.name), queueTime}.answer()
}

// readLock describes a lock.
func (x *call) readLock(ctx context.Context, opts []client.ReadOption) (*shown, error) {
	d := document{"node": x.node, "exists": false, "owners": []document{}, "waiters": []document{}}
	setBytes(d, "name", []byte(x.name))
	sem, err := describe(ctx, x.n, x.name, opts...)
	if errors.Is(err, client.ErrNotFound) {
		return taggedDocument(d), nil
	}
	if err != nil {
		return nil, err
	}
	room, waits, session := maxShown, false, uint64(0)
	if x.s != nil {
		session = x.s.native.ID()
	}
	waiters := make([]document, len(sem.Waiters))
	for i, w := range sem.Waiters {
		waits = waits || w.Session == session
		waiters[i] = document{"position": i + 1, "count": count(w.Count), "holder": w.Description,
			"since": timeText(w.Since), "session_id": idText(w.Session)}
	}
	d["exists"], d["ephemeral"], d["used"], d["limit"] = true, sem.Ephemeral, count(sem.Used), count(sem.Limit)
	d["num_owners"], d["num_waiters"] = sem.NumOwners, sem.NumWaiters
	d["owners"], d["waiters"] = owners(sem.Owners, &room), waiters
	sh := taggedDocument(d)
	if waits {
		if w, err := x.n.ExplainWait(ctx, x.name, session); err == nil && w.Waiting {
			d["why"] = quoted.Explain(x.name, session, w)
			sh.body = encode(d)
		}
	}
	return sh, nil
}

// describe reads a semaphore with its first owners and waiters, which may have much data: a page of
// them ends with a megabyte.
func describe(
	ctx context.Context, n *client.Node, name string, opts ...client.ReadOption,
) (*client.Semaphore, error) {
	sem := new(client.Semaphore)
	for page := range maxPages {
		seen, last := len(sem.Owners)+len(sem.Waiters), uint64(0)
		read := append(opts[:len(opts):len(opts)], client.IncludeWaiters(), client.MaxItems(maxEntries-seen))
		if k := len(sem.Owners); page == 0 {
			read = append(read, client.IncludeOwners())
		} else if k > 0 && uint64(k) < sem.NumOwners {
			read = append(read, client.IncludeOwners(), client.AfterToken(sem.Owners[k-1].Token))
		} else {
			if k = len(sem.Waiters); k > 0 {
				last = sem.Waiters[k-1].Place
			}
			read = append(read, client.AfterToken(last))
		}
		next, err := n.Describe(ctx, name, read...)
		if err != nil {
			return nil, err
		}
		next.Owners, next.Waiters = append(sem.Owners, next.Owners...), append(sem.Waiters, next.Waiters...)
		sem = next
		all := len(sem.Owners) + len(sem.Waiters)
		if all == seen || all >= maxEntries || uint64(all) >= sem.NumOwners+sem.NumWaiters {
			break
		}
	}
	return sem, nil
}

// quoted quotes other clients' texts in the sentences of why.
var quoted = gateway.Words{
	Session: func(id uint64, description string) string { return fmt.Sprintf("Session %d (%s)", id, description) },
	Name:    strconv.Quote,
	Data:    func(data []byte) string { return strconv.Quote(string(data)) },
}

func listLocks(x *call) error {
	most := int(min(cmp.Or(x.number("limit"), defaultPage), maxPage+1))
	if most > maxPage {
		return badRequest("limit is %s; give 1 to %d", x.query.Get("limit"), maxPage)
	}
	opts := x.readOptions()
	if after := x.query.Get("after"); after != "" {
		opts = append(opts, client.After(after))
	}
	opts = append(opts, client.MaxItems(most+1))
	list := []document{}
	d := document{"node": x.node}
	last := ""
	for info, err := range x.n.List(x.ctx, x.query.Get("prefix"), opts...) {
		if err != nil {
			return err
		}
		if len(list) == most {
			setBytes(d, "next", []byte(last))
			break
		}
		item := document{"ephemeral": info.Ephemeral, "used": count(info.Used), "limit": count(info.Limit),
			"num_owners": info.NumOwners, "num_waiters": info.NumWaiters}
		setBytes(item, "name", []byte(info.Name))
		list, last = append(list, item), info.Name
	}
	d["locks"] = list
	return x.write(http.StatusOK, d)
}

// etag is the ETag of a version of a configuration.
func etag(version uint64) string { return `"` + strconv.FormatUint(version, 10) + `"` }

// conditions are those of a write of a configuration, by RFC 9110. again says that another version
// than that which is there now may do as well.
func (x *call) conditions(c *client.ConfigValue) (opts []client.WriteOption, again bool, err error) {
	match, none := x.r.Header.Values("If-Match"), x.r.Header.Values("If-None-Match")
	known := tags(match)
	switch {
	case len(match) > 0 && len(none) > 0:
		return nil, false, badRequest("If-Match and If-None-Match are both given; give one of them")
	case len(none) > 0 && (len(none) > 1 || none[0] != "*"):
		return nil, false, badRequest("If-None-Match is %q; a write takes * alone", strings.Join(none, ", "))
	case len(none) > 0:
		return []client.WriteOption{client.IfVersion(0)}, false, nil
	case len(match) == 0:
		return nil, false, nil
	case len(known) == 0:
		return nil, false, badRequest("If-Match is empty; give the ETag of the version to replace, or *")
	}
	if version, ok := versionOf(known[0]); ok && len(known) == 1 {
		return []client.WriteOption{client.IfVersion(version)}, false, nil
	}
	v, err := c.Get(x.ctx, client.ReadConsistency(client.Strict))
	switch {
	case errors.Is(err, client.ErrNotFound):
		return nil, false, x.versionMismatch(c, "the configuration does not exist")
	case err != nil:
		return nil, false, err
	case !isStar(known) && !slices.Contains(known, etag(v.Version)):
		return nil, false, x.versionMismatch(c, "If-Match is %s, and the version is %s", strings.Join(known, ", "), etag(v.Version))
	}
	return []client.WriteOption{client.IfVersion(v.Version)}, true, nil
}

// versionOf is the version that an ETag names.
func versionOf(tag string) (uint64, bool) {
	version, err := strconv.ParseUint(strings.Trim(tag, `"`), 10, 64)
	return version, err == nil && version != 0 && tag == etag(version)
}

// versionMismatch answers 412 with the present version.
func (x *call) versionMismatch(c *client.ConfigValue, format string, args ...any) error {
	p := problemf(http.StatusPreconditionFailed, "version_mismatch", format, args...)
	if v, err := c.Get(x.ctx); err == nil || errors.Is(err, client.ErrNotFound) {
		p.more = document{"version": v.Version} // 0: there is none
	}
	return p
}

func getConfig(x *call) error {
	read := func(ctx context.Context, opts []client.ReadOption) (*shown, error) {
		v, err := x.n.Config(x.name).Get(ctx, opts...)
		return &shown{tag: etag(v.Version), kind: bytesKind, body: v.Data}, err
	}
	return watched{x, read, watchSemaphore(x.n, client.ConfigPrefix+x.name), 0}.answer()
}

// changeConfig sets a configuration to the body, or deletes it, with a session of the gateway.
func changeConfig(x *call) error {
	s, release, err := x.conn.Limiters.Session(x.ctx, x.node)
	if err != nil {
		return err
	}
	defer release()
	c, d := s.Config(x.name), document{"deleted": true}
	for {
		opts, again, err := x.conditions(c)
		if err != nil {
			return err
		}
		if version := uint64(0); x.route.body {
			if version, err = c.Set(x.ctx, x.body, opts...); err == nil {
				x.w.Header().Set("ETag", etag(version))
				d = document{"version": version}
			}
		} else {
			err = c.Delete(x.ctx, opts...)
		}
		switch mismatch := errors.Is(err, client.ErrPreconditionFailed) && len(opts) > 0; {
		case mismatch && again: // it has changed since it was read
		case mismatch:
			return x.versionMismatch(c, "%s", words[protocol.RefusalOtherVersion])
		case err != nil:
			return err
		default:
			return x.write(http.StatusOK, d)
		}
	}
}

// getService lists the members of a service, from a copy that goes on through outages of the
// cluster.
func getService(x *call) error {
	e, err := discovery.Watch(x.conn.Client, x.node, x.name, discovery.InZone(x.query.Get("zone")))
	if err != nil {
		return badRequest("%s", err)
	}
	defer e.Close() // the copy stays for a while
	if err := e.Wait(x.ctx); err != nil {
		return err
	}
	changed := func(context.Context, context.CancelCauseFunc) <-chan struct{} { return e.Changed() }
	read := func(context.Context, []client.ReadOption) (*shown, error) {
		v := e.View()
		list := make([]document, len(v.All))
		for i, m := range v.All {
			used, why := v.Reason(m)
			list[i] = document{"addr": m.Addr, "zone": m.Zone, "weight": m.Weight, "state": m.State,
				"why": cmp.Or(m.Why, why), "token": m.Token, "used": used, "meta": m.Meta}
			if m.Meta == nil {
				list[i]["meta"] = document{}
			}
		}
		d := document{"service": x.name, "node": x.node, "endpoints": list, "live": v.Live, "panic": v.Panic,
			"ignored": v.Ignored}
		sh := taggedDocument(d)
		if d["age_ms"] = 0; !v.Live {
			d["age_ms"] = max(0, time.Since(v.Since).Milliseconds())
		}
		sh.body = encode(d)
		return sh, nil
	}
	return watched{x, read, changed, 0}.answer()
}

// takeUnits takes units of a rate limit.
func takeUnits(x *call) error {
	units, wait := max(x.number("units"), 1), x.duration("wait")
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.r.Context()), wait+answerTimeout)
	defer cancel()
	defer context.AfterFunc(x.api.ctx, cancel)()
	if wait > 0 { // it is over when the caller has gone
		defer context.AfterFunc(x.r.Context(), cancel)()
	}
	err := x.conn.Limiters.Do(x.ctx, x.node, x.name, func(l *ratelimit.Limiter) error {
		ok, err := l.WaitAtMost(ctx, units, wait)
		if !ok && err == nil && wait > 0 { // the server says when its turn would be
			asked, done := context.WithTimeout(ctx, time.Second)
			ok, err = l.WaitAtMost(asked, units, 0)
			if !ok && asked.Err() != nil { // it does not answer: what is known here has to do
				err = ctx.Err()
			}
			done()
		}
		if ok || err != nil && (ctx.Err() == nil || x.api.ctx.Err() != nil) {
			return err
		}
		p := problemf(http.StatusTooManyRequests, "limited", "the rate limit %q has no %d units now", x.name, units)
		retry, err := l.RetryAfter(units)
		if err != nil {
			return err
		}
		p.retry = max(retry, time.Millisecond)
		p.more = document{"retry_after_ms": p.retry.Milliseconds()}
		return p
	})
	switch {
	case err != nil && x.api.ctx.Err() != nil:
		return errClosing
	case err != nil:
		return err
	}
	return x.write(http.StatusOK, document{"admitted": true, "units": units, "waited_ms": x.waited()})
}
