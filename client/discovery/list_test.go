package discovery

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/signalbox-dev/signalbox/client"
)

func owner(text string) client.Owner {
	token, rest, _ := strings.Cut(text, ":")
	o := client.Owner{Count: 1}
	_, _ = fmt.Sscan(token, &o.Token)
	switch name, state, _ := strings.Cut(rest, "="); {
	case rest == "lock":
		o.Count = client.Max
	case rest == "bad":
		o.Data = []byte("no address")
	case state != "":
		o.Data = fmt.Appendf(nil, `{"addr":"%s:1","state":%q}`, name, state)
	default:
		o.Data = []byte(name + ":1")
	}
	return o
}

// TestListScripts runs testdata/list: events of a watch, and what is shown after each.
func TestListScripts(t *testing.T) {
	datadriven.RunTest(t, "testdata/list", func(t *testing.T, d *datadriven.TestData) string {
		start := time.Unix(0, 0)
		now, l := start, newList(start, defaultHold)
		var out strings.Builder
		for line := range strings.Lines(d.Input) {
			line = strings.TrimSpace(line)
			word, rest, _ := strings.Cut(line, " ")
			var owners []client.Owner
			for f := range strings.FieldsSeq(rest) {
				owners = append(owners, owner(f))
			}
			before := l.current()
			switch word {
			case "at":
				after, err := time.ParseDuration(rest)
				if err != nil {
					t.Fatal(err)
				}
				now = start.Add(after)
				l.tick(now)
			case "begin":
				l.begin()
			case "failed":
				l.failed(now, fmt.Errorf("%s", rest))
			case "add":
				l.event(now, &client.Event{Kind: client.EventChanged, Added: owners})
			case "update":
				l.event(now, &client.Event{Kind: client.EventChanged, Updated: owners})
			case "remove":
				l.event(now, &client.Event{Kind: client.EventChanged, Removed: owners})
			case "delete":
				l.event(now, &client.Event{Kind: client.EventDeleted})
			case "synced":
				l.event(now, &client.Event{Kind: client.EventSynced})
			case "interrupted":
				l.event(now, &client.Event{Kind: client.EventInterrupted})
			default:
				t.Fatalf("no word %q", word)
			}
			fmt.Fprintf(&out, "%-22s", line)
			if l.current() != before {
				fmt.Fprintf(&out, " -> %s", l.current().text(start))
			}
			if next := l.next(); !next.IsZero() {
				fmt.Fprintf(&out, "  (next at %s)", next.Sub(start))
			}
			s := strings.TrimRight(out.String(), " ")
			out.Reset()
			out.WriteString(s + "\n")
		}
		return out.String()
	})
}

func (p *published) text(start time.Time) string {
	if !p.known {
		return fmt.Sprintf("not known: %v", p.err)
	}
	s := "live"
	if !p.live {
		s = fmt.Sprintf("stale since %s", p.since.Sub(start))
	}
	s += " [" + names(p.all) + "]"
	for _, e := range p.all {
		if e.State != Ready {
			s += fmt.Sprintf(" %s %s", strings.TrimSuffix(e.Addr, ":1"), e.State)
		}
	}
	if p.ignored > 0 {
		s += fmt.Sprintf(", %d ignored", p.ignored)
	}
	if p.err != nil {
		s += ", " + p.err.Error()
	}
	return s
}

// fleet is a server with its members, and a watch of it that is lost now and then.
type fleet struct {
	r       *rand.Rand
	members map[uint64]string // addresses by token
	watched map[uint64]string // as the watch has told of them
	last    uint64            // token
}

func (f *fleet) change() {
	if len(f.members) > 0 && f.r.IntN(2) == 0 {
		for token := range f.members {
			delete(f.members, token)
			return
		}
	}
	f.last++
	f.members[f.last] = fmt.Sprintf("a%d:1", f.r.IntN(12))
}

// difference is what the watch has not told yet.
func (f *fleet) difference() client.Event {
	ev := client.Event{Kind: client.EventChanged}
	for token, addr := range f.members {
		if f.watched[token] == "" {
			ev.Added = append(ev.Added, client.Owner{Token: token, Count: 1, Data: []byte(addr)})
		}
	}
	for token := range f.watched {
		if f.members[token] == "" {
			ev.Removed = append(ev.Removed, client.Owner{Token: token})
		}
	}
	f.watched = map[uint64]string{}
	for token, addr := range f.members {
		f.watched[token] = addr
	}
	return ev
}

func (f *fleet) addrs() (list []string) {
	for _, addr := range f.members {
		list = append(list, addr)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// TestListFollows: in whatever order events come, the list is the server's in the end; a list that
// is known never becomes empty while the stream is lost, nor by a snapshot at once.
func TestListFollows(t *testing.T) {
	for seed := range uint64(2000) {
		f := &fleet{r: rand.New(rand.NewPCG(seed, 1)), members: map[uint64]string{}, watched: map[uint64]string{}}
		now := time.Unix(0, 0)
		l := newList(now, time.Duration(f.r.IntN(3))*time.Second)
		live, shown := false, 0
		var holdUntil time.Time // until when nothing empties a list that was known before the last snapshot
		step := func(ev *client.Event) {
			held := len(l.held) > 0 // may have been missing for long enough
			l.event(now, ev)
			if !l.current().live && len(l.current().all) == 0 && shown > 0 {
				t.Fatalf("seed %d: a list of %d is empty without a stream", seed, shown)
			}
			if ev.Kind == client.EventSynced && !live {
				holdUntil = now
				if shown > 0 && !held {
					holdUntil = now.Add(l.hold)
				}
			}
			live = l.current().live
			if live && shown > 0 && now.Before(holdUntil) && len(l.current().all) == 0 {
				t.Fatalf("seed %d: a list of %d is empty soon after a snapshot", seed, shown)
			}
			shown = len(l.current().all)
		}
		for range 60 {
			now = now.Add(time.Duration(f.r.IntN(500)) * time.Millisecond)
			l.tick(now)
			shown = len(l.current().all)
			switch f.r.IntN(8) {
			case 0:
				if live {
					step(&client.Event{Kind: client.EventInterrupted})
				}
			case 1:
				if live {
					live = false
					l.failed(now, client.ErrNotFound)
					l.begin()
					f.watched = map[uint64]string{}
				}
			case 2, 3:
				if !live {
					ev := f.difference()
					step(&ev)
					step(&client.Event{Kind: client.EventSynced})
				}
			case 4:
				if live {
					for range f.r.IntN(15) { // many leave
						f.change()
					}
				} else {
					clear(f.members)
				}
			default:
				f.change()
			}
			if live {
				ev := f.difference()
				step(&ev)
			}
		}
		ev := f.difference()
		l.event(now, &ev)
		l.event(now, &client.Event{Kind: client.EventSynced})
		for !l.next().IsZero() {
			now = l.next()
			l.tick(now)
		}
		var got []string
		for i, e := range l.current().all {
			got = append(got, e.Addr)
			if i > 0 && e.Token <= l.current().all[i-1].Token {
				t.Fatalf("seed %d: not in order", seed)
			}
			for token, addr := range f.members {
				if addr == e.Addr && token > e.Token {
					t.Fatalf("seed %d: %s is an older member's", seed, addr)
				}
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, f.addrs()) || !l.current().live || !l.current().known {
			t.Fatalf("seed %d: %v is shown; the server has %v", seed, got, f.addrs())
		}
	}
}

// TestViewIsMadeWhenAsked: changes that nobody looks at are announced, and cost no list; the one that
// looks gets the last of them.
func TestViewIsMadeWhenAsked(t *testing.T) {
	now := time.Unix(0, 0)
	l := newList(now, defaultHold)
	l.event(now, membersEvent(5))
	l.event(now, &client.Event{Kind: client.EventSynced})
	now = now.Add(defaultHold)
	for token := range uint64(3) {
		now = now.Add(time.Second)
		before := l.announcements
		l.event(now, &client.Event{Kind: client.EventChanged, Removed: []client.Owner{{Token: token + 1}}})
		if l.announcements != before+1 || l.version != 1 {
			t.Errorf("announcement %d, list %d", l.announcements, l.version)
		}
	}
	if p := l.current(); len(p.all) != 2 || p.version != 2 || l.current() != p {
		t.Errorf("%d are shown, in list %d", len(p.all), p.version)
	}
}

// BenchmarkView is a change of a service with 5,000 members, of which a view is made or not.
func BenchmarkView(b *testing.B) {
	b.Run("viewed", func(b *testing.B) { benchmarkView(b, true) })
	b.Run("not viewed", func(b *testing.B) { benchmarkView(b, false) })
}

func benchmarkView(b *testing.B, viewed bool) {
	now := time.Unix(0, 0)
	l := newList(now, defaultHold)
	ev := client.Event{Kind: client.EventChanged}
	for i := range 5000 {
		ev.Added = append(ev.Added, client.Owner{Token: uint64(i + 1), Count: 1, Data: fmt.Appendf(nil, `{"addr":"10.0.%d.%d:80","zone":"SAS"}`, i/250, i%250)})
	}
	l.event(now, &ev)
	l.event(now, &client.Event{Kind: client.EventSynced})
	b.ReportAllocs()
	for i := range b.N {
		now = now.Add(time.Second)
		o := &ev.Added[i%5000]
		state := []State{Ready, Failing}[(i/5000+1)%2]
		o.Data = fmt.Appendf(nil, `{"addr":"10.0.%d.%d:80","zone":"SAS","state":%q}`, i%5000/250, i%250, state)
		l.event(now, &client.Event{Kind: client.EventChanged, Updated: []client.Owner{*o}})
		if viewed {
			choose(l.current().all, caller{subset: 100, panicShare: 30})
		}
	}
	if len(l.current().all) != 5000 {
		b.Fatal(len(l.current().all))
	}
}
