package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

func TestMutex(t *testing.T) {
	srv := servertest.Start(t)
	ctx := testContext(t)
	s := session(t, dial(t, srv))
	m := s.Mutex("m")
	l, err := m.Lock(ctx)
	must(t, err)
	if other, err := m.TryLock(ctx); other != nil || !errors.Is(err, client.ErrAlreadyHeld) {
		t.Fatal(other, err)
	}
	// A second goroutine of the session queues behind the first.
	second := async(func() (*client.Lease, error) { return m.Lock(ctx, client.Data("second")) })
	release(t, l)
	l = second.must(t)
	short, cancel := context.WithCancel(ctx)
	third := async(func() (*client.Lease, error) { return m.Lock(short) })
	cancel()
	if _, err := third.get(); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	release(t, l)
}

func TestRWMutex(t *testing.T) {
	srv := servertest.Start(t)
	ctx := testContext(t)
	c := dial(t, srv)
	r1, r2, w := session(t, c).RWMutex("rw"), session(t, c).RWMutex("rw"), session(t, c).RWMutex("rw")
	a, err := r1.RLock(ctx)
	must(t, err)
	b, err := r2.RLock(ctx)
	must(t, err)
	if l, err := w.TryLock(ctx); l != nil || err != nil {
		t.Fatal("write lock beside readers:", l, err)
	}
	writing := async(func() (*client.Lease, error) { return w.Lock(ctx) })
	release(t, a)
	release(t, b)
	l := writing.must(t)
	if l, err := r1.TryRLock(ctx); l != nil || err != nil {
		t.Fatal("read lock beside a writer:", l, err)
	}
	release(t, l)
	l, err = r1.TryRLock(ctx)
	if l == nil || err != nil {
		t.Fatal(l, err)
	}
	release(t, l)
}

// TestOneNameForTwoKinds: a member of a service is no leader of an election of the same name, and
// the leader is no member. Neither waits for the other: both are told what the name is.
func TestOneNameForTwoKinds(t *testing.T) {
	srv := servertest.Start(t)
	ctx := testContext(t)
	c := dial(t, srv)
	s := session(t, c)
	n, err := c.Node(ctx, "/default")
	must(t, err)
	term, err := s.Election("both").Campaign(ctx)
	must(t, err)
	if list, err := n.Service("both").List(ctx); err != nil || len(list) != 0 {
		t.Errorf("members beside a leader: %+v, %v", list, err)
	}
	if l, err := n.Election("both").Leader(ctx); err != nil || l.Token != term.Token {
		t.Errorf("the leader: %+v, %v", l, err)
	}
	other := session(t, dial(t, srv))
	refused := func(err error, kind string) {
		t.Helper()
		if !errors.Is(err, client.PreconditionFailed) || !strings.Contains(err.Error(), kind) {
			t.Errorf("got %v, want one with %q", err, kind)
		}
	}
	_, err = other.Service("both").Register(ctx, nil)
	refused(err, "an election or a lock")
	release(t, term.Lease)
	_, err = s.Service("both").Register(ctx, []byte("10.0.0.1:80"))
	must(t, err)
	_, err = other.Election("both").Campaign(ctx)
	refused(err, "sessions that hold units of it: 1")
	refused(other.Election("both").Run(ctx, nil), "a service or a shared lock")
	_, err = other.Service("both").Register(ctx, []byte("10.0.0.2:80"))
	must(t, err)
	if l, err := n.Election("both").Leader(ctx); err != nil || l.Exists {
		t.Errorf("a leader beside a member: %+v, %v", l, err)
	}
	if list, err := n.Service("both").List(ctx); err != nil || len(list) != 2 {
		t.Errorf("members: %+v, %v", list, err)
	}
}

func TestElection(t *testing.T) {
	srv := servertest.Start(t)
	ctx := testContext(t)
	c := dial(t, srv)
	n, err := c.Node(ctx, "/default")
	must(t, err)
	if l, err := n.Election("boss").Leader(ctx); err != nil || l.Exists {
		t.Fatal(l, err)
	}
	next, stop := iter.Pull2(n.Election("boss").Observe(ctx))
	defer stop()
	observe := func() client.Leader {
		t.Helper()
		l, err, _ := next()
		must(t, err)
		return l
	}
	if observe().Exists {
		t.Fatal("somebody leads already")
	}

	var leading atomic.Int64
	var tokens []uint64
	ended := make(chan error, 3)
	turn := make(chan error)
	for i := range 3 {
		e := session(t, c).Election("boss")
		go func() {
			ended <- e.Run(ctx, func(ctx context.Context, term client.Term) error {
				if leading.Add(1) != 1 {
					t.Error("two leaders")
				}
				defer leading.Add(-1)
				tokens = append(tokens, term.Token)
				return <-turn
			}, client.Data(fmt.Sprint("candidate", i)))
		}()
	}
	failed := errors.New("enough")
	last := client.Leader{}
	for i, result := range []error{nil, failed, nil} {
		for l := observe(); ; l = observe() {
			if l.Exists && l.Token != last.Token {
				last = l
				break
			}
		}
		if len(last.Data) == 0 {
			t.Fatal("leader without data")
		}
		turn <- result
		if err := <-ended; !errors.Is(err, result) || (result == nil) != (err == nil) {
			t.Fatalf("run %d: %v, want %v", i, err, result)
		}
	}
	if !slices.IsSorted(tokens) || len(tokens) != 3 {
		t.Fatal(tokens)
	}

	// Losing the leadership ends the term's context; Run goes on with the next term, or ends with
	// the session.
	s := session(t, c)
	begun := make(chan client.Term, 1)
	run := async(func() (int, error) {
		return 0, s.Election("boss").Run(ctx, func(ctx context.Context, term client.Term) error {
			begun <- term
			<-ctx.Done()
			return ctx.Err()
		})
	})
	<-begun
	must(t, admin.OfNode(n).KillSession(ctx, s.ID(), "test"))
	if _, err := run.get(); !errors.Is(err, client.ErrSessionExpired) {
		t.Fatal(err)
	}

	s = session(t, c)
	e := s.Election("boss")
	async(func() (client.Term, error) { return e.Campaign(ctx) }).while(t, watchChanges(srv))
	must(t, e.Resign(ctx))
	must(t, e.Resign(ctx))
}

func TestService(t *testing.T) {
	srv := servertest.Start(t)
	ctx := testContext(t)
	c := dial(t, srv)
	n, err := c.Node(ctx, "/default")
	must(t, err)
	if list, err := n.Service("api").List(ctx); err != nil || len(list) != 0 {
		t.Fatal(list, err)
	}
	var regs []*client.Registration
	for i := range 3 {
		r, err := session(t, c).Service("api").Register(ctx, []byte(fmt.Sprint("host", i)))
		must(t, err)
		regs = append(regs, r)
	}
	next, stop := iter.Pull2(n.Service("api").Watch(ctx))
	defer stop()
	step := func() client.MemberEvent {
		t.Helper()
		ev, err, _ := next()
		must(t, err)
		return ev
	}
	if ev := step(); ev.Kind != client.MemberSnapshot || len(ev.Members) != 3 || string(ev.Members[1].Data) != "host1" {
		t.Fatalf("%+v", ev)
	}
	must(t, regs[0].Update(ctx, []byte("moved")))
	if ev := step(); ev.Kind != client.MemberChanged || string(ev.Member.Data) != "moved" || ev.Member.Token != regs[0].Lease.Token() {
		t.Fatalf("%+v", ev)
	}
	must(t, regs[1].Deregister(ctx))
	if ev := step(); ev.Kind != client.MemberRemoved || string(ev.Member.Data) != "host1" {
		t.Fatalf("%+v", ev)
	}
	if _, err := regs[2].Lease.Session().Service("api").Register(ctx, nil); !errors.Is(err, client.ErrAlreadyHeld) {
		t.Fatal(err)
	}
	srv.Unreachable()
	if ev := step(); ev.Kind != client.MemberInterrupted { // long before it is back
		t.Fatalf("%+v", ev)
	}
	srv.Reachable()
	if ev := step(); ev.Kind != client.MemberSynced {
		t.Fatalf("%+v", ev)
	}
	// A service over a semaphore that was created works as well.
	s := session(t, c)
	must(t, s.Create(ctx, "made", client.Max, nil))
	_, err = s.Service("made").Register(ctx, []byte("x"))
	must(t, err)
	if list, err := n.Service("made").List(ctx, client.ReadConsistency(client.Strict)); err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
}

// TestServiceRestarts: a watch over members that all restart, with lost links, ends with the exact
// list.
func TestServiceRestarts(t *testing.T) {
	srv := servertest.Start(t)
	ctx := testContext(t)
	c, watching := dial(t, srv), dial(t, srv)
	n, err := watching.Node(ctx, "/default")
	must(t, err)
	const count = 200
	var mu sync.Mutex
	have := map[uint64]bool{}
	watched, stop := context.WithCancel(ctx)
	finished := async(func() (int, error) {
		for ev, err := range n.Service("fleet").Watch(watched) {
			if err != nil {
				return 0, err
			}
			mu.Lock()
			switch ev.Kind {
			case client.MemberSnapshot:
				for _, m := range ev.Members {
					have[m.Token] = true
				}
			case client.MemberAdded:
				if have[ev.Member.Token] {
					t.Error("added twice")
				}
				have[ev.Member.Token] = true
			case client.MemberRemoved:
				if !have[ev.Member.Token] {
					t.Error("removed, and was never there")
				}
				delete(have, ev.Member.Token)
			}
			mu.Unlock()
		}
		return 0, nil
	})
	want := make([]atomic.Uint64, count)
	var wg sync.WaitGroup
	for i := range count {
		wg.Go(func() {
			for round := range 2 {
				s, err := c.Session(ctx, "/default")
				if err == nil {
					var r *client.Registration
					if r, err = s.Service("fleet").Register(ctx, []byte(fmt.Sprint(i))); err == nil {
						want[i].Store(r.Lease.Token())
					}
				}
				if err == nil && round == 0 {
					err = s.Close(ctx)
				}
				if err != nil {
					t.Error(err)
				}
				if i%50 == 7 {
					srv.DropConnections()
				}
			}
		})
	}
	wg.Wait()
	await.True(t, "the services to be listed", func() bool {
		srv.Advance(time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		if len(have) != count {
			return false
		}
		for i := range want {
			if !have[want[i].Load()] {
				return false
			}
		}
		return true
	})
	stop()
	if _, err := finished.get(); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestConfig(t *testing.T) {
	srv := servertest.Start(t)
	ctx := testContext(t)
	s, err := dial(t, srv).Session(ctx, "/default", client.Description("the author"))
	must(t, err)
	cfg := s.Config("flags")
	if _, err := cfg.Get(ctx); !errors.Is(err, client.NotFound) {
		t.Fatal(err)
	}
	next, stop := iter.Pull2(cfg.Watch(ctx))
	defer stop()
	step := func(want string, version uint64) {
		t.Helper()
		v, err, _ := next()
		must(t, err)
		if string(v.Data) != want || v.Version != version || v.Exists != (version > 0) {
			t.Fatalf("%+v, want %q %d", v, want, version)
		}
	}
	step("", 0)
	if _, err := cfg.Set(ctx, []byte("x"), client.IfVersion(1)); !errors.Is(err, client.PreconditionFailed) {
		t.Fatal(err)
	}
	set := func(data string, want uint64, opts ...client.WriteOption) {
		t.Helper()
		v, err := cfg.Set(ctx, []byte(data), opts...)
		if err != nil || v != want {
			t.Fatal(v, err)
		}
	}
	set("a", 1, client.IfVersion(0))
	step("a", 1)
	set("b", 2)
	step("b", 2)
	set("c", 3, client.IfVersion(2))
	step("c", 3)
	for _, v := range []uint64{0, 2} {
		if _, err := cfg.Set(ctx, []byte("d"), client.IfVersion(v)); !errors.Is(err, client.PreconditionFailed) {
			t.Fatal(v, err)
		}
	}
	if v, err := cfg.Get(ctx); err != nil || string(v.Data) != "c" || v.Version != 3 {
		t.Fatal(v, err)
	}
	// Its history names who set it. An old value comes back as a new version.
	if v, err := cfg.Rollback(ctx, 1); err != nil || v != 4 {
		t.Fatal(v, err)
	}
	values, err := cfg.History(ctx)
	if err != nil || len(values) != 4 || string(values[0].Data) != string(values[3].Data) || values[0].Author != "the author" {
		t.Fatal(values, err)
	}
	step(string(values[0].Data), 4)
	if _, err := cfg.Rollback(ctx, 7); !errors.Is(err, client.NotFound) || !strings.Contains(err.Error(), "version 7 is not") {
		t.Fatal(err)
	}
	must(t, cfg.Delete(ctx))
	step("", 0)
	if err := cfg.Delete(ctx); !errors.Is(err, client.NotFound) {
		t.Fatal(err)
	}
}

// TestConfigHistory: many sessions set one configuration. No value is lost, and what is told of the
// past is the end of what was set.
func TestConfigHistory(t *testing.T) {
	srv := servertest.Start(t)
	ctx := testContext(t)
	c := dial(t, srv)
	const writers, each = 4, 6
	var mu sync.Mutex
	received := map[uint64]string{}
	var all sync.WaitGroup
	for w := range writers {
		s := session(t, c)
		all.Go(func() {
			for i := range each {
				data := fmt.Sprintf("writer %d, value %d", w, i)
				v, err := s.Config("flags").Set(ctx, []byte(data))
				mu.Lock()
				if received[v] != "" || err != nil {
					t.Errorf("version %d was %q and is %q, %v", v, received[v], data, err)
				}
				received[v] = data
				mu.Unlock()
			}
		})
	}
	all.Wait()
	s := session(t, c)
	check := func(cfg client.ConfigReader, newest uint64, want int) {
		t.Helper()
		list, err := cfg.History(ctx)
		if err != nil || len(list) != want {
			t.Fatalf("%d values, %v; want %d", len(list), err, want)
		}
		for i, v := range list {
			if v.Version != newest-uint64(i) || !v.Exists || v.Time.IsZero() ||
				received[v.Version] != "" && string(v.Data) != received[v.Version] {
				t.Errorf("value %d is version %d, %q, set at %s", i, v.Version, v.Data, v.Time)
			}
		}
	}
	check(s.Config("flags").ConfigReader, writers*each, 11)

	// The bounds are bytes, too: what is too long to be kept is not, and the present value is never
	// cut.
	clear(received)
	large := s.Config("large")
	for i, size := range []int{10, 30 << 10, 30 << 10, client.MaxConfigLen, 20} {
		if _, err := large.Set(ctx, append(bytes.Repeat([]byte("x"), size-1), byte(i))); err != nil {
			t.Fatal(err)
		}
		if v, err := large.Get(ctx); err != nil || len(v.Data) != size || v.Version != uint64(i+1) {
			t.Fatalf("%d bytes of version %d, %v", len(v.Data), v.Version, err)
		}
		check(large.ConfigReader, uint64(i+1), []int{1, 2, 3, 1, 1}[i])
	}
	if _, err := large.Set(ctx, make([]byte, client.MaxConfigLen+1)); !errors.Is(err, client.BadRequest) {
		t.Errorf("a longer one: %v", err)
	}
	flags := fmt.Sprintf("flags %d", writers*each)
	for _, list := range []struct {
		prefix string
		opts   []client.ReadOption
		want   []string
	}{
		{"", nil, []string{flags, "large 5"}},
		{"la", nil, []string{"large 5"}},
		{"", []client.ReadOption{client.MaxItems(1)}, []string{flags}},
		{"", []client.ReadOption{client.After("flags"), client.MaxItems(1)}, []string{"large 5"}},
		{"", []client.ReadOption{client.After("large")}, nil},
	} {
		var names []string
		for info, err := range s.Node().Configs(ctx, list.prefix, list.opts...) {
			must(t, err)
			names = append(names, fmt.Sprintf("%s %d", info.Name, info.Version))
		}
		if !slices.Equal(names, list.want) {
			t.Errorf("configurations %q: %q, want %q", list.prefix, names, list.want)
		}
	}
	if _, err := s.Config("").Set(ctx, nil); !errors.Is(err, client.BadRequest) {
		t.Errorf("without a name: %v", err)
	}
}

func TestNodes(t *testing.T) {
	srv := servertest.Start(t)
	ctx := testContext(t)
	c := dial(t, srv)
	grace := 20 * time.Second
	info, err := admin.Nodes(c).Create(ctx, "/a/b", admin.NodeConfig{GracePeriod: &grace})
	must(t, err)
	if *info.Config.GracePeriod != grace || *info.Config.SelfCheckPeriod != time.Second || info.Path != "/a/b" {
		t.Fatalf("%+v", info)
	}
	if _, err := admin.Nodes(c).Create(ctx, "/a/b", admin.NodeConfig{}); !errors.Is(err, client.AlreadyExists) {
		t.Fatal(err)
	}
	again, err := admin.Nodes(c).Ensure(ctx, "/a/b", admin.NodeConfig{})
	if err != nil || again.ID != info.ID {
		t.Fatal(again, err)
	}
	var fallback time.Duration
	altered, err := admin.Nodes(c).Alter(ctx, "/a/b", admin.NodeConfig{GracePeriod: &fallback})
	if err != nil || *altered.Config.GracePeriod != 10*time.Second {
		t.Fatal(altered, err)
	}
	var paths []string
	for n, err := range admin.Nodes(c).List(ctx, "/a") {
		must(t, err)
		paths = append(paths, n.Path)
	}
	if !slices.Equal(paths, []string{"/a", "/a/b"}) {
		t.Fatal(paths)
	}
	for _, path := range []string{"", "a", "/", "/a b", "/a/../b"} {
		if _, err := admin.Nodes(c).Create(ctx, path, admin.NodeConfig{}); !errors.Is(err, client.BadRequest) {
			t.Errorf("%q: %v", path, err)
		}
	}
	if _, err := c.Session(ctx, "/nowhere"); !errors.Is(err, client.NotFound) {
		t.Fatal(err)
	}
	must(t, admin.Nodes(c).Drop(ctx, "/a/b"))
	if err := admin.Nodes(c).Drop(ctx, "/a/b"); !errors.Is(err, client.NotFound) {
		t.Fatal(err)
	}
}

func TestList(t *testing.T) {
	srv := servertest.Start(t)
	ctx := testContext(t)
	c := dial(t, srv)
	s, other := session(t, c), session(t, c)
	var want []string
	for i := range 100 {
		name := fmt.Sprintf("list/%03d", i)
		want = append(want, name)
		must(t, s.Create(ctx, name, 2, nil))
	}
	must(t, s.Create(ctx, "other", 1, nil))
	var got []string
	for sem, err := range s.Node().List(ctx, "list/", client.ReadConsistency(client.Strict)) {
		must(t, err)
		got = append(got, sem.Name)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%d names: %v", len(got), got)
	}
	acquire(t, other, "list/007", client.Count(2))
	acquire(t, other, "list/050")
	got = nil
	for sem, err := range s.Node().List(ctx, "", client.OfSession(other.ID()), client.ReadConsistency(client.Strict)) {
		must(t, err)
		got = append(got, fmt.Sprint(sem.Name, " ", sem.Count, " ", sem.Waiting))
	}
	if !slices.Equal(got, []string{"list/007 2 false", "list/050 1 false"}) {
		t.Fatal(got)
	}
	for range s.Node().List(ctx, "list/") {
		break // a consumer may stop anywhere
	}
}

// TestPages: a description that is larger than a frame comes in pages.
func TestPages(t *testing.T) {
	srv := servertest.Start(t)
	ctx := testContext(t)
	c := dial(t, srv)
	s := session(t, c)
	must(t, s.Create(ctx, "pages", client.Max, []byte("d")))
	const count = 12
	for range count {
		acquire(t, session(t, c), "pages", client.Data(make([]byte, 200<<10)))
	}
	sem, err := s.Node().Describe(ctx, "pages", client.IncludeOwners(), client.ReadConsistency(client.Strict))
	must(t, err)
	if sem.Torn || len(sem.Owners) != count || sem.NumOwners != count || string(sem.Data) != "d" || sem.Limit != client.Max {
		t.Fatal(sem.Torn, len(sem.Owners), sem.NumOwners, sem.Data)
	}
	for i, o := range sem.Owners {
		if len(o.Data) != 200<<10 || i > 0 && o.Token <= sem.Owners[i-1].Token {
			t.Fatal(i, len(o.Data), o.Token)
		}
	}
	// A watch carries as much, in pages too.
	for ev, err := range s.Node().Watch(ctx, "pages") {
		must(t, err)
		if ev.Kind == client.EventChanged && len(ev.Added) == count {
			break
		}
	}
}
