package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/client/rollout"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/desired"
	"github.com/signalbox-dev/signalbox/protocol"
)

// State reads the objects that a document names, and all objects in nodes that are to go.
func (l *liveCluster) State(ctx context.Context, d *desired.Document) (*desired.State, error) {
	s := &state{State: desired.State{Objects: map[desired.Key]*desired.Object{}}, l: l}
	var nodes, others, trusts []desired.Key
	trees := map[desired.Key]bool{}
	add := func(k desired.Key) {
		switch k.Kind {
		case desired.Node:
			nodes = append(nodes, k)
		case desired.Limit:
			k.Name = protocol.LimitRoot(k.Name)
			trees[k] = true
		case desired.Trust:
			trusts = append(trusts, k)
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
	if err := s.get(ctx, slices.Concat(nodes, trusts)); err != nil {
		return nil, err
	}
	others = slices.DeleteFunc(others, func(k desired.Key) bool {
		return s.Objects[desired.Key{Kind: desired.Node, Node: k.Node}] == nil
	})
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
	l     *liveCluster
	mu    sync.Mutex    // guards Objects
	known []desired.Key // of all trusts, once rights are read
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
	for _, t := range a.Trusts {
		s.known = append(s.known, desired.Key{Kind: desired.Trust, Name: t.Name})
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

// All reads the whole cluster, or the nodes at a path and below it.
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
		if err := s.get(ctx, s.known); err != nil {
			return nil, err
		}
	}
	return &s.State, nil
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
