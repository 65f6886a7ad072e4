package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/internal/millis"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Top is what a cluster is busiest with: what its instances do, and the semaphores and sessions
// that stand out.
type Top struct {
	Instances  []TopInstance
	Semaphores []TopSemaphore // in no order
	Sessions   []TopSession   // most semaphores first
}

// TopInstance is an instance of the cluster.
type TopInstance struct {
	ID       uint64
	Name     string
	Address  string       // for clients
	Activity *TopActivity // nil if it did not answer, and without the right read on "/"
	Err      error        // why it did not answer: what it leads is missing from the lists
}

// TopActivity has an instance's rates over about the last 5 s.
type TopActivity struct {
	Uptime      time.Duration
	Leads       []uint64 // shards
	Connections int
	Sessions    int // at home in the shards that it leads
	Semaphores  int // in the shards that it leads
	// RequestsPerSecond are all requests, RejectedPerSecond those of them that were answered with
	// an error.
	RequestsPerSecond, RejectedPerSecond float64
	// ChangeP50 and ChangeP99 are the latencies of requests that change something, from the first
	// byte at the server to the reply, at most a quarter too high. 0: there were none.
	ChangeP50, ChangeP99 time.Duration
	// LogWriteP50 and LogWriteP99 are those of writes to the log, their sync included. 0: there
	// were none.
	LogWriteP50, LogWriteP99 time.Duration
}

// TopSemaphore is a semaphore that is granted often, or wanted by many or for long.
type TopSemaphore struct {
	Path string // of its coordination node
	Name string
	// GrantsPerSecond is an estimate over about the last 15 s, rather too low than too high. 0 also
	// stands for a semaphore with less than about 1 of 256 grants of its shard.
	GrantsPerSecond float64
	Limit           uint64 // 0: it does not exist now, since nobody holds it
	Used            uint64 // units held
	Owners, Waiters int
	OldestWait      time.Duration // of the first waiter; 0: nobody waits
	Ephemeral       bool
	Stuck           bool // the next waiter, by the policy, wants more than the limit
	// the level of the first waiter; nil: nobody waits, or the policy is not client.PolicyPriority
	Priority        *int
	DrainedSlots    int           // slots that are not granted, held ones too
	PreemptedOwners int           // that waiters preempt
	Left            time.Duration // until the hold of the owner with the lowest token ends by itself; 0: it does not
}

// TopSession is a session that holds or waits for many semaphores.
type TopSession struct {
	Path          string // of its coordination node
	ID            uint64
	Held, Waiting int // semaphores
	Description   string
	Client        string // address of its client
	Detached      bool   // its client is not connected
}

// topTimeout is how long one instance has to answer Top: one that is down must not hold up what is
// known of the others.
const topTimeout = time.Second

// MaxTopRows is how many rows of each list Top may be asked for.
const MaxTopRows = protocol.MaxTopRows

// Top asks all instances what they are busiest with. path limits it to the coordination nodes at
// this path and below it; "" stands for all. rows is how many semaphores are first by grants, how
// many by waiters, how many by the oldest wait, and how many sessions are listed: 1 to MaxTopRows,
// 0 for 50. The cost does not grow with the number of semaphores and sessions.
//
// It shows the nodes on which the identity has the right read, and the activity of instances to one
// with that right on "/". An instance that does not answer within a second has Err; the error of
// Top is the first of them when none answered.
func (a *Client) Top(ctx context.Context, path string, rows int) (*Top, error) {
	rows = cmp.Or(rows, protocol.DefaultTopRows)
	m, err := a.Map(ctx)
	if err != nil {
		return nil, err
	}
	answers, errs := a.askAll(ctx, m, protocol.TopRequest{Path: path, Rows: rows})
	out := new(Top)
	var failed error
	answered := 0
	for i, x := range m.Instances {
		instance := TopInstance{ID: x.ID, Name: x.Name, Address: x.Address, Err: errs[i]}
		if errs[i] == nil {
			answered++
			instance.Activity = topActivity(answers[i].Instance.Activity)
		} else if failed == nil || errors.Is(failed, client.ErrUnreachable) {
			failed = errs[i]
		}
		out.Instances = append(out.Instances, instance)
	}
	if answered == 0 {
		return nil, failed
	}
	out.Semaphores = mergeSemaphores(answers)
	sessions := mergeSessions(answers, func(uint64) bool { return true })
	sessions = sessions[:min(rows, len(sessions))]
	if answered > 1 && len(sessions) > 0 {
		// An instance lists a session if it is among its first. The others know it, too.
		ids := make(map[uint64]bool)
		for _, s := range sessions {
			ids[s.ID] = true
		}
		again, late := a.askAll(ctx, m, protocol.TopRequest{Path: path, Rows: 1,
			Sessions: slices.Sorted(maps.Keys(ids))})
		for i, err := range late {
			if err != nil { // what it said first is better than nothing
				again[i], out.Instances[i].Err = answers[i], cmp.Or(out.Instances[i].Err, err)
			}
		}
		sessions = mergeSessions(again, func(id uint64) bool { return ids[id] })
	}
	out.Sessions = sessions
	return out, nil
}

// TopPoint is a moment of what the cluster did.
type TopPoint struct {
	GrantsPerSecond   float64 // since the point before
	Waiters, Sessions int
	LongestWait       time.Duration
}

// TopPeriod is the time from one point of a history to the next.
const TopPeriod = protocol.TopPointMS * time.Millisecond

// History returns what the cluster did in the last 15 minutes, the oldest point first. Each instance
// keeps it in memory of what it led, so points from before an instance started lack its part. It
// needs the right read on "/": without it there are no points. An instance that does not answer
// within a second is left out; the error is that of the first if none answered.
func (a *Client) History(ctx context.Context) ([]TopPoint, error) {
	m, err := a.Map(ctx)
	if err != nil {
		return nil, err
	}
	answers, errs := a.askAll(ctx, m, protocol.TopRequest{Rows: 1, History: true})
	answered := false
	for _, err := range errs {
		answered = answered || err == nil
	}
	if !answered && len(errs) > 0 {
		return nil, errs[0]
	}
	return mergeHistories(answers), nil
}

// mergeHistories adds up points of the same time: those that are as far from the last one.
func mergeHistories(answers []protocol.Top) (list []TopPoint) {
	for i := range answers {
		a := answers[i].Instance.Activity
		if a == nil {
			continue
		}
		if more := len(a.History) - len(list); more > 0 {
			list = append(make([]TopPoint, more), list...)
		}
		for k, p := range a.History {
			x := &list[len(list)-len(a.History)+k]
			x.GrantsPerSecond += p.Grants
			x.Waiters += p.Waiters
			x.Sessions += p.Sessions
			x.LongestWait = max(x.LongestWait, millis.Duration(p.WaitMS))
		}
	}
	return list
}

// askAll asks all instances of the map at once.
func (a *Client) askAll(ctx context.Context, m *Map, req protocol.TopRequest) ([]protocol.Top, []error) {
	ctx, cancel := context.WithTimeoutCause(ctx, topTimeout,
		fmt.Errorf("%w: no answer within %s", client.ErrUnreachable, topTimeout))
	defer cancel()
	answers, errs := make([]protocol.Top, len(m.Instances)), make([]error, len(m.Instances))
	var asked sync.WaitGroup
	for i, x := range m.Instances {
		asked.Go(func() { errs[i] = a.c.ClusterAt(ctx, x.ID, protocol.MethodTop, req, &answers[i]) })
	}
	asked.Wait()
	return answers, errs
}

func topActivity(w *protocol.TopActivity) *TopActivity {
	if w == nil {
		return nil
	}
	us := func(n uint64) time.Duration { return time.Duration(min(n, 1<<40)) * time.Microsecond }
	return &TopActivity{
		Uptime: millis.Duration(w.UptimeMS), Leads: w.Leads, Connections: w.Connections,
		Sessions: w.Sessions, Semaphores: w.Semaphores,
		RequestsPerSecond: w.Requests, RejectedPerSecond: w.Rejected,
		ChangeP50: us(w.ChangeP50US), ChangeP99: us(w.ChangeP99US),
		LogWriteP50: us(w.WriteP50US), LogWriteP99: us(w.WriteP99US),
	}
}

// mergeSemaphores puts the instances' semaphores together. While a shard changes its leader, two
// may list one.
func mergeSemaphores(answers []protocol.Top) (list []TopSemaphore) {
	type key struct{ path, name string }
	seen := map[key]bool{}
	for i := range answers {
		for _, w := range answers[i].Semaphores {
			k := key{w.Path, string(w.Name)}
			if seen[k] {
				continue
			}
			seen[k] = true
			s := TopSemaphore{
				Path: w.Path, Name: k.name, GrantsPerSecond: w.GrantsPerSecond, Limit: w.Limit, Used: w.Used,
				Owners: w.Owners, Waiters: w.Waiters,
				Ephemeral: w.Ephemeral, Stuck: w.Stuck, DrainedSlots: w.DrainedSlots,
				Left: millis.Duration(w.LeftMS), PreemptedOwners: w.PreemptedOwners,
			}
			if level := int(w.WaitingPriority) - 1; level >= 0 {
				s.Priority = &level
			}
			if w.WaitingSinceMS > 0 {
				s.OldestWait = millis.Duration(max(1, answers[i].NowMS-min(w.WaitingSinceMS, answers[i].NowMS)))
			}
			list = append(list, s)
		}
	}
	return list
}

// mergeSessions adds up what sessions have at the instances, most semaphores first.
func mergeSessions(answers []protocol.Top, in func(id uint64) bool) (list []TopSession) {
	sums := map[uint64]*TopSession{}
	for i := range answers {
		for _, w := range answers[i].Sessions {
			if !in(w.Session) {
				continue
			}
			s := sums[w.Session]
			if s == nil {
				s = &TopSession{Path: w.Path, ID: w.Session}
				sums[w.Session] = s
			}
			s.Held += w.Held
			s.Waiting += w.Waiting
			s.Description = cmp.Or(s.Description, w.Description)
			if w.Client != "" {
				s.Client, s.Detached = w.Client, w.Detached
			}
		}
	}
	for _, s := range sums {
		list = append(list, *s)
	}
	slices.SortFunc(list, func(a, b TopSession) int {
		return cmp.Or(cmp.Compare(b.Held+b.Waiting, a.Held+a.Waiting), cmp.Compare(a.ID, b.ID))
	})
	return list
}
