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
	r := &tableTest{history: newHistory(zeroSource{}, nil), t: t, ids: map[string]uint64{},
		seqs: map[string]uint64{}, at: 1000}
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
		out = append(out,
			[...]string{"", "+created", "+deleted", "+data", "+limit", "+owner", "+changed", "+removed"}[c.Kind])
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
	case e.State == protocol.Queued:
		return fmt.Sprintf("queued %d", e.OrderID)
	case e.Flag:
		return "released"
	case e.Result > 0 && e.Session == 0: // of a create or update
		return fmt.Sprintf("version %d", e.Result)
	}
	return "ok"
}

func (r *tableTest) start(name string, timeout uint64) string {
	r.t.Helper()
	r.serial++
	create := append(make([]byte, 15), byte(r.serial))
	words := r.command(CmdSessionStart,
		&protocol.SessionStart{Node: 1, CreateID: create, Key: modelKey(1), Timeout: timeout, Nonce: 1})
	r.ids[name] = r.m.events[0].Session
	return words
}

func (r *tableTest) attach(who string, epoch uint64, timeout uint64) string {
	r.t.Helper()
	return r.command(CmdSessionAttach, &protocol.SessionAttach{Session: r.ids[who],
		Node: 1, Epoch: epoch, Key: modelKey(1), Timeout: timeout, Nonce: 1})
}

func (r *tableTest) detach(who string, lastContact uint64) string {
	r.t.Helper()
	return r.command(CmdDetach, DetachBody{Sessions: []DetachItem{{Session: r.ids[who], Epoch: 1, LastContact: lastContact}}})
}

func (r *tableTest) stop(who string) string {
	r.t.Helper()
	return r.applyOne(op{kind: CmdSessionStop, node: 1, epoch: 1,
		msg: &protocol.SessionStop{Session: r.ids[who], Epoch: 1}}, 0)
}

// request makes a request of somebody on the semaphore "s".
func (r *tableTest) request(who string, kind CommandKind, make func(h protocol.Head) protocol.Message) string {
	r.t.Helper()
	r.seqs[who]++
	return r.applyOne(op{kind: kind, node: 1, epoch: 1,
		msg: make(protocol.Head{Session: r.ids[who], Seq: r.seqs[who], Low: 1})}, 0)
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
	return r.request(who, CmdRelease,
		func(h protocol.Head) protocol.Message { return &protocol.Release{Head: h, Name: tableSemaphore} })
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
