package core

import (
	"slices"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

const (
	// mapReplyTimeout is how long an instance has to give its map before another one is asked too:
	// one that ends may answer nothing any more, and all requests that look for the new place of a
	// bucket wait for this answer.
	mapReplyTimeout = 50 * time.Millisecond
	// maxMapDelay bounds how long a client without need leaves an announced map alone. So does the
	// shortest timeout of its sessions: a holder that is cut off learns no sooner either that its
	// lease was taken away by force.
	maxMapDelay = 30 * time.Second
	// fetchTimeout is how long a map is waited for, connecting included.
	fetchTimeout = 5 * time.Second
	// maxAnnouncedTries bounds how often in a row an announced map is asked for in vain.
	maxAnnouncedTries = 10
)

// mapFetch fetches the map, once at a time. See R21.
type mapFetch struct {
	asked    []*mapRequest // under way
	late     timer         // when another instance is asked too, and then when the fetch is given up
	second   bool          // another one was asked
	waiting  list          // requests that wait for the end of the fetch
	version  uint64        // the newest one that an instance announced
	from     *Conn         // that instance
	failures int           // of fetches in a row
	pause    timer         // before the next fetch
	delay    timer         // while an announced map is left alone
	ended    bool          // what follows from the end of a fetch is to be done after the step
	fresh    bool          // it brought a newer map
}

// mapRequest asks an instance for its map.
type mapRequest struct {
	Request
	msg   protocol.MapRequest
	reply protocol.MapReply
	next  []protocol.MapInstance // to be asked if this one does not answer
}

func (x *routes) newMapRequest(to destination) *mapRequest {
	m := &mapRequest{}
	if t := x.table; t != nil {
		m.msg.Known = t.version
	}
	m.Request = Request{purpose: purpose{kind: protocol.KindMap, message: &m.msg, op: m, to: to, once: true}}
	return m
}

func (m *mapRequest) turn(*Engine) {}
func (m *mapRequest) decode(body []byte) (bool, error) {
	return false, protocol.DecodeBody(&m.reply, body)
}

func (m *mapRequest) decided(e *Engine, err error) {
	m.state = Over
	if err == nil {
		c := m.via
		if err = e.routes.useMap(e, &m.reply); err != nil {
			c.end(e, err)
		}
		for _, s := range m.reply.Shards {
			if w := e.routes.table.shard(s.ID); w != nil {
				e.routes.learnLeader(e, w, c.instance, s.Master, s.Term)
			}
		}
	}
	e.routes.fetch.answered(e, m, err)
}

func (m *mapRequest) left(e *Engine, err error) {
	e.withdraw(&m.Request)
	if IsPermanent(err) {
		e.routes.refusal = err
		e.routes.enqueue(e)
	}
	m.over(e, err)
}

func (m *mapRequest) over(e *Engine, err error) {
	m.state = Over
	e.routes.unmapped.each(func(r *Request) { r.last = err })
	if len(m.next) > 0 {
		e.routes.askLeaders(e, m.next)
	}
	e.routes.fetch.answered(e, m, err)
}

// begin fetches the map, unless that is under way. It is asked for where a newer one was announced,
// since others may get it later or never.
func (f *mapFetch) begin(e *Engine, behindHello *Conn) {
	if len(f.asked) > 0 || f.pause.place != 0 || f.ended || e.closed != nil {
		return
	}
	to := anyInstance
	if c := f.from; behindHello != nil {
		to = toConn(behindHello)
	} else if c != nil && !c.over && f.isBehind(e) {
		to = toConn(c)
	}
	e.timers.stop(&f.delay)
	f.second = false
	f.late.of = fetchLate{f}
	patience := minSilence // nobody waits
	if e.routes.needMap(e) {
		patience = mapReplyTimeout
	}
	e.timers.set(&f.late, e.now+patience)
	f.ask(e, to)
}

// needMap reports whether something waits that a newer map may help: a request, a result, or a
// subscription, which follows buckets to other shards.
func (x *routes) needMap(e *Engine) bool {
	if x.table == nil || !x.unmapped.empty() || !x.fetch.waiting.empty() || !e.paused.empty() ||
		len(e.subscriptions) > 0 {
		return true
	}
	return slices.ContainsFunc(x.links, func(l *link) bool { return !l.waiting.empty() }) ||
		slices.ContainsFunc(e.conns, func(c *Conn) bool { return !c.inQueue.empty() })
}

// needed is called when something begins to wait that a newer map may help.
func (f *mapFetch) needed(e *Engine) {
	switch {
	case f.delay.place != 0:
		f.begin(e, nil)
	case f.late.place != 0 && !f.second && f.late.at > e.now+mapReplyTimeout:
		e.timers.set(&f.late, e.now+mapReplyTimeout)
	}
}

func (f *mapFetch) ask(e *Engine, to destination) {
	m := e.routes.newMapRequest(to)
	f.asked = append(f.asked, m)
	e.send(&m.Request)
}

// isBehind reports whether an instance announced a newer map than the one there is.
func (f *mapFetch) isBehind(e *Engine) bool {
	return e.routes.table == nil || f.version > e.routes.table.version
}

// askAnother asks another instance than the first too, or else gives the fetch up at its end.
func (f *mapFetch) askAnother(e *Engine) {
	if f.second || len(f.asked) == 0 {
		return
	}
	f.second = true
	e.timers.set(&f.late, e.now+fetchTimeout)
	if c := liveliest(e, f.asked[0].on); c != nil && f.asked[0].on != nil {
		f.ask(e, toConn(c))
	}
}

// fetchLate is the timer of a fetch.
type fetchLate struct{ f *mapFetch }

func (l fetchLate) due(e *Engine) {
	f := l.f
	if !f.second {
		f.askAnother(e)
		return
	}
	asked := f.asked
	f.asked = nil
	for _, m := range asked {
		e.withdraw(&m.Request)
		m.state = Over
	}
	f.end(e, false)
}

// answered ends the fetch with the first newer map, or with the last answer.
func (f *mapFetch) answered(e *Engine, m *mapRequest, err error) {
	place := -1
	for i, x := range f.asked {
		if x == m {
			place = i
		}
	}
	if place < 0 {
		return // the fetch is over
	}
	fresh := err == nil && m.reply.Version > m.msg.Known
	f.asked = append(f.asked[:place], f.asked[place+1:]...)
	switch {
	case fresh:
		for _, x := range f.asked { // its answer is of no use any more
			e.withdraw(&x.Request)
			x.state = Over
		}
		f.asked = nil
		f.end(e, true)
	case len(f.asked) == 0 && !f.second && err != nil:
		f.again(e)
	case len(f.asked) == 0:
		f.end(e, false)
	}
}

// again asks another instance because the first one failed; if there is none, the fetch is over.
func (f *mapFetch) again(e *Engine) {
	f.second = true
	if c := liveliest(e, nil); c != nil {
		f.ask(e, toConn(c))
		return
	}
	f.end(e, false)
}

// end is the end of a fetch.
func (f *mapFetch) end(e *Engine, fresh bool) {
	e.timers.stop(&f.late)
	f.fresh = fresh
	if !f.ended {
		f.ended = true
		e.tasks = append(e.tasks, f)
	}
}

// resolve implements task: a fetch is over. A map that was announced, or that has what a request needs,
// is asked for again after a pause.
func (f *mapFetch) resolve(e *Engine) {
	fresh := f.fresh
	f.ended, f.fresh = false, false
	if fresh {
		f.failures = 0
	}
	f.waiting.drain(func(r *Request) {
		if fresh && r.retry.failures < 2 {
			r.retry.failures++
			e.send(r)
		} else {
			e.pause(r)
		}
	})
	if e.closed != nil {
		return
	}
	missing := !e.routes.unmapped.empty() || e.routes.table == nil
	announced := f.isBehind(e) && f.from != nil && f.failures < maxAnnouncedTries
	if missing || announced {
		b := backoff{f.failures}
		f.failures++
		f.pause.of = fetchPause{f}
		e.timers.set(&f.pause, e.now+b.next(e, retryBase, retryMax))
	}
}

// fetchPause is the pause before the next fetch, or the delay before one that nobody needs.
type fetchPause struct{ f *mapFetch }

func (p fetchPause) due(e *Engine) { p.f.begin(e, nil) }

// announced fetches a map that an instance announced.
//
// A client that has no need leaves it alone for a while, and lets others go first. A planned change
// makes a map for each step, and all clients of the cluster are told of each at once: thousands that
// fetch every one cost an instance more than the change. A request that goes to a former owner of
// its bucket is told the present one, and is a need.
func (f *mapFetch) announced(e *Engine, version uint64, from *Conn, needed bool) {
	if version > f.version || f.from == nil || f.from.over {
		f.version, f.from = version, from
		f.failures = 0
	}
	switch {
	case !f.isBehind(e) || e.routes.table == nil || len(f.asked) > 0:
	case needed:
		f.begin(e, nil)
		f.needed(e)
	case f.delay.place == 0 && f.pause.place == 0:
		most := min(maxMapDelay, e.timeouts.Or(maxMapDelay))
		f.delay.of = fetchPause{f}
		e.timers.set(&f.delay, e.now+time.Duration(e.random(uint64(most))))
	}
}

// askLeaders asks the first of these instances who leads, by its map, and if it does not answer the
// next one.
func (x *routes) askLeaders(e *Engine, instances []protocol.MapInstance) {
	l := x.link(instances[0].ID)
	m := x.newMapRequest(func(e *Engine, r *Request) *Conn { return x.within(e, r, l) })
	m.msg.Known, m.next = 0, instances[1:]
	e.send(&m.Request)
}
