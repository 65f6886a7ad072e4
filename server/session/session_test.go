package session

import (
	"slices"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/server/transport"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// stubHome is a home that notes which pings it is asked for.
type stubHome struct {
	id    uint64
	asked []uint64
	late  int // of them, those that were to come after a step of the log
}

func (h *stubHome) ID() uint64                 { return h.id }
func (h *stubHome) RenewLeases(_, ping uint64) { h.asked = append(h.asked, ping) }
func (h *stubHome) RenewLeasesAfterStep(_, ping uint64) {
	h.asked, h.late = append(h.asked, ping), h.late+1
}
func (h *stubHome) ConnClosed(uint64, time.Duration, protocol.Link) {}

// TestBindings: one session, several connections and epochs.
func TestBindings(t *testing.T) {
	table := new(Table)
	a, b, c := new(Conn), new(Conn), new(Conn)
	bind := func(c *Conn, epoch uint64) (*Binding, []*Binding) {
		x := &Binding{Session: 7, Epoch: epoch, shared: &shared{Conn: c}}
		return x, table.insert(x)
	}
	a1, older := bind(a, 1)
	if len(older) != 0 || table.Conn(7) != a {
		t.Fatal("first")
	}
	b1, older := bind(b, 1)
	if len(older) != 0 || table.Conn(7) != b || a1.removed.Load() {
		t.Fatal("a second connection of the same epoch")
	}
	table.remove(b1)
	table.remove(b1)
	if table.Conn(7) != a {
		t.Fatal("the older connection is not found when the newer is gone")
	}
	b1, _ = bind(b, 1)
	c2, older := bind(c, 2)
	if len(older) != 2 || !a1.removed.Load() || !b1.removed.Load() || table.Conn(7) != c || table.NewestEpoch(7) != 2 {
		t.Fatalf("a newer Epoch: %v", older)
	}
	c3, older := bind(c, 3)
	if len(older) != 0 || !c2.removed.Load() {
		t.Fatal("the same connection again")
	}
	late, older := bind(a, 2)
	if len(older) != 0 || table.Conn(7) != c || table.NewestEpoch(7) != 3 {
		t.Fatal("a ticket that was checked before the attach gets the session's events")
	}
	table.remove(late)
	if older := table.removeOlder(&Binding{Session: 7, Epoch: 3, shared: new(shared)}); len(older) != 0 {
		t.Fatal("not older")
	}
	if older := table.removeOlder(&Binding{Session: 7, Epoch: 4, shared: new(shared)}); len(older) != 1 ||
		older[0] != c3 || table.Conn(7) != nil {
		t.Fatal("older than what was attached elsewhere")
	}
	// The same attach again, from elsewhere: it takes the session from where it was attached, and
	// not from where it was presented.
	home := new(stubHome)
	presented, _ := bind(c, 4)
	attached := &Binding{Session: 7, Epoch: 4, shared: &shared{Conn: a, home: home}}
	if older := table.insert(attached); len(older) != 0 {
		t.Fatal("an attach took the session from where it was presented")
	}
	if older := table.insert(&Binding{Session: 7, Epoch: 4, shared: &shared{Conn: b, home: home}}); len(older) != 1 ||
		older[0] != attached || presented.removed.Load() {
		t.Fatalf("the same attach again: %v", older)
	}
	if older := table.removeOlder(&Binding{Session: 7, Epoch: 4, shared: &shared{home: home}}); len(older) != 1 ||
		older[0].Conn != b || presented.removed.Load() {
		t.Fatalf("the same attach again, through a connection that is closed: %v", older)
	}
	bind(a, 5)
	bind(b, 5)
	if all := table.removeAll(7); len(all) != 2 || table.Conn(7) != nil || table.NewestEpoch(7) != 0 {
		t.Fatal("the end")
	}
}

// TestLateBinding: a ticket that is checked while the session is attached again on the same
// connection replaces nothing there, whichever table it comes to first.
func TestLateBinding(t *testing.T) {
	home := new(stubHome)
	for name, epoch := range map[string]uint64{"of an older epoch": 1, "of the same attach": 2} {
		t.Run(name, func(t *testing.T) {
			table := new(Table)
			c := &Conn{Table: table}
			attached := c.NewBinding(7, 2, 0, home, "")
			late := c.NewBinding(7, epoch, 0, nil, "")
			if added, _ := c.add(attached); !added {
				t.Fatal("the attach is not bound")
			}
			table.insert(attached)
			if added, closed := c.add(late); added || closed || c.Binding(7) != attached || !c.HasHome(home) {
				t.Error("the connection has the ticket's binding")
			}
			if table.insert(late); table.NewestEpoch(7) != 2 || attached.removed.Load() || !late.removed.Load() {
				t.Error("the table has the ticket's binding")
			}
			again := c.NewBinding(7, 2, 0, home, "")
			added, _ := c.add(again)
			table.insert(again)
			if !added || c.Binding(7) != again || !attached.removed.Load() || again.removed.Load() {
				t.Error("an attach that is applied twice is not bound")
			}
		})
	}
}

// TestPingsWaitForUnloggedAttaches: a ping waits for the relaxed attaches before it, and for no
// later ones. Of the pings behind it the newest waits next.
func TestPingsWaitForUnloggedAttaches(t *testing.T) {
	home := new(stubHome)
	c := &Conn{Conn: new(transport.Conn), Table: new(Table)}
	bind := func(session uint64, unlogged bool) *Binding {
		b := c.NewBinding(session, 1, 0, home, "")
		b.Unlogged = unlogged
		if added, _ := c.add(b); !added {
			t.Fatalf("session %d is not bound", session)
		}
		return b
	}
	expect := func(what string, want ...uint64) {
		t.Helper()
		if !slices.Equal(home.asked, want) {
			t.Fatalf("%s: asked for %v, want %v", what, home.asked, want)
		}
		home.asked = nil
	}
	bind(1, false)
	b := bind(2, true)
	c.requestPongs(10)
	third := bind(3, true)
	c.requestPongs(11)
	c.requestPongs(12)
	expect("while an attach is not logged")
	b.Logged()
	expect("while a later attach is not logged", 10)
	fourth, fifth := bind(4, true), bind(5, true)
	c.requestPongs(13)
	fourth.Unbind(false) // a session may end before the log has earlier attaches
	expect("when a later attach was taken off")
	again := bind(3, true)
	expect("when an attach that is waited for is repeated")
	third.Logged()
	expect("when the former of two is logged")
	again.Logged()
	expect("when both are", 12)
	bind(5, false) // the log's event makes a binding of its own
	expect("when all are", 13)
	c.requestPongs(14)
	expect("with none to wait for", 14)
	fifth.Logged() // too late
	c.requestPongs(15)
	expect("after one was logged twice", 15)
	bind(6, true)
	c.requestPongs(16)
	c.removeBinding(c.Binding(6), true)
	expect("when the attach failed", 16)
	if home.late != 4 {
		t.Errorf("%d pings waited for the end of a step, want 4: 10, 12, 13 and 16", home.late)
	}
}

func TestBindingSet(t *testing.T) {
	var set bindingSet
	bindings := make([]*Binding, 4)
	for i := range bindings {
		bindings[i] = &Binding{Session: uint64(i + 1)}
	}
	check := func(want ...*Binding) {
		t.Helper()
		seen := map[*Binding]bool{}
		set.each(func(b *Binding) { seen[b] = true })
		if set.len() != len(want) || len(seen) != len(want) {
			t.Fatalf("%d bindings, %d seen, want %d", set.len(), len(seen), len(want))
		}
		for _, b := range want {
			if set.get(b.Session) != b || !seen[b] {
				t.Fatalf("session %d is not found", b.Session)
			}
		}
	}
	check()
	a, again := bindings[0], &Binding{Session: 1}
	if set.put(a) != nil || set.put(again) != a {
		t.Fatal("replaced something else")
	}
	check(again)
	set.remove(2)
	set.remove(1)
	check()
	for _, b := range bindings {
		set.put(b)
	}
	check(bindings...)
	if set.put(again) != a {
		t.Fatal("replaced something else")
	}
	for _, b := range bindings {
		set.remove(b.Session)
	}
	check()
	set.put(a)
	check(a)
}

func TestDescribeOnce(t *testing.T) {
	home, other, third := &stubHome{id: 1}, &stubHome{id: 2}, &stubHome{id: 3}
	b := &Binding{shared: &shared{home: home, description: "me"}}
	for _, step := range []struct {
		home  Home
		at    time.Duration
		taken bool
		want  string
	}{
		{home, 0, true, ""},
		{other, 0, false, "me"}, // the shard did not take it
		{other, 0, true, "me"},
		{other, describeAgainAfter - 1, true, ""},
		{third, describeAgainAfter - 1, true, "me"},
		{other, describeAgainAfter, true, "me"},
		{other, describeAgainAfter + 1, true, ""},
		{third, describeAgainAfter + 1, true, "me"}, // the time of all shards is over at once
		{third, describeAgainAfter + 2, true, ""},
		{&stubHome{id: 200}, describeAgainAfter + 2, true, "me"},
		{&stubHome{id: 200}, describeAgainAfter + 3, true, ""},
		{&stubHome{id: maxDescribedShard + 1}, describeAgainAfter + 3, true, "me"},
		{&stubHome{id: maxDescribedShard + 1}, describeAgainAfter + 4, true, "me"},
	} {
		got := b.DescriptionFor(step.home, step.at)
		if got != step.want {
			t.Fatalf("at %v: %q, want %q", step.at, got, step.want)
		}
		if got != "" && step.taken {
			b.MarkDescribed(step.home, step.at)
		}
	}
}

func TestTicketKeys(t *testing.T) {
	var mac Signer
	one, two, three := meta.Key{ID: 1, Secret: [32]byte{1}}, meta.Key{ID: 2, Secret: [32]byte{2}}, meta.Key{ID: 3, Secret: [32]byte{3}}
	ticket := mac.Append(nil, &one, 7, 8, 9, "me")
	for name, c := range map[string]struct {
		current, previous *meta.Key
		identity          string
		ok                bool
	}{
		"current":           {&one, &meta.Key{}, "me", true},
		"previous":          {&two, &one, "me", true},
		"rotated twice":     {&three, &two, "me", false},
		"somebody else's":   {&one, &meta.Key{}, "you", false},
		"same id, new bits": {&meta.Key{ID: 1, Secret: [32]byte{9}}, &meta.Key{}, "me", false},
	} {
		k, err := new(Signer).Verify(ticket, c.current, c.previous, c.identity)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		if c.ok && (k.Session != 7 || k.Node != 8 || k.Epoch != 9) {
			t.Errorf("%s: %+v", name, k)
		}
	}
	if _, err := mac.Verify(mac.Append(nil, &meta.Key{}, 7, 8, 9, ""), &meta.Key{}, &meta.Key{}, ""); err == nil {
		t.Error("the zero key signs tickets")
	}
	if n := testing.AllocsPerRun(100, func() { ticket = mac.Append(ticket[:0], &one, 7, 8, 9, "me") }); n != 0 && !form.Race {
		t.Errorf("signing allocates %v times", n)
	}
}

// TestForgottenShards: a connection that stays while shards come and go keeps nothing of those that
// went.
func TestForgottenShards(t *testing.T) {
	c := &Conn{Table: new(Table)}
	stays := new(stubHome)
	if added, _ := c.add(c.NewBinding(1, 1, 0, stays, "")); !added {
		t.Fatal("a session is not bound")
	}
	for i := range uint64(1000) {
		home, watches := &stubHome{id: i}, new(stubWatches)
		b := c.NewBinding(2+i, 1, 0, home, "")
		c.add(b)
		c.Watch(watches)
		if c.Binding(2+i) != b {
			t.Fatal("a session is not found")
		}
		c.removeBinding(b, false)
		c.Forget(home, watches)
	}
	if len(c.homes) != 1 || len(c.watches) != 0 || len(c.shared) != 1 || !c.HasHome(stays) || c.last.Load() != nil {
		t.Errorf("it keeps %d homes, %d watches, and %d descriptions", len(c.homes), len(c.watches), len(c.shared))
	}
	// One at which a session is at home hears of the connection's end.
	if c.Forget(stays, nil); !c.HasHome(stays) {
		t.Error("the home of a session is forgotten")
	}
}

type stubWatches struct {
	Watches
	_ int // each has an address of its own
}
