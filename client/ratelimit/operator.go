package ratelimit

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/internal/access"
	"github.com/signalbox-dev/signalbox/client/internal/handle"
	"github.com/signalbox-dev/signalbox/client/internal/millis"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Config is the configuration of a resource. Rates are in units per second, to a thousandth.
type Config struct {
	// Rate that all clients together may use, up to 10^12, see PerSecond. 0 admits nobody. A root
	// needs one; below it nil leaves the parent's as the only limit.
	Rate *float64
	// Burst is how much can be used at once after a time without use, as a time of the rate: 1 ms
	// to an hour, default 1 s. It is at least one unit.
	Burst time.Duration
	// Weight is the share among the children of a parent, 1 to 10,000; default 1.
	Weight uint32
	// Min is what the resource gets before others share by weight. The children's sum is at most
	// that of their parent; a root has its whole rate to give.
	Min float64
	// Lease is how long clients use a rate without asking again, 500 ms to 1 min, default 3 s. Only
	// a root has one. A shorter one has changes and losses pass sooner, and costs more refreshes.
	Lease time.Duration
	// Shadow admits everything at the resource and below it, and counts what would be denied.
	Shadow bool
	// Floor is the rate that each client uses while it has no lease. It is beyond the limit; with 0
	// such clients deny.
	Floor float64
	// Foreign is for a gateway of another protocol: the settings as it was given them, in its own
	// form, at most 256 bytes. The cluster keeps it and does not read it.
	Foreign string
}

// PerSecond is a rate of units per second.
func PerSecond(units float64) *float64 { return &units }

func (c *Config) wire() (w protocol.LimitConfig, err error) {
	rate := func(what string, v float64) uint64 {
		if v < 0 || math.IsNaN(v) || v > protocol.MaxLimitRate/1000 {
			err = protocol.Errorf(protocol.StatusBadRequest, "%s is %v units per second; it must be 0 to 10^12", what, v)
			return 0
		}
		if v > 0 && v < 0.001 {
			err = protocol.Errorf(protocol.StatusBadRequest,
				"%s is %v units per second; the least is 0.001, one unit in 1,000 seconds", what, v)
		}
		return uint64(math.Round(v * 1000))
	}
	w = protocol.LimitConfig{Unlimited: c.Rate == nil, Min: rate("min", c.Min), Floor: rate("floor", c.Floor),
		Weight: c.Weight, Shadow: c.Shadow, Foreign: c.Foreign}
	if c.Rate != nil {
		w.Rate = rate("rate", *c.Rate)
	}
	w.Burst = millis.Of("burst", c.Burst, &err)
	w.Lease = millis.Of("lease", c.Lease, &err)
	return w, err
}

func configOf(w *protocol.LimitConfig) Config {
	c := Config{Burst: millis.Duration(w.Burst), Weight: w.Weight, Min: float64(w.Min) / 1000,
		Lease: millis.Duration(w.Lease), Shadow: w.Shadow, Floor: float64(w.Floor) / 1000, Foreign: w.Foreign}
	if !w.Unlimited {
		c.Rate = PerSecond(float64(w.Rate) / 1000)
	}
	return c
}

// change makes the object of a path's tree.
func tree(s *client.Session, n *client.Node, path string) (*handle.Object, error) {
	if err := protocol.ValidateLimitPath([]byte(path)); err != nil {
		return nil, err
	}
	if s != nil {
		own := access.Session(s)
		return handle.Limit(own.Node, own.Session, protocol.LimitRoot(path)), nil
	}
	return handle.Limit(access.Node(n), nil, protocol.LimitRoot(path)), nil
}

// ChangeOption is an option of Create, Alter and Delete.
type ChangeOption func(*change)

type change struct {
	reason string
	force  bool
}

// Reason says why a resource is changed, for the audit log, in at most 1,024 bytes of UTF-8.
func Reason(text string) ChangeOption { return func(c *change) { c.reason = text } }

// Force has Create make a child of a resource that sessions use, and Delete remove one: their
// limiters fail from then on. Alter refuses it.
func Force() ChangeOption { return func(c *change) { c.force = true } }

func changeOf(opts []ChangeOption) (c change) {
	for _, f := range opts {
		f(&c)
	}
	return c
}

// unforced are the options of a change that knows no force.
func unforced(opts []ChangeOption) (reason string, err error) {
	c := changeOf(opts)
	if c.force {
		return "", protocol.Errorf(protocol.StatusBadRequest, "Force is an option of Create and Delete; leave it out")
	}
	return c.reason, nil
}

// Create makes a resource and returns its revision. Errors: ErrAlreadyExists, ErrNotFound for a
// missing parent, ErrBadRequest, ErrPreconditionFailed for a quota, or for a parent that sessions
// use, see Force, ErrForbidden.
func Create(ctx context.Context, s *client.Session, path string, c Config, opts ...ChangeOption) (revision uint64, err error) {
	o, err := tree(s, nil, path)
	given := changeOf(opts)
	m := &protocol.LimitCreate{Path: []byte(path), Force: given.force, Reason: given.reason}
	if err == nil {
		m.Config, err = c.wire()
	}
	if err != nil {
		return 0, err
	}
	var r protocol.LimitRevision
	err = o.Change(ctx, protocol.KindLimitCreate, &m.Head, m, &r)
	return r.Revision, err
}

// Alter replaces the configuration of a resource if it has this revision, 0 for any, and returns
// the new one. A lower limit is reached within a lease. Errors: ErrNotFound, ErrPreconditionFailed
// for another revision, ErrBadRequest, ErrForbidden.
func Alter(
	ctx context.Context, s *client.Session, path string, revision uint64, c Config, opts ...ChangeOption,
) (now uint64, err error) {
	o, err := tree(s, nil, path)
	m := &protocol.LimitAlter{Path: []byte(path), Revision: revision}
	if err == nil {
		m.Reason, err = unforced(opts)
	}
	if err == nil {
		m.Config, err = c.wire()
	}
	if err != nil {
		return 0, err
	}
	var r protocol.LimitRevision
	err = o.Change(ctx, protocol.KindLimitAlter, &m.Head, m, &r)
	return r.Revision, err
}

// Delete removes a resource without children if it has this revision, 0 for any. Limiters of it
// return ErrNotFound from then on. A resource that is created under its path before its burst would
// be full again begins without a burst. Errors: ErrNotFound, ErrPreconditionFailed for children,
// another revision or sessions that use it, see Force, ErrForbidden.
func Delete(ctx context.Context, s *client.Session, path string, revision uint64, opts ...ChangeOption) error {
	o, err := tree(s, nil, path)
	if err != nil {
		return err
	}
	given := changeOf(opts)
	m := &protocol.LimitDelete{Path: []byte(path), Revision: revision, Force: given.force, Reason: given.reason}
	return o.Change(ctx, protocol.KindLimitDelete, &m.Head, m, &protocol.Empty{})
}

// Info is a tree in a list.
type Info struct {
	Name         string
	Config       Config // of the root
	Revision     uint64 // of the latest change of a resource
	Resources    uint64
	Participants uint64 // sessions that take part
}

// List lists the trees of a node whose name begins with prefix, in order of name. Of the options,
// After and MaxItems count. The sequence ends after its first error.
func List(ctx context.Context, n *client.Node, prefix string, opts ...client.ReadOption) iter.Seq2[Info, error] {
	return handle.Convert(handle.Limits(ctx, access.Node(n), prefix, access.ListLimits(opts)), func(i protocol.LimitItem) Info {
		return Info{string(i.Name), configOf(&i.Config), i.Revision, i.Resources, i.Participants}
	})
}

// Status is a resource with all below it. Rates are in units per second.
type Status struct {
	Lease        time.Duration // length
	Learning     bool          // the leader is new, and gives nobody more until it knows who uses what
	Learned      time.Duration // how long that took
	Participants uint64        // sessions that take part in the tree
	Resources    []Resource    // in order of path
	Sessions     []SessionUse  // those whose calls wait or are denied first, then by rate
}

// Resource is a resource and its use. One with children has the sums of all below it.
type Resource struct {
	Path     string
	Revision uint64
	Config   Config
	Rate     float64 // in force: the least of its own and its parents'
	Burst    float64 // units, in force
	Demand   float64
	Target   float64 // what it is to have of its parent
	Leased   float64 // what leases may use
	Remote   float64 // rate of what the leader gives out by itself
	Level    float64 // units that it can give out now
	// Unconfirmed is what clients have to confirm that they do not use any more.
	Unconfirmed             float64
	Sessions                uint64  // that have it open
	Callers                 uint64  // those of them that have calls
	Waiting                 float64 // units that callers wait for
	Allowed, Denied, Waited float64 // units, since the leader began
	Impossible              float64 // units of calls that can never be admitted
	Acquires                uint64  // remote ones
	ServedRemotely          bool
}

// SessionUse is what a session has of a resource.
type SessionUse struct {
	Session uint64
	Path    string
	Remote  bool
	Rate    float64
	Burst   float64 // of its lease; with WhyBurst, without one, the burst of At that would do
	Demand  float64
	Used    float64       // rate, lately
	Share   float64       // rate that it is to have
	Lacks   time.Duration // since when its calls wait or are denied; 0: they are not
	Waiting float64       // units
	Age     time.Duration // since it joined
	Heard   time.Duration // since its last refresh
	Why     Why
	At      string // the resource that Why is about, if any
}

// Describe reads a resource with all below it. sessions bounds the list of the sessions that use
// them, 0 to 10,000. Errors: ErrNotFound; ErrBadRequest for more.
func Describe(ctx context.Context, n *client.Node, path string, sessions int) (*Status, error) {
	o, err := tree(nil, n, path)
	if err != nil {
		return nil, err
	}
	m := &protocol.LimitDescribe{Node: o.NodeID(), Path: []byte(path), Sessions: uint32(max(sessions, 0))}
	var s *Status
	for {
		var r protocol.LimitStatus
		if _, err := o.Request(ctx, protocol.KindLimitDescribe, m, &r); err != nil {
			return nil, err
		}
		if s == nil {
			s = &Status{Lease: millis.Duration(r.Length), Learning: r.Learning, Learned: millis.Duration(r.Learned), Participants: r.Participants}
		}
		s.add(&r)
		if m.Cursor = r.Cursor; len(r.Cursor) > 0 {
			continue
		}
		slices.SortStableFunc(s.Sessions, func(a, b SessionUse) int { // of all pages
			return cmp.Or(cmp.Compare(min(b.Lacks, 1), min(a.Lacks, 1)), cmp.Compare(b.Rate, a.Rate))
		})
		s.Sessions = s.Sessions[:min(len(s.Sessions), max(sessions, 0))]
		s.addUp()
		return s, nil
	}
}

// addUp adds what leaves have to the resources above them.
func (s *Status) addUp() {
	at := map[string]*Resource{}
	for i := range s.Resources {
		x := &s.Resources[i]
		at[x.Path] = x
		for path := parentPath(x.Path); at[path] != nil; path = parentPath(path) {
			sum := at[path]
			sum.Sessions += x.Sessions
			sum.Callers += x.Callers
			sum.Waiting += x.Waiting
			sum.Allowed += x.Allowed
			sum.Denied += x.Denied
			sum.Waited += x.Waited
			sum.Impossible += x.Impossible
			sum.Acquires += x.Acquires
		}
	}
}

// parentPath is the resource above one; empty for a root.
func parentPath(path string) string { return path[:max(strings.LastIndexByte(path, '/'), 0)] }

// Reason says why the session has what it has.
func (x *SessionUse) Reason() string {
	switch x.Why {
	case WhyWeight:
		return "weight at " + x.At
	case WhyCap:
		return "cap of " + x.At
	case WhyBurst:
		return fmt.Sprintf("burst of %s, %s units would do", x.At, strconv.FormatFloat(math.Ceil(x.Burst), 'f', -1, 64))
	case WhyElsewhere:
		return "waits for " + cmp.Or(x.At, "another limit")
	}
	return string(x.Why)
}

// Remedy is what would change that calls of the session wait or are denied; empty if none are.
func (x *SessionUse) Remedy() string {
	if x.Lacks == 0 {
		return ""
	}
	switch x.Why {
	case WhyWeight:
		if x.At == x.Path {
			return "raise the rate of " + x.At
		}
		return "raise the rate of " + x.At + ", or the weight or min of " + x.Path
	case WhyCap:
		return "raise the rate of " + x.At
	case WhyBurst:
		return "raise the burst of " + x.At + ", or make smaller calls"
	case WhyElsewhere:
		return "look at " + cmp.Or(x.At, "the other limit")
	case WhySilent, WhyLearning:
		return "wait a lease at most"
	case WhyNone:
		return "use a resource without children"
	}
	return "wait a moment: its lease comes with its next refresh"
}

func (s *Status) add(r *protocol.LimitStatus) {
	units := func(v uint64) float64 { return float64(v) / 1000 }
	for i := range r.Resources {
		x := &r.Resources[i]
		s.Resources = append(s.Resources, Resource{
			Path: string(x.Path), Revision: x.Revision, Config: configOf(&x.Config), Rate: units(x.Rate), Burst: units(x.Burst),
			Demand: units(x.Demand), Target: units(x.Target), Leased: units(x.Leased), Remote: units(x.Remote),
			Level: units(x.Level), Callers: x.Callers, Impossible: units(x.Impossible),
			Unconfirmed: units(x.Unconfirmed), Sessions: x.Sessions, Waiting: units(x.Waiting), Allowed: units(x.Allowed),
			Denied: units(x.Denied), Waited: units(x.Waited), Acquires: x.Acquires, ServedRemotely: x.ServedRemote,
		})
	}
	for i := range r.Sessions {
		x := &r.Sessions[i]
		s.Sessions = append(s.Sessions, SessionUse{
			Session: x.Session, Path: string(x.Path), Remote: x.State == protocol.LimitRemote, Rate: units(x.Rate), Burst: units(x.Burst),
			Demand: units(x.Demand), Used: units(x.Used), Share: units(x.Share), Lacks: millis.Duration(x.Lacks), Waiting: units(x.Waiting),
			Age: millis.Duration(x.Age), Heard: millis.Duration(x.Heard), Why: whys[x.Why], At: string(x.At),
		})
	}
}
