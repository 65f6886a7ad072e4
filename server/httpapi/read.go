package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/discovery"
	"github.com/signalbox-dev/signalbox/client/gateway"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
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
	n, err := x.conn.Client.Node(x.ctx, x.node)
	if err != nil {
		return err
	}
	if x.r.Header.Get(sessionHeader) != "" {
		s, err := x.session(0, "")
		if err != nil {
			return err
		}
		defer s.leave()
		x.explain = s.native.ID()
	}
	read := func(ctx context.Context, opts []client.ReadOption) (*shown, error) { return x.readLock(ctx, n, opts) }
	return watched{x, read, watchSemaphore(n, x.name), queueTime}.answer()
}

// readLock describes a lock.
func (x *call) readLock(ctx context.Context, n *client.Node, opts []client.ReadOption) (*shown, error) {
	d := document{"node": x.node, "exists": false, "owners": []document{}, "waiters": []document{}}
	setBytes(d, "name", []byte(x.name))
	sem, err := describe(ctx, n, x.name, opts...)
	if errors.Is(err, client.ErrNotFound) {
		return taggedDocument(d), nil
	}
	if err != nil {
		return nil, err
	}
	room, waits := maxShown, false
	waiters := make([]document, len(sem.Waiters))
	for i, w := range sem.Waiters {
		waits = waits || w.Session == x.explain
		waiters[i] = document{"position": i + 1, "count": count(w.Count), "holder": w.Description,
			"since": timeText(w.Since), "session_id": idText(w.Session)}
	}
	d["exists"], d["ephemeral"], d["used"], d["limit"] = true, sem.Ephemeral, count(sem.Used), count(sem.Limit)
	d["num_owners"], d["num_waiters"] = sem.NumOwners, sem.NumWaiters
	d["owners"], d["waiters"] = owners(sem.Owners, &room), waiters
	sh := taggedDocument(d)
	if waits {
		if w, err := n.ExplainWait(ctx, x.name, x.explain); err == nil && w.Waiting {
			d["why"] = words.Explain(x.name, x.explain, w)
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
	for pages := 0; pages < maxPages; pages++ {
		read := append([]client.ReadOption{client.IncludeWaiters(), client.MaxItems(maxEntries - len(sem.Owners) - len(sem.Waiters))}, opts...)
		after := uint64(0)
		if pages == 0 || len(sem.Owners) > 0 && uint64(len(sem.Owners)) < sem.NumOwners {
			read = append(read, client.IncludeOwners())
			if pages > 0 {
				after = sem.Owners[len(sem.Owners)-1].Token
			}
		} else if len(sem.Waiters) > 0 {
			after = sem.Waiters[len(sem.Waiters)-1].Place
		}
		if pages > 0 {
			read = append(read, client.AfterToken(after))
		}
		next, err := n.Describe(ctx, name, read...)
		if err != nil {
			return nil, err
		}
		next.Owners, next.Waiters = append(sem.Owners, next.Owners...), append(sem.Waiters, next.Waiters...)
		more := len(next.Owners) + len(next.Waiters) - len(sem.Owners) - len(sem.Waiters)
		sem = next
		if all := len(sem.Owners) + len(sem.Waiters); more == 0 || all >= maxEntries ||
			uint64(all) >= sem.NumOwners+sem.NumWaiters {
			break
		}
	}
	return sem, nil
}

// words quote other clients' texts in the sentences of why.
var words = gateway.Words{
	Session: func(id uint64, description string) string { return fmt.Sprintf("Session %d (%s)", id, description) },
	Name:    strconv.Quote,
	Data:    func(data []byte) string { return strconv.Quote(string(data)) },
}

func listLocks(x *call) error {
	opts, err := x.readOptions()
	if err != nil {
		return err
	}
	most := defaultPage
	if text := x.query.Get("limit"); text != "" {
		if most, err = strconv.Atoi(text); err != nil || most < 1 || most > maxPage {
			return badRequest("limit is %q; give 1 to %d", text, maxPage)
		}
	}
	opts = append(opts, client.MaxItems(most+1))
	if after := x.query.Get("after"); after != "" {
		opts = append(opts, client.After(after))
	}
	n, err := x.conn.Client.Node(x.ctx, x.node)
	if err != nil {
		return err
	}
	list := []document{}
	d := document{"node": x.node}
	last := ""
	for info, err := range n.List(x.ctx, x.query.Get("prefix"), opts...) {
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

// conditions are those of a write, by RFC 9110.
func (x *call) conditions() (opts []client.WriteOption, err error) {
	match, none := x.r.Header.Get("If-Match"), x.r.Header.Get("If-None-Match")
	switch {
	case match != "" && none != "":
		return nil, badRequest("If-Match and If-None-Match are both given; give one of them")
	case none == "*":
		return []client.WriteOption{client.IfVersion(0)}, nil
	case none != "":
		return nil, badRequest("If-None-Match is %q; a write takes * alone", none)
	case match == "":
		return nil, nil
	}
	version, err := strconv.ParseUint(strings.Trim(match, `"`), 10, 64)
	if err != nil || version == 0 || match != etag(version) {
		return nil, versionMismatch(x, "If-Match is %s, which no version has", match)
	}
	return []client.WriteOption{client.IfVersion(version)}, nil
}

// versionMismatch answers 412 with the present version.
func versionMismatch(x *call, format string, args ...any) error {
	p := problemf(http.StatusPreconditionFailed, "version_mismatch", format, args...)
	if n, err := x.conn.Client.Node(x.ctx, x.node); err == nil {
		if v, err := n.Config(x.name).Get(x.ctx); err == nil {
			p.more = document{"version": v.Version}
		} else if errors.Is(err, client.ErrNotFound) {
			p.more = document{"version": 0}
		}
	}
	return p
}

func getConfig(x *call) error {
	n, err := x.conn.Client.Node(x.ctx, x.node)
	if err != nil {
		return err
	}
	read := func(ctx context.Context, opts []client.ReadOption) (*shown, error) {
		v, err := n.Config(x.name).Get(ctx, opts...)
		return &shown{tag: etag(v.Version), kind: bytesKind, body: v.Data}, err
	}
	return watched{x, read, watchSemaphore(n, client.ConfigPrefix+x.name), 0}.answer()
}

// changeConfig changes a configuration with a session of the gateway.
func changeConfig(x *call, change func(*client.ConfigValue, []client.WriteOption) error) error {
	opts, err := x.conditions()
	if err != nil {
		return err
	}
	s, release, err := x.conn.Limiters.Session(x.ctx, x.node)
	if err != nil {
		return err
	}
	defer release()
	err = change(s.Config(x.name), opts)
	if errors.Is(err, client.ErrPreconditionFailed) && len(opts) > 0 {
		return versionMismatch(x, "%s", err)
	}
	return err
}

func putConfig(x *call) error {
	return changeConfig(x, func(c *client.ConfigValue, opts []client.WriteOption) error {
		version, err := c.Set(x.ctx, x.body, opts...)
		if err != nil {
			return err
		}
		x.w.Header().Set("ETag", etag(version))
		return x.write(http.StatusOK, document{"version": version})
	})
}

func deleteConfig(x *call) error {
	return changeConfig(x, func(c *client.ConfigValue, opts []client.WriteOption) error {
		if err := c.Delete(x.ctx, opts...); err != nil {
			return err
		}
		return x.write(http.StatusOK, document{"deleted": true})
	})
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
	units, err := x.units("units")
	if err != nil {
		return err
	}
	wait, err := x.duration("wait", 0, maxWait, time.Nanosecond)
	if err != nil {
		return err
	}
	units = max(units, 1)
	ctx, cancel := context.WithCancel(x.r.Context())
	defer cancel()
	defer context.AfterFunc(x.api.ctx, cancel)()
	err = x.conn.Limiters.Do(x.ctx, x.node, x.name, func(l *ratelimit.Limiter) error {
		ok, err := l.WaitAtMost(ctx, units, wait)
		if ok || err != nil {
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
