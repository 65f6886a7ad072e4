package shard

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// tableTest applies commands one by one to a machine and to the model, which must agree, and says
// in words what left them. Sessions are called a, b, c, each at home here, and g and h, which are
// remote sessions.
type tableTest struct {
	*history
	t    *testing.T
	ids  map[string]uint64
	seqs map[string]uint64
	at   uint64
}

// simplest always chooses the simplest.
type zeroSource struct{}

func (zeroSource) n(int) int { return 0 }

func newTableTest(t *testing.T) *tableTest {
	t.Helper()
	r := &tableTest{history: newHistory(zeroSource{}, nil), t: t, ids: map[string]uint64{}, seqs: map[string]uint64{}, at: 1000}
	config := protocol.DefaultNodeConfig()
	r.applyOne(op{kind: CmdTakeOver}, 1<<16)
	r.command(CmdBuckets, BucketsBody{Total: modelBuckets, Count: modelBuckets})
	r.command(CmdNodePut, NodePutBody{Node: 1, Revision: 1, Config: config})
	for _, name := range []string{"a", "b", "c"} {
		r.start(name, 10_000)
	}
	r.ids["g"], r.ids["h"] = protocol.MakeSessionID(1, 0, 1), protocol.MakeSessionID(1, 0, 2)
	return r
}

// applyOne applies one command under a leader epoch, 0 for the present one, and gives the events in
// words, separated by "; ".
func (r *tableTest) applyOne(o op, epoch uint64) string {
	r.t.Helper()
	hd := r.header(r.at)
	if epoch != 0 {
		hd.Epoch = epoch
	}
	if err := r.apply(hd, []op{o}); err != nil {
		r.t.Fatalf("%v\n%s", err, r.trace())
	}
	return r.eventText()
}

func (r *tableTest) command(kind CommandKind, msg any) string {
	r.t.Helper()
	return r.applyOne(op{kind: kind, msg: msg}, 0)
}

// later moves log time, without a command.
func (r *tableTest) advance(ms uint64) string {
	r.t.Helper()
	r.at += ms
	if err := r.apply(r.header(r.at), nil); err != nil {
		r.t.Fatalf("%v\n%s", err, r.trace())
	}
	return r.eventText()
}

// eventText are the events of the batch. Attach and remote session events are left out: other tests
// have them.
func (r *tableTest) eventText() string {
	names := map[uint64]string{}
	for name, id := range r.ids {
		names[id] = name
	}
	var out []string
	for _, e := range r.m.events {
		var s string
		switch e.Kind {
		case EventReply:
			s = replyText(e)
		case EventAcquireResult:
			s = fmt.Sprintf("%s#%d %s", names[e.Session], e.Seq, replyText(e))
		case EventLeaseLost:
			s = fmt.Sprintf("%s lost %d", names[e.Session], e.OrderID)
		case EventSessionEnded:
			s = fmt.Sprintf("%s ended %d", names[e.Session], e.Reason)
		case EventRefused:
			s = "refused"
		default:
			continue
		}
		out = append(out, s)
	}
	for _, c := range r.m.changes {
		out = append(out, [...]string{"", "+created", "+deleted", "+data", "+limit", "+owner", "+changed", "+removed"}[c.Kind])
	}
	return strings.Join(out, "; ")
}

// replyText is a reply or result in words.
func replyText(e Event) string {
	switch {
	case e.Status != protocol.StatusOK:
		return e.Status.String()
	case e.State == protocol.Acquired:
		return fmt.Sprintf("acquired %d", e.OrderID)
	case e.State == protocol.NotAcquired:
		return "not acquired"
	case e.State == protocol.Accepted:
		return fmt.Sprintf("accepted %d", e.OrderID)
	case e.Flag:
		return "released"
	case e.Result > 0:
		return fmt.Sprintf("version %d", e.Result)
	}
	return "ok"
}

func (r *tableTest) start(name string, timeout uint64) string {
	r.t.Helper()
	r.serial++
	create := append(make([]byte, 15), byte(r.serial))
	words := r.command(CmdSessionStart, &protocol.SessionStart{Node: 1, CreateID: create, Key: modelKey(1), Timeout: timeout, Nonce: 1})
	r.ids[name] = r.m.events[0].Session
	return words
}

func (r *tableTest) attach(who string, epoch uint64, timeout uint64) string {
	r.t.Helper()
	return r.command(CmdSessionAttach, &protocol.SessionAttach{Session: r.ids[who], Node: 1, Epoch: epoch, Key: modelKey(1), Timeout: timeout, Nonce: 1})
}

func (r *tableTest) detach(who string, lastContact uint64) string {
	r.t.Helper()
	return r.command(CmdDetach, DetachBody{Sessions: []DetachItem{{r.ids[who], 1, lastContact}}})
}

func (r *tableTest) stop(who string) string {
	r.t.Helper()
	return r.applyOne(op{kind: CmdSessionStop, node: 1, epoch: 1, msg: &protocol.SessionStop{Session: r.ids[who], Epoch: 1}}, 0)
}

// request makes a request of somebody on the semaphore "s".
func (r *tableTest) request(who string, kind CommandKind, make func(h protocol.Head) protocol.Message) string {
	r.t.Helper()
	r.seqs[who]++
	return r.applyOne(op{kind: kind, node: 1, epoch: 1, msg: make(protocol.Head{Session: r.ids[who], Seq: r.seqs[who], Low: 1})}, 0)
}

var tableSemaphore = []byte("s")

func (r *tableTest) create(who string, limit uint64) string {
	r.t.Helper()
	return r.request(who, CmdCreate, func(h protocol.Head) protocol.Message {
		return &protocol.Create{Head: h, Name: tableSemaphore, Limit: limit}
	})
}

func (r *tableTest) resize(who string, limit uint64) string {
	r.t.Helper()
	return r.request(who, CmdResize, func(h protocol.Head) protocol.Message {
		return &protocol.Resize{Head: h, Name: tableSemaphore, Limit: limit}
	})
}

func (r *tableTest) remove(who string, force bool) string {
	r.t.Helper()
	return r.request(who, CmdDelete, func(h protocol.Head) protocol.Message {
		return &protocol.Delete{Head: h, Name: tableSemaphore, Force: force}
	})
}

func (r *tableTest) update(who, data string, expected uint64) string {
	r.t.Helper()
	return r.request(who, CmdUpdate, func(h protocol.Head) protocol.Message {
		return &protocol.Update{Head: h, Name: tableSemaphore, Data: []byte(data), Expected: expected}
	})
}

func (r *tableTest) release(who string) string {
	r.t.Helper()
	return r.request(who, CmdRelease, func(h protocol.Head) protocol.Message { return &protocol.Release{Head: h, Name: tableSemaphore} })
}

// acquire asks on the persistent semaphore; lock on the ephemeral one.
func (r *tableTest) acquire(who string, count, timeout uint64, data string) string {
	r.t.Helper()
	return r.request(who, CmdAcquire, func(h protocol.Head) protocol.Message {
		return &protocol.Acquire{Head: h, Name: tableSemaphore, Count: count, Timeout: timeout, Data: []byte(data)}
	})
}

func (r *tableTest) acquireEphemeral(who string, count, timeout uint64) string {
	r.t.Helper()
	return r.request(who, CmdAcquire, func(h protocol.Head) protocol.Message {
		return &protocol.Acquire{Head: h, Name: tableSemaphore, Count: count, Timeout: timeout, Ephemeral: true}
	})
}

// resend sends the acquire with this number again.
func (r *tableTest) resend(who string, seq, low uint64) string {
	r.t.Helper()
	return r.applyOne(op{kind: CmdAcquire, node: 1, epoch: 1, msg: &protocol.Acquire{
		Head: protocol.Head{Session: r.ids[who], Seq: seq, Low: low}, Name: tableSemaphore, Count: 1, Timeout: 1000,
	}}, 0)
}

const always = protocol.Forever

// run does what a line says, and gives what came of it.
func (r *tableTest) run(line string) string {
	r.t.Helper()
	word := strings.Fields(line)
	number := func(i int) uint64 {
		switch {
		case i >= len(word):
			return 0
		case word[i] == "ever" || word[i] == "all":
			return always
		case word[i] == "all-1" || word[i] == "ever-1":
			return always - 1
		}
		n, err := strconv.ParseUint(word[i], 10, 64)
		if err != nil {
			r.t.Fatalf("%q: %v", line, err)
		}
		return n
	}
	after := func(key string) int { return 1 + slices.Index(append(word, key), key) }
	if word[0] == "later" {
		return r.advance(number(1))
	}
	who := word[0]
	switch word[1] {
	case "create":
		return r.create(who, number(2))
	case "resize":
		return r.resize(who, number(2))
	case "delete":
		return r.remove(who, len(word) > 2)
	case "update":
		return r.update(who, word[2], number(after("if")))
	case "acquire":
		data := ""
		if i := after("data"); i < len(word) {
			data = word[i]
		}
		return r.acquire(who, number(2), number(after("for")), data)
	case "lock":
		return r.acquireEphemeral(who, number(2), number(after("for")))
	case "release":
		return r.release(who)
	case "again":
		return r.resend(who, number(2), number(after("low")))
	case "gone":
		return r.remoteEnded(who)
	}
	r.t.Fatalf("%q: what is that", line)
	return ""
}

// TestTables holds the rows of the specification's tables, one by one. All is about one semaphore,
// persistent with acquire, ephemeral with lock; each line is what is done, and what comes of it. An
// acquire has timeout 0 if nothing is said.
func TestTables(t *testing.T) {
	const one = `
		a create 3               => ok; +created
		a acquire 2              => acquired 1; +owner
	`
	const two = one + `
		b acquire 2 for 1000     => accepted 2
	`
	const three = two + `
		c acquire 1 for ever     => accepted 3
	`
	for name, script := range map[string]string{
		"granted at once":             one,
		"small one does not overtake": three,
		"not at once": one + `
			b acquire 2              => not acquired
		`,
		"not at once behind a queue": two + `
			c acquire 1              => not acquired
		`,
		"exactly at the deadline": two + `
			later 1000               =>
		`,
		"behind the deadline": two + `
			later 1001               => b#1 not acquired
		`,
		"the head leaves, the next come": three + `
			later 1001               => b#1 not acquired; c#1 acquired 3; +owner
		`,
		"owner asks for more": one + `
			a acquire 3 for ever     => BAD_REQUEST
		`,
		"owner asks for the same": one + `
			a acquire 2              => acquired 1
		`,
		"the same with other data": one + `
			a acquire 2 data x       => acquired 1; +changed
		`,
		"owner asks for less": three + `
			a acquire 1              => acquired 1; b#1 acquired 2; +changed; +owner
		`,
		"waiter asks for more": two + `
			b acquire 3 for 1000     => BAD_REQUEST
		`,
		"and waits on": two + `
			b acquire 3 for 9000     => BAD_REQUEST
			later 1001               => b#1 not acquired
		`,
		"waiter asks for the same": two + `
			later 600                =>
			b acquire 2 for 1000     => b#1 ABORTED; accepted 2
			later 1000               =>
			later 1                  => b#2 not acquired
		`,
		"waiter asks for less and fits": three + `
			b acquire 1              => b#1 ABORTED; acquired 2; +owner
		`,
		"less, and it is not the head": three + `
			c acquire 1 for 500      => c#1 ABORTED; accepted 3
			later 501                => c#2 not acquired
		`,
		"waiter asks with timeout 0": three + `
			b acquire 2              => b#1 ABORTED; not acquired; c#1 acquired 3; +owner
		`,
		"waiter waits for ever now": two + `
			b acquire 2 for ever     => b#1 ABORTED; accepted 2
			later 90000000           =>
		`,
		"release of an owner": three + `
			a release                => released; b#1 acquired 2; c#1 acquired 3; +removed; +owner; +owner
		`,
		"release of a waiter": three + `
			b release                => b#1 ABORTED; released; c#1 acquired 3; +owner
		`,
		"release of nothing": `
			a create 3 => ok; +created
			b release                => ok
		`,
		"release of no semaphore": `
			b release                => ok
		`,
		"acquire of no semaphore": `
			a acquire 1              => NOT_FOUND
		`,
		"acquire above the limit": `
			a create 3 => ok; +created
			a acquire 4              => BAD_REQUEST
		`,
		"acquire of 0": `
			a create 3 => ok; +created
			a acquire 0              => BAD_REQUEST
		`,
		"of 0 on no semaphore": `
			a acquire 0              => BAD_REQUEST
		`,
		"timeout of a day": one + `
			b acquire 3 for 86400000 => accepted 2
		`,
		"timeout of more": one + `
			b acquire 3 for 86400001 => BAD_REQUEST
		`,
		"timeout of nearly ever": one + `
			b acquire 3 for ever-1   => BAD_REQUEST
		`,
		"persistent as ephemeral": `
			a create 3 => ok; +created
			a lock 1                 => PRECONDITION_FAILED
		`,
		"ephemeral as persistent": `
			a lock 1                 => acquired 1; +created; +owner
			a acquire 1              => PRECONDITION_FAILED
		`,
		"ephemeral goes with its last": `
			a lock all               => acquired 1; +created; +owner
			b lock all for 1000      => accepted 2
			a release                => released; b#1 acquired 2; +removed; +owner
			b release                => released; +removed; +deleted
		`,
		"shared locks, then an exclusive": `
			a lock 1                 => acquired 1; +created; +owner
			b lock all for 1000      => accepted 2
			c lock 1 for 1000        => accepted 3
		`,
		"units do not overflow": `
			a lock all-1             => acquired 1; +created; +owner
			b lock 2                 => not acquired
			b lock 1                 => acquired 2; +owner
		`,
		"order id after delete and create": one + `
			a release                => released; +removed
			a delete                 => ok; +deleted
			a create 3 => ok; +created
			a acquire 2              => acquired 2; +owner
		`,
		"create twice": `
			a create 3 => ok; +created
			b create 3               => ALREADY_EXISTS
		`,
		"create over an ephemeral": `
			a lock 1                 => acquired 1; +created; +owner
			a create all             => PRECONDITION_FAILED
		`,
		"create with limit 0": `
			a create 0               => BAD_REQUEST
		`,
		"update": `
			a create 3 => ok; +created
			b update x               => version 2; +data
			b update x               => version 2
			b update y if 1          => PRECONDITION_FAILED
			b update y if 2          => version 3; +data
		`,
		"update of an ephemeral": `
			a lock 1                 => acquired 1; +created; +owner
			b update x               => version 2; +data
		`,
		"update of none": `
			b update x               => NOT_FOUND
		`,
		"resize up": three + `
			c resize 4               => ok; b#1 acquired 2; +limit; +owner
		`,
		"resize down": one + `
			b resize 1               => ok; +limit
			b acquire 1              => not acquired
		`,
		"down to below the head": two + `
			c resize 1               => ok; +limit
			a release                => released; +removed
			c delete                 => PRECONDITION_FAILED
			c resize 2               => ok; b#1 acquired 2; +limit; +owner
		`,
		"held above a lowered limit": one + `
			b resize 1               => ok; +limit
			a acquire 2              => acquired 1
			a acquire 2 data x       => acquired 1; +changed
			a acquire 3              => BAD_REQUEST
			b acquire 2 for ever     => BAD_REQUEST
			a acquire 1              => acquired 1; +changed
			a acquire 2              => BAD_REQUEST
		`,
		"waits above a lowered limit": two + `
			c resize 1               => ok; +limit
			b acquire 3 for ever     => BAD_REQUEST
			b acquire 2 for ever     => b#1 ABORTED; accepted 2
			b acquire 2              => b#3 ABORTED; not acquired
			b acquire 2 for ever     => BAD_REQUEST
		`,
		"resize of an ephemeral": `
			a lock 1                 => acquired 1; +created; +owner
			b resize 1               => PRECONDITION_FAILED
		`,
		"delete of none": `
			a delete force           => NOT_FOUND
		`,
		"delete of an ephemeral": `
			a lock 1                 => acquired 1; +created; +owner
			b delete force           => PRECONDITION_FAILED
		`,
		"delete with owners": one + `
			b delete                 => PRECONDITION_FAILED
		`,
		"delete by force": three + `
			c delete force           => ok; b#1 ABORTED; c#1 ABORTED; a lost 1; +deleted
		`,
		"remote sessions queue as others do": one + `
			g acquire 2 for ever     => accepted 2
			a release                => released; g#1 acquired 2; +removed; +owner
		`,
		"a remote session is gone": one + `
			g acquire 2 for ever     => accepted 2
			g gone                   => ok
			g acquire 1              => SESSION_EXPIRED
		`,
		"sent again: granted": one + `
			a again 2 low 1          => acquired 1
		`,
		"sent again: accepted": two + `
			b again 1 low 1          => accepted 2
			b again 1 low 9          => accepted 2
		`,
		"sent again: granted since": two + `
			a release                => released; b#1 acquired 2; +removed; +owner
			b again 1 low 2          => acquired 2
		`,
		"sent again: timed out since": two + `
			later 1001               => b#1 not acquired
			b again 1 low 1          => not acquired
			b again 1 low 2          => not acquired
		`,
		"sent again: taken away": one + `
			b delete force           => ok; a lost 1; +deleted
			a again 2 low 1          => ABORTED
		`,
	} {
		t.Run(name, func(t *testing.T) {
			r := newTableTest(t)
			for line := range strings.Lines(script) {
				do, want, ok := strings.Cut(strings.TrimSpace(line), "=>")
				if !ok {
					continue
				}
				if got := r.run(do); got != strings.TrimSpace(want) {
					t.Fatalf("%s: %s, want %s", do, got, want)
				}
			}
		})
	}
}

func (r *tableTest) remoteEnded(who string) string {
	r.t.Helper()
	r.command(CmdRemoteEnded, RemoteEndedBody{Sessions: []uint64{r.ids[who]}})
	// Its acquire's end is not looked at here.
	return "ok"
}

// TestSessionTimes holds the boundaries of a session's life.
func TestSessionTimes(t *testing.T) {
	check := func(t *testing.T, got, want string) {
		t.Helper()
		if got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
	t.Run("60,000 ms", func(t *testing.T) {
		r := newTableTest(t)
		r.start("s", 60_000)
		r.detach("s", r.at)
		check(t, r.advance(60_000), "")
		check(t, r.advance(1), "s ended 2")
	})
	t.Run("it is there at its deadline and gone behind it", func(t *testing.T) {
		r := newTableTest(t)
		check(t, r.detach("a", r.at), "ok")
		check(t, r.advance(10_000), "")
		check(t, r.create("a", 1), "ok; +created")
		check(t, r.advance(1), "a ended 2")
		check(t, r.attach("a", 2, 0), "SESSION_EXPIRED")
	})
	t.Run("heard of long ago", func(t *testing.T) {
		r := newTableTest(t)
		r.advance(20_000)
		check(t, r.detach("a", r.at-10_001), "ok")
		check(t, r.create("a", 1), "a ended 2; SESSION_EXPIRED")
	})
	t.Run("timeout 0", func(t *testing.T) {
		r := newTableTest(t)
		r.start("z", 0)
		check(t, r.detach("z", r.at), "z ended 2; ok")
	})
	t.Run("attach cancels the deadline", func(t *testing.T) {
		r := newTableTest(t)
		r.detach("a", r.at)
		r.advance(10_000)
		check(t, r.attach("a", 2, 500), "ok")
		check(t, r.advance(1_000_000), "")
	})
	t.Run("take-over: timeout and grace for who was attached", func(t *testing.T) {
		r := newTableTest(t)
		r.detach("b", r.at)
		check(t, r.advance(10_000), "") // b is at its deadline, and gets no more
		check(t, r.applyOne(op{kind: CmdTakeOver}, 2<<16), "ok")
		check(t, r.attach("c", 1, 10_000), "ok")
		check(t, r.advance(1), "b ended 2")
		check(t, r.advance(19_999), "")
		check(t, r.advance(1), "a ended 2")
	})
	t.Run("take-overs: timeout and grace once", func(t *testing.T) {
		r := newTableTest(t)
		for term := range uint64(20) {
			check(t, r.applyOne(op{kind: CmdTakeOver}, (term+2)<<16), "ok")
			check(t, r.advance(1_000), "")
		}
		check(t, r.advance(1), "c ended 2; a ended 2; b ended 2")
	})
	t.Run("planned take-over: the timeout", func(t *testing.T) {
		r := newTableTest(t)
		check(t, r.applyOne(op{kind: CmdHandOver, raw: HandOverBegins}, 0), "ok")
		check(t, r.applyOne(op{kind: CmdTakeOver}, 2<<16), "ok")
		check(t, r.attach("c", 1, 10_000), "ok")
		check(t, r.advance(5_000), "")
		check(t, r.applyOne(op{kind: CmdTakeOver}, 3<<16), "ok") // not a planned one
		check(t, r.advance(5_000), "")
		check(t, r.advance(1), "a ended 2; b ended 2")
		check(t, r.advance(14_999), "")
		check(t, r.advance(1), "c ended 2")
	})
	t.Run("planned take-over that did not come", func(t *testing.T) {
		r := newTableTest(t)
		check(t, r.applyOne(op{kind: CmdHandOver, raw: HandOverBegins}, 0), "ok")
		check(t, r.applyOne(op{kind: CmdTakeOver}, 1<<16|1), "ok") // a repeated take-over is none
		check(t, r.applyOne(op{kind: CmdHandOver, raw: HandOverCancelled}, 0), "ok")
		check(t, r.applyOne(op{kind: CmdTakeOver}, 2<<16), "ok")
		check(t, r.advance(20_000), "")
		check(t, r.advance(1), "c ended 2; a ended 2; b ended 2")
	})
	t.Run("planned take-over, timeout 0", func(t *testing.T) {
		r := newTableTest(t)
		r.start("z", 0)
		check(t, r.applyOne(op{kind: CmdHandOver, raw: HandOverBegins}, 0), "ok")
		check(t, r.applyOne(op{kind: CmdTakeOver}, 2<<16), "ok")
		check(t, r.attach("z", 2, 0), "ok")
		check(t, r.advance(10_000), "")
	})
	t.Run("take-over: the overdue stay gone", func(t *testing.T) {
		r := newTableTest(t)
		r.advance(20_000)
		r.detach("a", 0) // its deadline is behind it, and its end is not logged yet
		check(t, r.attach("a", 2, 1), "a ended 2; SESSION_EXPIRED")
		r.detach("b", 0)
		check(t, r.applyOne(op{kind: CmdTakeOver}, 2<<16), "b ended 2; ok")
	})
	t.Run("take-overs: the first decides, with the grace period of its time", func(t *testing.T) {
		r := newTableTest(t)
		config := protocol.DefaultNodeConfig()
		config.GracePeriod = 30_000
		r.command(CmdNodePut, NodePutBody{Node: 1, Revision: 2, Config: config})
		config.GracePeriod = 1500
		r.command(CmdNodePut, NodePutBody{Node: 1, Revision: 3, Config: config})
		r.advance(30_000) // the old grace period's last moment
		r.applyOne(op{kind: CmdTakeOver}, 2<<16)
		r.advance(1) // and from now on the new one
		r.applyOne(op{kind: CmdTakeOver}, 3<<16)
		check(t, r.advance(39_999), "")
		check(t, r.advance(1), "c ended 2; a ended 2; b ended 2") // by id, which begins with the home bucket
	})
	t.Run("repeated take-over detaches nobody", func(t *testing.T) {
		r := newTableTest(t)
		r.applyOne(op{kind: CmdTakeOver}, 1<<16|1)
		check(t, r.advance(1_000_000), "")
	})
	t.Run("old epoch", func(t *testing.T) {
		r := newTableTest(t)
		r.at += 1_000_000
		check(t, r.applyOne(op{kind: CmdTakeOver}, 2<<16), "ok") // a new leader's first stamp is none
		check(t, r.applyOne(op{kind: CmdNodePut, msg: NodePutBody{Node: 2, Revision: 1}}, 1<<16), "refused")
		r.at -= 1_000_000
		check(t, r.advance(1), "")
	})
	t.Run("stop", func(t *testing.T) {
		r := newTableTest(t)
		r.create("a", 1)
		r.acquire("a", 1, 0, "")
		r.acquire("b", 1, always, "")
		r.acquire("c", 1, always, "")
		check(t, r.stop("b"), "ok; b#1 SESSION_EXPIRED; b ended 1")
		check(t, r.stop("a"), "ok; c#1 acquired 3; a ended 1; +removed; +owner")
		check(t, r.stop("a"), "SESSION_EXPIRED")
	})
	t.Run("create id", func(t *testing.T) {
		r := newTableTest(t)
		id := append(make([]byte, 15), 200)
		start := &protocol.SessionStart{Node: 1, CreateID: id, Key: modelKey(1), Timeout: 1000, Nonce: 1}
		check(t, r.command(CmdSessionStart, start), "ok")
		first := r.m.events[0].Session
		check(t, r.command(CmdSessionStart, start), "ok")
		if again := r.m.events[0].Session; again != first {
			t.Fatalf("session %d, then %d", first, again)
		}
		r.ids["s"] = first
		r.stop("s")
		for _, name := range []string{"a", "b", "c"} {
			r.stop(name)
		}
		check(t, r.command(CmdSessionStart, start), "SESSION_EXPIRED")
		r.advance(Retention)
		check(t, r.command(CmdSessionStart, start), "SESSION_EXPIRED")
		r.advance(1)
		check(t, r.command(CmdSessionStart, start), "ok")
	})
	t.Run("remote session's record", func(t *testing.T) {
		r := newTableTest(t)
		for _, name := range []string{"b", "c"} {
			r.stop(name)
		}
		r.create("a", 1)
		r.acquire("a", 1, 0, "")
		check(t, r.acquire("g", 1, 3_600_000, ""), "accepted 2")
		check(t, r.advance(3_600_001), "g#1 not acquired")
		r.advance(Retention)
		check(t, r.resend("g", 1, 1), "not acquired") // remembered from when it became idle, and used again now
		r.advance(Retention)
		check(t, r.resend("g", 1, 1), "not acquired")
		r.advance(Retention + 1)
		check(t, r.resend("g", 1, 1), "accepted 3") // forgotten
	})
	t.Run("gone id", func(t *testing.T) {
		r := newTableTest(t)
		r.remoteEnded("h") // never seen here: a request may be on its way
		check(t, r.acquireEphemeral("h", 1, 0), "SESSION_EXPIRED")
		r.advance(Retention)
		check(t, r.acquireEphemeral("h", 1, 0), "SESSION_EXPIRED")
		r.advance(1)
		check(t, r.acquireEphemeral("h", 1, 0), "acquired 1; +created; +owner")
	})
	t.Run("work of one apply", func(t *testing.T) {
		if w := New(1).work; w != (workLimits{deadlines: 1000, sweeps: 1000, releases: 10_000}) {
			t.Fatalf("%+v", w)
		}
		if l := New(1).limits; l != (Limits{1 << 20, 1 << 20, 1 << 14}) {
			t.Fatalf("%+v", l)
		}
	})
}

// TestSessionEndsDuringTimeouts: a session ends, the work of the Apply is used up with the first of
// its waiters, and the timer of the second fires in the same Apply. What is left of the session has
// no entries then, and is restored all the same.
func TestSessionEndsDuringTimeouts(t *testing.T) {
	r := newTableTest(t)
	r.machine.work.releases, r.replica.work.releases = 1, 1
	wait := func(who, name string, timeout uint64) {
		r.seqs[who]++
		r.applyOne(op{kind: CmdAcquire, node: 1, epoch: 1, msg: &protocol.Acquire{
			Head: protocol.Head{Session: r.ids[who], Seq: r.seqs[who], Low: 1}, Name: []byte(name), Count: always, Timeout: timeout, Ephemeral: true,
		}}, 0)
	}
	for _, name := range []string{"one", "two"} {
		wait("a", name, 0)
		wait("b", name, 10_000)
	}
	if got := r.detach("b", r.at); got != "ok" {
		t.Fatal(got)
	}
	var out Events
	r.at += 10_001
	r.machine.Apply(r.index+1, encode(r.header(r.at), nil), &out)
	if _, ok := r.machine.Session(r.ids["b"]); ok || len(r.machine.ending) != 1 || r.machine.ending[0].entries.n != 0 {
		t.Fatalf("session is there: %v; to be buried: %v", ok, r.machine.ending)
	}
	m := mustRestore(t, r.machine)
	m.Apply(r.index+2, encode(r.header(r.at), nil), &out)
	if err := m.Check(); err != nil || len(m.ending) != 0 {
		t.Fatal(err, len(m.ending))
	}
}

// TestOverdueHeadRequests: the owner's session ends, the work of the Apply is used up before the
// overdue head of the queue is ended, and that very waiter asks in the same batch. The one behind
// it is granted.
func TestOverdueHeadRequests(t *testing.T) {
	r := newTableTest(t)
	r.create("c", 1)
	r.acquire("a", 1, 0, "")
	r.acquire("b", 1, 20_000, "")
	r.acquire("c", 1, always, "")
	r.detach("a", r.at)
	r.machine.work = workLimits{deadlines: 1, sweeps: 1, releases: 1}
	r.at += 20_001
	var out Events
	again := op{kind: CmdAcquire, node: 1, epoch: 1, msg: &protocol.Acquire{
		Head: protocol.Head{Session: r.ids["b"], Seq: 1, Low: 1}, Name: tableSemaphore, Count: 1, Timeout: 20_000,
	}}
	r.machine.Apply(r.index+1, encode(r.header(r.at), []op{again}), &out)
	var d protocol.DescribeReply
	if err := r.machine.Describe(&protocol.Describe{Node: 1, Name: tableSemaphore, Flags: protocol.WithOwners}, &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Owners) != 1 || d.Owners[0].Session != r.ids["c"] || d.NumWaiters != 0 {
		t.Fatalf("owners %v, %d waiters", d.Owners, d.NumWaiters)
	}
	if err := r.machine.Check(); err != nil {
		t.Fatal(err)
	}
}
