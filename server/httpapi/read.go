package httpapi

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/discovery"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
)

const (
	maxEntries  = 1000 // owners and waiters of a description
	defaultPage = 100  // names of a list
	maxPage     = 1000
)

// owners describes who holds something.
func owners(list []client.Owner, data bool) []document {
	out := make([]document, len(list))
	for i, o := range list {
		d := document{"token": o.Token, "count": count(o.Count), "holder": o.Description, "since": timeText(o.Since),
			"session_id": idText(o.Session), "preempted": o.Preempted}
		if len(o.Slots) > 0 {
			d["slots"] = o.Slots
		}
		if data {
			setBytes(d, "data", o.Data)
		}
		out[i] = d
	}
	return out
}

func getLock(x *call) error {
	opts, err := x.readOptions()
	if err != nil {
		return err
	}
	n, err := x.conn.Client.Node(x.ctx, x.node)
	if err != nil {
		return err
	}
	d := document{"node": x.node}
	setBytes(d, "name", []byte(x.name))
	sem, err := n.Describe(x.ctx, x.name, append(opts, client.IncludeOwners(), client.IncludeWaiters(), client.MaxItems(maxEntries))...)
	if errors.Is(err, client.NotFound) {
		d["exists"] = false
		d["owners"], d["waiters"] = []document{}, []document{}
		return x.write(http.StatusOK, d)
	}
	if err != nil {
		return err
	}
	waiters := make([]document, len(sem.Waiters))
	for i, w := range sem.Waiters {
		waiters[i] = document{"position": i + 1, "count": count(w.Count), "holder": w.Description,
			"since": timeText(w.Since), "session_id": idText(w.Session)}
	}
	d["exists"], d["ephemeral"], d["used"], d["limit"] = true, sem.Ephemeral, count(sem.Used), count(sem.Limit)
	d["num_owners"], d["num_waiters"] = sem.NumOwners, sem.NumWaiters
	d["owners"], d["waiters"] = owners(sem.Owners, true), waiters
	return x.write(http.StatusOK, d)
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
		} else if errors.Is(err, client.NotFound) {
			p.more = document{"version": 0}
		}
	}
	return p
}

func getConfig(x *call) error {
	opts, err := x.readOptions()
	if err != nil {
		return err
	}
	n, err := x.conn.Client.Node(x.ctx, x.node)
	if err != nil {
		return err
	}
	wait, err := x.duration("wait", 0, maxWait, time.Nanosecond)
	if err != nil {
		return err
	}
	known := strings.FieldsFunc(x.r.Header.Get("If-None-Match"), func(c rune) bool { return c == ',' || c == ' ' })
	if len(known) > 0 {
		opts = []client.ReadOption{client.ReadConsistency(client.Strict)}
	} else if wait > 0 {
		return badRequest("wait is for a change: send the ETag that you know as If-None-Match")
	}
	v, err := n.Config(x.name).Get(x.ctx, opts...)
	if err == nil && wait > 0 && slices.Contains(known, etag(v.Version)) {
		v, err = x.changed(n, v, wait)
	}
	if err != nil {
		return err
	}
	h := x.w.Header()
	h.Set("ETag", etag(v.Version))
	if slices.Contains(known, etag(v.Version)) {
		x.w.WriteHeader(http.StatusNotModified)
		return nil
	}
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", "attachment")
	h.Set("Content-Length", strconv.Itoa(len(v.Data)))
	_ = http.NewResponseController(x.w).SetWriteDeadline(time.Now().Add(writeTimeout))
	_, _ = x.w.Write(v.Data)
	return nil
}

// changed waits until a configuration is another one than v, and returns v if it stays. What a
// watch delivers may be older than v, so a difference is read again.
func (x *call) changed(n *client.Node, v client.Value, wait time.Duration) (client.Value, error) {
	ctx, cancel := context.WithTimeout(x.r.Context(), wait)
	defer cancel()
	defer context.AfterFunc(x.api.ctx, cancel)()
	for now, err := range n.Config(x.name).Watch(ctx) {
		switch {
		case x.api.ctx.Err() != nil:
			return v, errClosing
		case ctx.Err() != nil:
			return v, nil
		case err != nil:
			return v, err
		case now.Exists && now.Version == v.Version:
			continue
		}
		asked, end := context.WithTimeout(x.r.Context(), answerTimeout)
		now, err = n.Config(x.name).Get(asked, client.ReadConsistency(client.Strict))
		end()
		if err != nil || now.Version != v.Version {
			return now, err
		}
	}
	return v, nil
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
	if errors.Is(err, client.PreconditionFailed) && len(opts) > 0 {
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
	v := e.View()
	list := make([]document, len(v.All))
	for i, m := range v.All {
		used, why := v.Reason(m)
		d := document{"addr": m.Addr, "zone": m.Zone, "weight": m.Weight, "state": m.State,
			"why": cmp.Or(m.Why, why), "token": m.Token,
			"used": used, "meta": m.Meta}
		if m.Meta == nil {
			d["meta"] = document{}
		}
		list[i] = d
	}
	d := document{"service": x.name, "node": x.node, "endpoints": list, "live": v.Live, "age_ms": 0,
		"panic": v.Panic, "ignored": v.Ignored}
	if !v.Live {
		d["age_ms"] = max(0, time.Since(v.Since).Milliseconds())
	}
	return x.write(http.StatusOK, d)
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
