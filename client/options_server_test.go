package client_test

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/client/process"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/client/rollout"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// text prints a list, or the error that ended it.
func text[T any](list iter.Seq2[T, error]) (string, error) {
	var b strings.Builder
	for x, err := range list {
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "%v\n", x)
	}
	return b.String(), nil
}

// TestReadOptions: each read refuses each option that it does not take, and each one that it takes
// changes the result. Of the other lists, which have the same options, it is the refusals alone.
func TestReadOptions(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	ctx := testContext(t)
	c := dial(t, srv)
	a, b, waits := session(t, c), session(t, c), session(t, c)
	n := a.Node()
	must(t, a.Create(ctx, "sem", 2, nil, client.SemaphoreConfig{Numbered: true}))
	first := acquire(t, a, "sem")
	acquire(t, b, "sem")
	queue(t, waits, "sem")
	member, err := a.Service("api").Register(ctx, []byte("10.0.0.1:80"))
	must(t, err)
	_, err = b.Service("api").Register(ctx, []byte("10.0.0.2:80"))
	must(t, err)
	for _, name := range []string{"a", "b"} {
		_, err := a.Config(name).Set(ctx, []byte(name))
		must(t, err)
	}
	tree := admin.Nodes(c)
	_, err = tree.Create(ctx, "/default/a", admin.NodeConfig{})
	must(t, err)

	options := []struct {
		name   string
		option client.ReadOption
	}{
		{"IncludeOwners", client.IncludeOwners()},
		{"IncludeWaiters", client.IncludeWaiters()},
		{"IncludeSlots", client.IncludeSlots()},
		{"ReadConsistency", client.ReadConsistency(client.Strict)}, // the result is the same, and maybe newer
		{"OfSession", client.OfSession(waits.ID())},
		{"MaxItems", client.MaxItems(1)},
		{"After", client.After("api")},
		{"AfterToken", client.AfterToken(min(first.Token(), member.Token()))},
		{"AfterSession", client.AfterSession(a.ID())},
	}
	for _, read := range []struct {
		name  string
		takes string
		call  func(opts ...client.ReadOption) (string, error)
		empty bool // there is nothing to tell results apart
	}{
		{"Node.Describe", "IncludeOwners IncludeWaiters IncludeSlots ReadConsistency MaxItems AfterToken",
			func(opts ...client.ReadOption) (string, error) {
				sem, err := n.Describe(ctx, "sem", opts...)
				if err != nil {
					return "", err
				}
				slots := 0
				if sem.Config != nil {
					slots = len(sem.Config.Slots)
				}
				return fmt.Sprint(len(sem.Owners), len(sem.Waiters), slots), nil
			}, false},
		{"Node.List", "ReadConsistency OfSession MaxItems After", func(opts ...client.ReadOption) (string, error) {
			return text(n.List(ctx, "", opts...))
		}, false},
		{"Node.Configs", "ReadConsistency OfSession MaxItems After", func(opts ...client.ReadOption) (string, error) {
			return text(n.Configs(ctx, "", opts...))
		}, false},
		{"ServiceReader.List", "ReadConsistency MaxItems AfterToken", func(opts ...client.ReadOption) (string, error) {
			list, err := n.Service("api").List(ctx, opts...)
			return fmt.Sprint(len(list)), err
		}, false},
		{"ConfigReader.Get", "ReadConsistency", func(opts ...client.ReadOption) (string, error) {
			_, err := n.Config("a").Get(ctx, opts...)
			return "", err
		}, false},
		{"ConfigReader.History", "ReadConsistency", func(opts ...client.ReadOption) (string, error) {
			_, err := n.Config("a").History(ctx, opts...)
			return "", err
		}, false},
		{"admin.Node.Sessions", "MaxItems AfterSession", func(opts ...client.ReadOption) (string, error) {
			return text(admin.OfNode(n).Sessions(ctx, opts...))
		}, false},
		{"admin.NodeTree.List", "MaxItems After", func(opts ...client.ReadOption) (string, error) {
			return text(tree.List(ctx, "", opts...))
		}, false},
		{"process.List", "MaxItems After", func(opts ...client.ReadOption) (string, error) {
			return text(process.List(ctx, n, "", opts...))
		}, true},
		{"rollout.List", "MaxItems After", func(opts ...client.ReadOption) (string, error) {
			return text(rollout.List(ctx, n, "", opts...))
		}, true},
		{"ratelimit.List", "MaxItems After", func(opts ...client.ReadOption) (string, error) {
			return text(ratelimit.List(ctx, n, "", opts...))
		}, true},
	} {
		takes := strings.Fields(read.takes)
		for _, o := range options {
			var base []client.ReadOption
			if read.name == "Node.Describe" && (o.name == "MaxItems" || o.name == "AfterToken") { // what is bounded has to be there
				base = []client.ReadOption{client.IncludeOwners(), client.IncludeWaiters()}
			}
			plain, err := read.call(base...)
			must(t, err)
			got, err := read.call(append(base, o.option)...)
			switch taken := slices.Contains(takes, o.name); {
			case !taken && !errors.Is(err, client.ErrBadRequest):
				t.Errorf("%s neither takes nor refuses %s: %v", read.name, o.name, err)
			case taken && err != nil:
				t.Errorf("%s refuses %s: %v", read.name, o.name, err)
			case taken && got == plain && !read.empty && o.name != "ReadConsistency":
				t.Errorf("%s takes %s, and ignores it: %s", read.name, o.name, got)
			}
		}
		for _, n := range []int{0, -1, 10_001} {
			if _, err := read.call(client.MaxItems(n)); !errors.Is(err, client.ErrBadRequest) {
				t.Errorf("%s with %d items at most: %v", read.name, n, err)
			}
		}
	}
}

// TestWriteOptions: a write of another version is refused, and nothing is changed; the write of the
// present version is done.
func TestWriteOptions(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t) // versions begin at 1
	ctx := testContext(t)
	s := session(t, dial(t, srv))
	sem, cfg := "", s.Config("")
	for i, x := range []struct {
		name  string
		write func(opts ...client.WriteOption) error
	}{
		{"Session.Update", func(opts ...client.WriteOption) error {
			_, err := s.Update(ctx, sem, []byte("third"), opts...)
			return err
		}},
		{"Session.Resize", func(opts ...client.WriteOption) error { return s.Resize(ctx, sem, 7, opts...) }},
		{"Session.Delete", func(opts ...client.WriteOption) error { return s.Delete(ctx, sem, false, opts...) }},
		{"Session.Delete by force", func(opts ...client.WriteOption) error { return s.Delete(ctx, sem, true, opts...) }},
		{"ConfigValue.Set", func(opts ...client.WriteOption) error {
			_, err := cfg.Set(ctx, []byte("third"), opts...)
			return err
		}},
		{"ConfigValue.Rollback", func(opts ...client.WriteOption) error {
			_, err := cfg.Rollback(ctx, 1, opts...)
			return err
		}},
		{"ConfigValue.Delete", func(opts ...client.WriteOption) error { return cfg.Delete(ctx, opts...) }},
	} {
		sem, cfg = fmt.Sprint("sem", i), s.Config(fmt.Sprint("c", i)) // new ones, whose second version is 2
		must(t, s.Create(ctx, sem, 1, []byte("first")))
		_, err := s.Update(ctx, sem, []byte("second"))
		must(t, err)
		for _, value := range []string{"first", "second"} {
			_, err := cfg.Set(ctx, []byte(value))
			must(t, err)
		}
		state := func() string {
			d, err := s.Node().Describe(ctx, sem, client.ReadConsistency(client.Strict))
			if err != nil {
				return "no semaphore"
			}
			v, err := cfg.Get(ctx)
			return fmt.Sprint(d.Limit, string(d.Data), string(v.Data), err)
		}
		before := state()
		for _, version := range []uint64{0, 1, 3} {
			if err := x.write(client.IfVersion(version)); !errors.Is(err, client.ErrPreconditionFailed) ||
				state() != before {
				t.Errorf("%s of version %d: %v; %s", x.name, version, err, state())
			}
		}
		if err := x.write(client.Reason(strings.Repeat("r", 1025))); !errors.Is(err, client.ErrBadRequest) ||
			state() != before {
			t.Errorf("%s ignores its reason: %v", x.name, err)
		}
		if err := x.write(client.IfVersion(2)); err != nil || state() == before {
			t.Errorf("%s of the present version: %v; %s", x.name, err, state())
		}
	}
}

// TestNothingAsked: what would ask for nothing is refused.
func TestNothingAsked(t *testing.T) {
	t.Parallel()
	node := shared.Node(t)
	ctx := testContext(t)
	s := session(t, dial(t, node))
	must(t, s.Create(ctx, "sem", 3, nil))
	l := acquire(t, s, "sem", client.Count(2))
	p := process.NewOperator(s.Node(), "p")
	for name, err := range map[string]error{
		"Reduce to 0":                   l.Reduce(ctx, 0),
		"Alter with Synchronous":        p.Alter(ctx, process.Options{Synchronous: true}),
		"Alter with Key":                p.Alter(ctx, process.Options{Key: "k"}),
		"Alter with Data":               p.Alter(ctx, process.Options{Data: []byte("d")}),
		"Alter with Weight":             p.Alter(ctx, process.Options{Weight: 1}),
		"Alter with RetryInterval":      p.Alter(ctx, process.Options{RetryInterval: 1}),
		"Alter with MaxProcessFailures": p.Alter(ctx, process.Options{MaxProcessFailures: 1}),
	} {
		if !errors.Is(err, client.ErrBadRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if l.Count() != 2 || !l.Held() {
		t.Errorf("%d units are held", l.Count())
	}
}
