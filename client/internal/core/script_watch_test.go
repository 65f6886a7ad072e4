package core

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// scriptWatch is a watch, or the stream of a process, by its name.
type scriptWatch struct {
	s      *script
	name   string
	watch  *Watch
	stream *Stream
	shot   *OneShot
	way    *Way
}

// Done implements Waiter.
func (w *scriptWatch) Done() {
	switch o := w.shot; {
	case o == nil:
		w.s.out = append(w.s.out, w.name+" has events")
	case o.DataChanged:
		w.s.out = append(w.s.out, w.name+": the data changed")
	default:
		w.s.out = append(w.s.out, w.name+": a change may have been missed")
	}
}

// watchStep processes a line about subscriptions; false: it is about something else.
func (s *script) watchStep(t *testing.T, w words) bool {
	switch w.list[0] {
	case "watch":
		x := &scriptWatch{s: s, name: w.list[1]}
		s.watches[x.name] = x
		name, prefix := strings.CutSuffix(w.list[2], "*")
		x.watch = &Watch{Waiter: x, Node: 7, Name: name, Prefix: prefix}
		s.e.Watch(s.now, x.watch)
	case "follow":
		x := &scriptWatch{s: s, name: w.list[1]}
		s.watches[x.name] = x
		x.stream = &Stream{
			Waiter: x, Kind: protocol.KindProcessWatch, Msg: &protocol.ProcessWatch{Node: 7, Name: []byte(w.list[2])},
			To: Target{Of: AtProcess, Node: 7, Name: w.list[2]}, Decode: func() Decoder { return decodeState },
		}
		s.e.Stream(s.now, x.stream)
	case "unwatch":
		if x := s.watches[w.list[1]]; x.watch != nil {
			s.e.CloseWatch(s.now, x.watch)
		} else if x.way != nil {
			s.e.Unfollow(s.now, x.way)
		} else if x.shot != nil {
			s.e.Disarm(s.now, x.shot)
		} else {
			s.e.CloseStream(s.now, x.stream)
		}
	case "read": // read a jobs [relaxed], on a node that says so; once: with a one-shot watch
		c := &scriptCall{s: s, name: w.list[1]}
		s.calls[c.name] = c
		m, reply := &protocol.Describe{Node: 7, Name: []byte(w.list[2])}, &protocol.DescribeReply{}
		c.call = Call{
			Kind: protocol.KindDescribe, Msg: m, Reply: reply, To: Target{Of: AtName, Node: 7, Name: w.list[2]},
			Read: &Read{
				NodeRelaxed: len(w.list) > 3, Grace: time.Duration(w.millis(t, "grace", 10_000)) * time.Millisecond,
				Want: &m.Consistency, MinIndex: &m.MinIndex, Index: &reply.Index,
			},
		}
		if _, ok := w.options["once"]; ok {
			x := &scriptWatch{s: s, name: c.name, shot: &OneShot{}}
			s.watches[x.name] = x
			x.shot.Waiter = x
			c.call.OneShot, c.call.Session, c.call.Read.AtLeader = x.shot, s.s, true
			m.Flags, m.Session = protocol.WatchData, 1
		}
		c.call.Waiter, c.last = c, &c.call.Request
		s.account.began(c.last, nil)
		s.e.Call(s.now, &c.call)
	case "force": // call a takes leases of a semaphore away
		c := &scriptCall{s: s, name: w.list[1]}
		s.calls[c.name] = c
		c.call = Call{
			Kind: protocol.KindForceRelease, Msg: &protocol.ForceRelease{Node: 7, Name: []byte(w.list[2]), First: 1, Last: 1},
			Reply: &protocol.Empty{}, To: Target{Of: AtName, Node: 7, Name: w.list[2]}, Writes: true,
		}
		c.call.Waiter, c.last = c, &c.call.Request
		s.account.began(c.last, nil)
		s.e.Call(s.now, &c.call)
	case "way": // a follows the way to a process
		x := &scriptWatch{s: s, name: w.list[1], way: &Way{Session: s.s, To: Target{Of: AtProcess, Node: 7, Name: w.list[2]}}}
		s.watches[x.name], x.way.Waiter = x, x
		s.e.Follow(s.now, x.way)
	case "refresh": // call a waits for a newer map, or a while
		c := &scriptCall{s: s, name: w.list[1]}
		s.calls[c.name] = c
		c.wait = MapWait{Any: true, Refresh: true, Tries: int(w.number(t, "tries", 0))}
		c.wait.Waiter, c.last = c, &c.wait.Request
		s.account.began(c.last, nil)
		s.e.AwaitMap(s.now, &c.wait)
	case "take":
		s.takeEvents(s.watches[w.list[1]], int(w.number(t, "most", 1000)))
	default:
		return false
	}
	return true
}

// takeEvents is the consumer.
func (s *script) takeEvents(x *scriptWatch, most int) {
	for range most {
		var text string
		var ok bool
		var err error
		if x.way != nil {
			ok, err = x.way.Next()
			text = "another way"
		} else if x.watch != nil {
			var ev WatchEvent
			if ok, err = x.watch.Next(&ev); ok {
				text = watchEventText(&ev)
			}
		} else {
			var event any
			if event, ok, err = x.stream.Next(); ok {
				text = event.(stateEvent).text
			}
		}
		switch {
		case err != nil:
			text = err.Error()
		case !ok && x.way == nil && x.last() != nil:
			text = fmt.Sprintf("(not live: %v)", x.last())
		case !ok:
			return
		}
		s.out = append(s.out, x.name+": "+text)
		if !ok {
			return
		}
	}
}

func (w *scriptWatch) last() error {
	if w.watch != nil {
		return w.watch.Last()
	}
	return w.stream.Last()
}

func watchEventText(ev *WatchEvent) string {
	switch ev.Kind {
	case WatchSynced:
		return "synced"
	case WatchInterrupted:
		return "interrupted"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s is %q", ev.Name, ev.Data)
	if ev.Kind == WatchDeleted {
		b.Reset()
		fmt.Fprintf(&b, "%s is deleted", ev.Name)
	}
	for what, list := range map[string][]protocol.Owner{"+": ev.Added, "~": ev.Updated, "-": ev.Removed} {
		for _, o := range list {
			fmt.Fprintf(&b, " %sowner %d", what, o.OrderID)
		}
	}
	if ev.Created {
		b.WriteString(" (new)")
	}
	return b.String()
}

// stateEvent is an event of a process: its state at an index, or a change.
type stateEvent struct {
	shard, index uint64
	text         string
}

// LogIndex implements Indexed.
func (e stateEvent) LogIndex() (shard, index uint64) { return e.shard, e.index }

func decodeState(h protocol.Header) (any, Step, error) {
	if h.Kind == protocol.KindProcessChanges {
		var m protocol.ProcessChanges
		err := protocol.DecodeBody(&m, h.Body)
		return stateEvent{h.Arg, m.Revision, fmt.Sprintf("change at %d", m.Revision)}, Append, err
	}
	var m protocol.ProcessState
	err := protocol.DecodeBody(&m, h.Body)
	return stateEvent{h.Arg, m.Status.Index, fmt.Sprintf("state at %d", m.Status.Index)}, Replace, err
}

// watchServer is what a server sends for subscriptions; false: it is something else. Streams are
// named by what they watch.
//
//	1: snapshot jobs* index=5 runs=4:1,4:0 a=1 b=2      a snapshot in one page; first=no, last=no for others
//	1: resumed a index=9 delta=7 data=3                 a snapshot that resumes, with a delta at 7, or with none
//	1: delta a index=6 data=3                           or new=3, or deleted, or owner=7, or gone=7
//	1: state p index=5                                  of a process
//	1: changes p index=6
//	1: cut jobs* UNAVAILABLE
func (s *script) watchServer(t *testing.T, from string, c *Conn, w words) bool {
	send := func(kind protocol.Kind, id uint64, m protocol.Message) {
		s.receive(t, c, protocol.AppendFrame(nil, kind, id, w.number(t, "shard", 1), m))
	}
	id := func() uint64 {
		x, ok := s.ids[from+"/"+w.list[1]]
		if !ok {
			t.Fatalf("no watch of %s was sent to %s", w.list[1], from)
		}
		return x.id
	}
	switch w.list[0] {
	case "snapshot":
		m := &protocol.Snapshot{
			Index: w.number(t, "index", 0), Epoch: w.number(t, "epoch", 0), First: w.options["first"] != "no",
			Last: w.options["last"] != "no",
		}
		for _, run := range strings.Split(w.options["runs"], ",") {
			if count, epoch, ok := strings.Cut(run, ":"); ok {
				n, _ := strconv.ParseUint(count, 10, 32)
				at, _ := strconv.ParseUint(epoch, 10, 64)
				m.Runs = append(m.Runs, protocol.BucketRun{Count: uint32(n), Epoch: at})
			}
		}
		var names []string
		for name := range w.options {
			if !slices.Contains([]string{"index", "epoch", "first", "last", "runs", "shard"}, name) {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		for _, name := range names {
			m.Semaphores = append(m.Semaphores, protocol.SnapshotItem{
				Name: []byte(name), Limit: 1, Version: w.number(t, "index", 0), Data: []byte(w.options[name]),
			})
		}
		send(protocol.KindSnapshot, id(), m)
	case "resumed":
		m := &protocol.Snapshot{Index: w.number(t, "index", 0), Epoch: w.number(t, "epoch", 0), First: true, Last: true, Resumed: true}
		if _, ok := w.options["delta"]; ok {
			m.Deltas = protocol.AppendFrame(nil, protocol.KindDelta, 0, 1, &protocol.Delta{
				Node: 7, Name: []byte(w.list[1]), Index: w.number(t, "delta", 0), Changes: []protocol.SemaphoreChange{scriptChange(t, w)},
			})
		}
		send(protocol.KindSnapshot, id(), m)
	case "delta":
		send(protocol.KindDelta, 0, &protocol.Delta{
			Node: 7, Name: []byte(w.list[1]), Index: w.number(t, "index", 0), Changes: []protocol.SemaphoreChange{scriptChange(t, w)},
		})
	case "state":
		send(protocol.KindProcessState, id(), &protocol.ProcessState{
			First: true, Last: true, Exists: true, Status: protocol.ProcessStatus{Index: w.number(t, "index", 0), Name: []byte("p")},
		})
	case "changes":
		send(protocol.KindProcessChanges, id(), &protocol.ProcessChanges{Revision: w.number(t, "index", 0)})
	case "semaphore":
		to := s.ids[from+"/read_"+w.list[1]]
		s.receive(t, c, protocol.AppendFrame(nil, protocol.KindDescribe|protocol.KindReply, to.id, 0, &protocol.DescribeReply{
			Name: []byte(w.list[1]), Index: w.number(t, "index", 0),
		}))
	case "round":
		send(protocol.KindProcessRound, 0, &protocol.ProcessRound{Session: 1, Name: []byte(w.list[1]), Epoch: w.number(t, "epoch", 1)})
	case "message":
		send(protocol.KindProcessMessage, 0, &protocol.ProcessMessage{Session: 1, Name: []byte(w.list[1])})
	case "fired":
		send(protocol.KindWatchFired, 0, &protocol.WatchFired{
			Session: 1, WatchID: w.number(t, "watch", 1), DataChanged: w.options["missed"] == "",
		})
	case "cut":
		send(protocol.KindStreamCut, id(), &protocol.StreamCut{Status: statusNamed(t, w.list[2]), Message: "said so"})
	default:
		return false
	}
	return true
}

// scriptChange is the change of a delta.
func scriptChange(t *testing.T, w words) protocol.SemaphoreChange {
	ch := protocol.SemaphoreChange{Kind: protocol.ChangeDeleted, Version: w.number(t, "index", 0), Limit: 1}
	set := func(option string, kind protocol.SemaphoreChangeKind) string {
		v, ok := w.options[option]
		if ok {
			ch.Kind = kind
		}
		return v
	}
	if v := set("new", protocol.ChangeCreated); v != "" {
		ch.Data = []byte(v)
	}
	if v := set("data", protocol.ChangeData); v != "" {
		ch.Data = []byte(v)
	}
	if set("owner", protocol.ChangeOwnerAdded) != "" {
		ch.Owner.OrderID = w.number(t, "owner", 0)
	}
	if set("gone", protocol.ChangeOwnerRemoved) != "" {
		ch.Owner.OrderID = w.number(t, "gone", 0)
	}
	set("options", protocol.ChangeOptions)
	set("unknown", 99)
	return ch
}

// watchFrame shows a frame of a subscription.
func watchFrame(h *protocol.Header) (text, name string) {
	switch h.Kind {
	case protocol.KindWatch:
		var m protocol.Watch
		_ = protocol.DecodeBody(&m, h.Body)
		name = string(m.Name)
		if m.Prefix {
			name += "*"
		}
		text = fmt.Sprintf("watch %s shard=%d", name, m.Shard)
		if m.Known > 0 {
			text += fmt.Sprintf(" known=%d epoch=%d", m.Known, m.Epoch)
		}
		return text, name
	case protocol.KindProcessWatch:
		var m protocol.ProcessWatch
		_ = protocol.DecodeBody(&m, h.Body)
		return "watch process " + string(m.Name), string(m.Name)
	case protocol.KindDescribe:
		var m protocol.Describe
		_ = protocol.DecodeBody(&m, h.Body)
		text = fmt.Sprintf("describe %s min=%d", m.Name, m.MinIndex)
		if m.Consistency == protocol.Strict {
			text += " strict"
		}
		if m.WatchID != 0 {
			text += fmt.Sprintf(" watch=%d", m.WatchID)
		}
		return text, "read_" + string(m.Name)
	case protocol.KindForceRelease:
		var m protocol.ForceRelease
		_ = protocol.DecodeBody(&m, h.Body)
		return fmt.Sprintf("force release %s", m.Name), "force_" + string(m.Name)
	case protocol.KindUnwatch:
		return "unwatch", "unwatch"
	}
	return "", ""
}
