package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/client/rollout"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/desired"
	"github.com/signalbox-dev/signalbox/protocol"
)

// liveCluster is the cluster as the objects of documents.
type liveCluster struct {
	inv    *invocation
	c      *client.Client
	reason string
	tier   string // that new nodes are in

	mu       sync.Mutex
	nodes    map[string]*once[*client.Node]
	sessions map[string]*once[*client.Session]
}

// once is a value that is made when it is first asked for.
type once[T any] struct {
	sync.Mutex
	made  bool
	value T
}

func (x *once[T]) get(make func() (T, error)) (v T, err error) {
	x.Lock()
	defer x.Unlock()
	if !x.made {
		if x.value, err = make(); err != nil {
			return v, err
		}
		x.made = true
	}
	return x.value, nil
}

// newLiveCluster connects.
func newLiveCluster(inv *invocation, reason string) (*liveCluster, error) {
	c, err := inv.client()
	if err != nil {
		return nil, err
	}
	m, err := admin.New(c).Map(inv.ctx)
	if err != nil {
		return nil, err
	}
	l := &liveCluster{inv: inv, c: c, reason: reason, nodes: map[string]*once[*client.Node]{},
		sessions: map[string]*once[*client.Session]{}}
	for _, t := range slices.Backward(m.Tiers) { // in order of their ids; the first with data is the default
		if t.Buckets > 0 {
			l.tier = t.Name
		}
	}
	return l, nil
}

// within bounds a request by --timeout: all of them together may take longer.
func (l *liveCluster) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, l.inv.timeout, &timeoutError{l.inv})
}

func entryOf[T any](mu *sync.Mutex, in map[string]*once[T], path string) *once[T] {
	mu.Lock()
	defer mu.Unlock()
	if in[path] == nil {
		in[path] = new(once[T])
	}
	return in[path]
}

func (l *liveCluster) node(ctx context.Context, path string) (*client.Node, error) {
	return entryOf(&l.mu, l.nodes, path).get(func() (*client.Node, error) { return l.c.Node(ctx, path) })
}

func (l *liveCluster) session(ctx context.Context, path string) (*client.Session, error) {
	return entryOf(&l.mu, l.sessions, path).get(func() (*client.Session, error) {
		return l.c.Session(ctx, path, l.inv.sessionOptions()...)
	})
}

// leave ends the session of a node.
func (l *liveCluster) leave(ctx context.Context, path string) error {
	l.mu.Lock()
	x := l.sessions[path]
	delete(l.sessions, path)
	delete(l.nodes, path) // a node that is made again is another one
	l.mu.Unlock()
	if x == nil || !x.made {
		return nil
	}
	return x.value.Close(ctx)
}

// close ends all sessions.
func (l *liveCluster) close() {
	paths := slices.Collect(func(yield func(string) bool) {
		for path := range l.sessions {
			if !yield(path) {
				return
			}
		}
	})
	ctx := l.inv.cleanup()
	_ = desired.Each(ctx, len(paths), func(ctx context.Context, i int) error {
		_ = l.leave(ctx, paths[i])
		return nil
	})
}

// orNil is an object that was read; nil if it is not there.
func orNil(o *desired.Object, err error) (*desired.Object, error) {
	if errors.Is(err, protocol.StatusNotFound) && !errors.Is(err, client.ErrOutcomeUnknown) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return o, nil
}

// Get reads an object; nil if it is not there.
func (l *liveCluster) Get(ctx context.Context, k desired.Key) (*desired.Object, error) {
	ctx, cancel := l.within(ctx)
	defer cancel()
	o := &desired.Object{Key: k}
	switch k.Kind {
	case desired.Node:
		info, err := admin.Nodes(l.c).Describe(ctx, k.Node)
		if err == nil {
			l.showNode(o, info)
		}
		return orNil(o, err)
	case desired.Right:
		s, err := admin.New(l.c).Auth(ctx)
		if err != nil {
			return nil, err
		}
		for _, r := range s.Rights {
			if r.Identity == k.Name && r.Path == k.Node {
				return desired.RightObject(r.Identity, r.Path, r.Right, desired.Position{}), nil
			}
		}
		return nil, nil
	}
	n, err := l.node(ctx, k.Node)
	if err != nil {
		return orNil(nil, err)
	}
	switch k.Kind {
	case desired.Semaphore:
		s, err := n.Describe(ctx, k.Name, client.IncludeSlots(), client.ReadConsistency(client.Strict))
		if err != nil || s.Ephemeral {
			return orNil(nil, err)
		}
		showSemaphore(o, &semaphoreObject{s.Limit, semaphoreOptions(s)})
		o.Data, o.HasData, o.Uses = s.Data, true, usesOf(s.NumOwners, "owner", s.NumWaiters, "waiter")
	case desired.Config:
		v, err := n.Config(k.Name).Get(ctx)
		if err != nil {
			return orNil(nil, err)
		}
		o.Data, o.HasData, o.Revision = v.Data, true, v.Version
	case desired.Limit:
		s, err := ratelimit.Describe(ctx, n, k.Name, 0)
		if err != nil {
			return orNil(nil, err)
		}
		return o, showResource(o, &s.Resources[0])
	case desired.Rollout:
		s, err := rollout.OpenReader(n, k.Name).Describe(ctx, rollout.IncludeConfig())
		if err != nil {
			return orNil(nil, err)
		}
		o.Revision, o.Uses = s.ConfigRevision, usesOf(s.NumInstances, "instance", 0, "")
		return o, showRollout(o, s.Config)
	}
	return o, nil
}

func (l *liveCluster) showNode(o *desired.Object, info *admin.NodeInfo) {
	x := nodeObject{config: info.Config}
	if info.TierName != l.tier {
		x.tier = info.TierName
	}
	showNode(o, &x)
	o.Revision = info.Revision
}

func semaphoreOptions(s *client.Semaphore) (w protocol.SemaphoreOptions) {
	if s.Options != nil {
		w = optionsOnWire(s.Options)
	}
	return w
}

func showResource(o *desired.Object, r *ratelimit.Resource) error {
	o.Revision = r.Revision
	return showLimit(o, &r.Config)
}

// usesOf says who uses something; empty: nobody.
func usesOf(a uint64, noun string, b uint64, other string) string {
	var parts []string
	if a > 0 {
		parts = append(parts, count(a, noun))
	}
	if b > 0 {
		parts = append(parts, count(b, other))
	}
	if len(parts) == 0 {
		return ""
	}
	return "it has " + strings.Join(parts, " and ")
}

// State reads what a document names, and what is in nodes that are to go.
func (l *liveCluster) State(ctx context.Context, d *desired.Document) (*desired.State, error) {
	s := &state{State: desired.State{Objects: map[desired.Key]*desired.Object{}}, l: l}
	var nodes, others []desired.Key
	trees := map[desired.Key]bool{}
	add := func(k desired.Key) {
		switch k.Kind {
		case desired.Node:
			nodes = append(nodes, k)
		case desired.Limit:
			k.Name = protocol.LimitRoot(k.Name)
			trees[k] = true
		case desired.Right:
		default:
			others = append(others, k)
		}
	}
	for _, o := range d.Objects {
		add(o.Key)
	}
	for _, a := range d.Absent {
		add(a.Key)
	}
	if err := s.get(ctx, nodes); err != nil {
		return nil, err
	}
	others = slices.DeleteFunc(others, func(k desired.Key) bool { return s.Objects[desired.Key{Kind: desired.Node, Node: k.Node}] == nil })
	if err := s.get(ctx, others); err != nil {
		return nil, err
	}
	var roots []desired.Key
	for k := range trees {
		if s.Objects[desired.Key{Kind: desired.Node, Node: k.Node}] != nil {
			roots = append(roots, k)
		}
	}
	if err := s.trees(ctx, roots); err != nil {
		return nil, err
	}
	var going []*desired.Object
	for _, a := range d.Absent {
		if o := s.Objects[a.Key]; a.Kind == desired.Node && o != nil {
			going = append(going, o)
		}
	}
	err := desired.Each(ctx, len(going), func(ctx context.Context, i int) error { return s.inside(ctx, going[i]) })
	if err == nil && len(d.Identities) > 0 {
		err = s.rights(ctx)
	}
	return &s.State, err
}

// state is a State that is read.
type state struct {
	desired.State
	l  *liveCluster
	mu sync.Mutex // guards Objects
}

func (s *state) put(list ...*desired.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range list {
		s.Objects[o.Key] = o
	}
}

// get reads objects.
func (s *state) get(ctx context.Context, keys []desired.Key) error {
	return desired.Each(ctx, len(keys), func(ctx context.Context, i int) error {
		o, err := s.l.Get(ctx, keys[i])
		if err != nil {
			return fmt.Errorf("%s: %w", keys[i], err)
		}
		if o != nil {
			s.put(o)
		}
		return nil
	})
}

// trees reads rate limits with all below them.
func (s *state) trees(ctx context.Context, roots []desired.Key) error {
	return desired.Each(ctx, len(roots), func(ctx context.Context, i int) error { return s.tree(ctx, roots[i]) })
}

// tree reads a rate limit with all below it.
func (s *state) tree(ctx context.Context, root desired.Key) error {
	ctx, cancel := s.l.within(ctx)
	defer cancel()
	n, err := s.l.node(ctx, root.Node)
	if err != nil {
		return err
	}
	x, err := ratelimit.Describe(ctx, n, root.Name, 0)
	if err != nil {
		_, err = orNil(nil, err)
		return err
	}
	for i := range x.Resources {
		o := &desired.Object{Key: desired.Key{Kind: desired.Limit, Node: root.Node, Name: x.Resources[i].Path}}
		if err := showResource(o, &x.Resources[i]); err != nil {
			return fmt.Errorf("%s: %w", o.Key, err)
		}
		s.put(o)
	}
	return nil
}

// rights reads all rights, and who we are.
func (s *state) rights(ctx context.Context) error {
	ctx, cancel := s.l.within(ctx)
	defer cancel()
	a, err := admin.New(s.l.c).Auth(ctx)
	if err != nil {
		return err
	}
	for _, r := range a.Rights {
		s.put(desired.RightObject(r.Identity, r.Path, r.Right, desired.Position{}))
	}
	if !a.Enabled {
		return nil
	}
	w, err := admin.New(s.l.c).WhoAmI(ctx)
	if err == nil {
		s.Caller = w.Identity
	}
	return err
}

// inside reads all that a node has, and who uses it.
func (s *state) inside(ctx context.Context, node *desired.Object) error {
	bounded, cancel := s.l.within(ctx)
	defer cancel()
	has, err := admin.Nodes(s.l.c).Delete(bounded, node.Node, admin.DeleteOptions{DryRun: true})
	if err != nil {
		return fmt.Errorf("%s: %w", node.Key, err)
	}
	sessions := has.Sessions
	if sessions > 0 {
		if sessions, err = s.l.otherSessions(bounded, node.Node); err != nil {
			return err
		}
	}
	node.Uses = usesOf(sessions, "session", has.Processes, "process")
	for n, err := range admin.Nodes(s.l.c).List(bounded, node.Node+"/") {
		if err != nil {
			return err
		}
		o := &desired.Object{Key: desired.Key{Kind: desired.Node, Node: n.Path}}
		s.l.showNode(o, &n)
		s.mu.Lock()
		if s.Objects[o.Key] == nil { // if it is named, its uses are read by another goroutine
			s.Objects[o.Key] = o
		}
		s.mu.Unlock()
	}
	if has.Semaphores+has.Tracks+has.Limits == 0 {
		return nil
	}
	return s.contents(ctx, []string{node.Node})
}

// contents reads all objects of nodes.
func (s *state) contents(ctx context.Context, paths []string) error {
	keys, roots := make([][]desired.Key, len(paths)), make([][]desired.Key, len(paths))
	err := desired.Each(ctx, len(paths), func(ctx context.Context, i int) (err error) {
		if keys[i], roots[i], err = s.l.names(ctx, paths[i]); err != nil {
			err = fmt.Errorf("node %s: %w", paths[i], err)
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := s.get(ctx, slices.Concat(keys...)); err != nil {
		return err
	}
	return s.trees(ctx, slices.Concat(roots...))
}

// names lists the objects of a node, and the roots of its limits.
func (l *liveCluster) names(ctx context.Context, path string) (keys, roots []desired.Key, err error) {
	bounded, cancel := l.within(ctx)
	defer cancel()
	n, err := l.node(bounded, path)
	if err != nil {
		return nil, nil, err
	}
	add := func(kind desired.Kind, name string) {
		keys = append(keys, desired.Key{Kind: kind, Node: path, Name: name})
	}
	for x, err := range n.List(bounded, "", client.ReadConsistency(client.Strict)) {
		name, isConfig := strings.CutPrefix(x.Name, client.ConfigPrefix)
		switch {
		case err != nil:
			return nil, nil, err
		case isConfig:
			add(desired.Config, name)
		case !x.Ephemeral:
			add(desired.Semaphore, x.Name)
		}
	}
	for x, err := range rollout.List(bounded, n, "") {
		if err != nil {
			return nil, nil, err
		}
		add(desired.Rollout, x.Track)
	}
	for x, err := range ratelimit.List(bounded, n, "") {
		if err != nil {
			return nil, nil, err
		}
		roots = append(roots, desired.Key{Kind: desired.Limit, Node: path, Name: x.Name})
	}
	return keys, roots, nil
}

// All reads the whole cluster, or what is at a path and below it.
func (l *liveCluster) All(ctx context.Context, path string) (*desired.State, error) {
	s := &state{State: desired.State{Objects: map[desired.Key]*desired.Object{}}, l: l}
	bounded, cancel := l.within(ctx)
	defer cancel()
	var paths []string
	for n, err := range admin.Nodes(l.c).List(bounded, path) {
		if err != nil {
			return nil, err
		}
		if path == "" || n.Path == path || strings.HasPrefix(n.Path, path+"/") {
			o := &desired.Object{Key: desired.Key{Kind: desired.Node, Node: n.Path}}
			l.showNode(o, &n)
			s.put(o)
			paths = append(paths, n.Path)
		}
	}
	if path != "" && len(paths) == 0 {
		return nil, protocol.Errorf(protocol.StatusNotFound, "there is no coordination node at %s or below it", path)
	}
	if err := s.contents(ctx, paths); err != nil {
		return nil, err
	}
	if path == "" {
		if err := s.rights(ctx); err != nil {
			return nil, err
		}
	}
	return &s.State, nil
}

// Classify says what an error of a change means.
func (l *liveCluster) Classify(err error) desired.Verdict {
	if errors.Is(err, client.ErrSessionExpired) {
		return desired.Lost
	}
	if errors.Is(err, client.ErrOutcomeUnknown) {
		return desired.Failed
	}
	switch protocol.StatusOf(err) {
	case protocol.StatusPreconditionFailed, protocol.StatusAlreadyExists, protocol.StatusNotFound, protocol.StatusBadRequest:
		return desired.Refused
	}
	return desired.Failed
}

// Do makes a change.
func (l *liveCluster) Do(ctx context.Context, c *desired.Change) error {
	ctx, cancel := l.within(ctx)
	defer cancel()
	switch c.Kind {
	case desired.Node:
		return l.changeNode(ctx, c)
	case desired.Right:
		a := admin.New(l.c).WithReason(l.reason)
		if c.Op == desired.Delete {
			return a.Revoke(ctx, c.Name, c.Key.Node)
		}
		_, err := a.Grant(ctx, c.Name, c.Key.Node, c.Want.Settings[0].Value.String())
		return err
	}
	s, err := l.session(ctx, c.Key.Node)
	if err != nil {
		return err
	}
	switch c.Kind {
	case desired.Semaphore:
		err = l.changeSemaphore(ctx, s, c)
	case desired.Config:
		err = l.changeConfig(ctx, s, c)
	case desired.Limit:
		err = l.changeLimit(ctx, s, c)
	case desired.Rollout:
		err = l.changeRollout(ctx, s, c)
	}
	if errors.Is(err, client.ErrSessionExpired) { // the next try has another one
		_ = l.leave(ctx, c.Key.Node)
	}
	return err
}

func (l *liveCluster) changeNode(ctx context.Context, c *desired.Change) (err error) {
	switch nodes := admin.Nodes(l.c); c.Op {
	case desired.Create:
		x := c.Want.Config.(*nodeObject)
		var opts []admin.NodeOption
		if x.tier != "" {
			opts = append(opts, admin.InTier(x.tier))
		}
		_, err = nodes.Create(ctx, c.Key.Node, x.config, opts...)
	case desired.Alter:
		_, err = nodes.Alter(ctx, c.Key.Node, c.Want.Config.(*nodeObject).config)
	case desired.Delete:
		return l.dropNode(ctx, c.Key.Node)
	}
	return err
}

// dropNode removes a node that has nothing. It waits for the ends of sessions of other runs of
// apply, or of one that was killed.
func (l *liveCluster) dropNode(ctx context.Context, path string) error {
	if err := l.leave(ctx, path); err != nil {
		return err
	}
	for {
		_, err := admin.Nodes(l.c).Delete(ctx, path, admin.DeleteOptions{Reason: l.reason})
		if !errors.Is(err, protocol.StatusPreconditionFailed) {
			return err
		}
		others, failed := l.otherSessions(ctx, path)
		if failed != nil || others > 0 {
			return err
		}
		has, failed := admin.Nodes(l.c).Delete(ctx, path, admin.DeleteOptions{DryRun: true})
		if failed != nil || has.Sessions == 0 && has.InUse() {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// otherSessions counts the sessions of a node that are not of runs of apply.
func (l *liveCluster) otherSessions(ctx context.Context, path string) (n uint64, err error) {
	node, err := l.node(ctx, path)
	if err != nil {
		return 0, err
	}
	for s, err := range admin.OfNode(node).Sessions(ctx) {
		if err != nil {
			return 0, err
		}
		if !strings.HasPrefix(s.Description, "apply@") {
			n++
		}
	}
	return n, nil
}

func (l *liveCluster) changeSemaphore(ctx context.Context, s *client.Session, c *desired.Change) error {
	reason := client.Reason(l.reason)
	if c.Op == desired.Delete {
		return s.Delete(ctx, c.Name, false, reason)
	}
	want := c.Want.Config.(*semaphoreObject)
	opts, err := optionsOf(&want.options)
	if err != nil {
		return err
	}
	if c.Op == desired.Create {
		if want.options.Plain() {
			opts = nil
		}
		return s.Create(ctx, c.Name, want.limit, c.Want.Data, append(opts, reason)...)
	}
	have := c.Have.Config.(*semaphoreObject)
	steps := []func() error{
		func() error {
			if slices.IndexFunc(c.Fields, func(f desired.Field) bool { return f.Name != "limit" && f.Name != "data" }) < 0 {
				return nil
			}
			return s.Alter(ctx, c.Name, append(opts, reason)...)
		},
		func() error {
			if want.limit == have.limit || len(want.options.Slots) > 0 { // the limit is that of the slots
				return nil
			}
			return s.Resize(ctx, c.Name, want.limit, reason)
		},
	}
	if len(want.options.Slots) == 0 && want.options.Fit(have.limit) != "" { // only with the new limit
		slices.Reverse(steps)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	if c.Want.HasData && string(c.Want.Data) != string(c.Have.Data) {
		_, err := s.Update(ctx, c.Name, c.Want.Data, reason)
		return err
	}
	return nil
}

// optionsOf are all options of a semaphore. It refuses a policy that this program does not know,
// which the semaphore may have and the document not name.
func optionsOf(w *protocol.SemaphoreOptions) ([]client.SemaphoreOption, error) {
	of := func(ms uint64) time.Duration { return time.Duration(ms) * time.Millisecond }
	opts := []client.SemaphoreOption{
		nil, client.KeepHistory(int(w.History)), client.LongestHold(of(w.MaxHold)), client.ExtendHolds(w.Extend),
		client.Preempt(client.PreemptMode(w.Preempt)), client.Grace(of(w.Grace)), client.MinHold(of(w.MinHold)),
	}
	switch w.Policy {
	case protocol.PolicyFIFO:
		opts[0] = client.FIFO()
	case protocol.PolicyPriority:
		opts[0] = client.ByPriority(of(w.Aging))
	case protocol.PolicyFair:
		weights := map[string]uint64{}
		for _, x := range w.Weights {
			weights[string(x.Key)] = x.Weight
		}
		opts[0] = client.ByKey(weights)
	default:
		return nil, fmt.Errorf("the semaphore has policy %d, which this program does not know; use that of the cluster's version", w.Policy)
	}
	if w.Numbered {
		return append(opts, client.NumberedSlots()), nil
	}
	var slots []client.Slot
	for _, x := range w.Slots {
		slots = append(slots, client.Slot{Name: x.Name, Labels: x.Labels})
	}
	return append(opts, client.NamedSlots(slots...)), nil
}

func (l *liveCluster) changeConfig(ctx context.Context, s *client.Session, c *desired.Change) (err error) {
	had := client.IfVersion(0)
	if c.Have != nil {
		had = client.IfVersion(c.Have.Revision)
	}
	if c.Op == desired.Delete {
		return s.Config(c.Name).Delete(ctx, had, client.Reason(l.reason))
	}
	_, err = s.Config(c.Name).Set(ctx, c.Want.Data, had, client.Reason(l.reason))
	return err
}

func (l *liveCluster) changeLimit(ctx context.Context, s *client.Session, c *desired.Change) (err error) {
	reason := ratelimit.Reason(l.reason)
	switch c.Op {
	case desired.Create:
		_, err = ratelimit.Create(ctx, s, c.Name, *c.Want.Config.(*ratelimit.Config), reason)
	case desired.Alter:
		config := *c.Want.Config.(*ratelimit.Config)
		config.Foreign = c.Have.Config.(*ratelimit.Config).Foreign
		_, err = ratelimit.Alter(ctx, s, c.Name, c.Have.Revision, config, reason)
	case desired.Delete:
		err = ratelimit.Delete(ctx, s, c.Name, c.Have.Revision, reason)
	}
	return err
}

func (l *liveCluster) changeRollout(ctx context.Context, s *client.Session, c *desired.Change) (err error) {
	t := rollout.Open(s, c.Name)
	switch c.Op {
	case desired.Create:
		_, err = t.Create(ctx, *c.Want.Config.(*rollout.Config))
	case desired.Alter:
		_, err = t.Alter(ctx, c.Have.Revision, *c.Want.Config.(*rollout.Config))
	case desired.Delete:
		err = t.Delete(ctx, false)
	}
	return err
}

// checkTiers refuses nodes in tiers that there are not.
func (l *liveCluster) checkTiers(ctx context.Context, changes []*desired.Change) error {
	m, err := admin.New(l.c).Map(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, t := range m.Tiers {
		if t.Buckets > 0 {
			names = append(names, t.Name)
		}
	}
	for _, c := range changes {
		if c.Kind != desired.Node || c.Op != desired.Create {
			continue
		}
		if tier := cmp.Or(c.Want.Config.(*nodeObject).tier, l.tier); !slices.Contains(names, tier) {
			return c.Want.At.Errorf("node %s: there is no tier %s with data in the cluster; there is %s",
				c.Key.Node, tier, strings.Join(names, ", "))
		}
	}
	return nil
}
