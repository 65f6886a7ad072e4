package process

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/quick"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// scriptedHandler is a handler made of functions; those that are nil do nothing.
type scriptedHandler struct {
	BaseHandler
	prepare    func(*Round) error
	coordinate func(*Round) error
	process    func(*Request) error
	cancel     func(*Round)
}

func (h *scriptedHandler) Prepare(r *Round) error {
	if h.prepare == nil {
		return nil
	}
	return h.prepare(r)
}

func (h *scriptedHandler) Coordinate(r *Round) error {
	if h.coordinate == nil {
		return r.Complete(nil)
	}
	return h.coordinate(r)
}

func (h *scriptedHandler) Process(q *Request) error {
	if h.process == nil {
		return h.BaseHandler.Process(q)
	}
	return h.process(q)
}

func (h *scriptedHandler) Cancel(r *Round) {
	if h.cancel != nil {
		h.cancel(r)
	}
}

type question struct {
	Text  string
	Times int
}

type answer struct{ Text string }

// brokenCodec is a codec with which everything goes wrong that its name says.
type brokenCodec[T any] struct {
	Codec[T]
	encode, decode func()
}

func (c brokenCodec[T]) Encode(v T) ([]byte, error) { c.encode(); return c.Codec.Encode(v) }
func (c brokenCodec[T]) Decode(b []byte) (T, error) { c.decode(); return c.Codec.Decode(b) }

func nothing() {}

// TestTypedMessages: a coordinator asks members of which each has another way to fail, and learns
// of each what is wrong with it; nothing is asked twice.
func TestTypedMessages(t *testing.T) {
	b := newBackend(t, 0)
	messages := NewMessages(JSON[question](), JSON[answer]())
	repeat := func(q question) (answer, error) { return answer{strings.Repeat(q.Text, q.Times)}, nil }
	panics := func() { panic("crooked") }
	type member struct {
		name    string
		process func(*Request) error
		want    error
		text    string
	}
	handled := map[string]int{}
	var mu sync.Mutex
	handle := func(m Messages[question, answer]) func(*Request) error {
		return func(q *Request) error { return m.Handle(q, repeat) }
	}
	members := []member{
		{name: "same", process: handle(messages)},
		{name: "late", process: func(q *Request) error {
			v, err := messages.Read(q)
			if err != nil {
				return err
			}
			go func() { _ = messages.Reply(q, answer{strings.Repeat(v.Text, v.Times)}) }()
			return nil
		}},
		{name: "other codec", process: handle(NewMessages(Gob[question](), JSON[answer]())), want: ErrUnread, text: "decode process.question"},
		{name: "panic in decode", process: handle(NewMessages[question, answer](brokenCodec[question]{JSON[question](), nothing, panics}, JSON[answer]())), want: ErrUnread, text: "panicked: crooked"},
		{name: "panic in encode", process: handle(NewMessages[question, answer](JSON[question](), brokenCodec[answer]{JSON[answer](), panics, nothing})), want: ErrUnread, text: "panicked: crooked"},
		{name: "large reply", process: func(q *Request) error {
			if err := messages.Reply(q, answer{strings.Repeat("x", protocol.MaxProcessPayload)}); !errors.Is(err, ErrTooLarge) {
				return fmt.Errorf("large reply gives %w", err)
			}
			return nil
		}, want: ErrUnread, text: "at most 1048575 are allowed"},
		{name: "reply in another codec", process: handle(NewMessages(JSON[question](), Gob[answer]())), want: ErrCodec, text: "decode process.answer"},
		{name: "no typed reply", process: func(q *Request) error { return q.Reply(nil) }, want: ErrCodec, text: "no typed reply"},
	}
	type outcome struct {
		r       *Round
		replies []Reply[answer]
	}
	outcomes := make(chan outcome, 100)
	single := make(chan error, 100)
	for i, m := range members {
		h := &scriptedHandler{process: func(q *Request) error {
			mu.Lock()
			handled[fmt.Sprint(m.name, q.Round().Epoch())]++
			mu.Unlock()
			return m.process(q)
		}}
		h.coordinate = func(r *Round) error {
			if r.Size() < len(members) {
				return r.Complete(nil)
			}
			if err := messages.Broadcast(r, question{Text: strings.Repeat("x", protocol.MaxProcessPayload)}, nil,
				Replies[answer]{}); !errors.Is(err, ErrTooLarge) {
				t.Errorf("a large question gives %v", err)
			}
			bad := NewMessages[question, answer](brokenCodec[question]{JSON[question](), panics, nothing}, JSON[answer]())
			if err := bad.Request(r, r.Coordinator(), question{}, nil, nil); !errors.Is(err, ErrCodec) {
				t.Errorf("a codec that panics gives %v", err)
			}
			return messages.Broadcast(r, question{"ab", 2}, nil, Replies[answer]{Answered: func(list []Reply[answer]) {
				outcomes <- outcome{r, list}
				err := messages.Request(r, r.Members()[2].Session, question{},
					func(_ answer, err error) { single <- err; _ = r.Complete(nil) }, nil)
				if err != nil {
					t.Error(err)
				}
			}})
		}
		p, _, err := b.join(t.Context(), uint64(i+1), h, Options{Data: []byte(m.name)})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := p.Leave(context.Background()); err != nil {
				t.Error(err)
			}
		}()
	}
	o := wait(t, "the answers", outcomes)
	if len(o.replies) != len(members) {
		t.Fatalf("%d answers of %d members", len(o.replies), len(members))
	}
	for _, reply := range o.replies {
		m := members[reply.From-1]
		switch {
		case m.want == nil && (reply.Err != nil || reply.Value.Text != "abab"):
			t.Errorf("%s: %q, %v", m.name, reply.Value.Text, reply.Err)
		case m.want != nil && (!errors.Is(reply.Err, m.want) || !strings.Contains(reply.Err.Error(), m.text)):
			t.Errorf("%s: error %v, want one of %v with %q", m.name, reply.Err, m.want, m.text)
		}
		mu.Lock()
		if n := handled[fmt.Sprint(m.name, o.r.Epoch())]; n != 1 && m.name != "other codec" {
			t.Errorf("%s was asked %d times", m.name, n)
		}
		mu.Unlock()
	}
	if err := wait(t, "one answer", single); !errors.Is(err, ErrUnread) {
		t.Errorf("a request to who cannot read it gives %v", err)
	}
}

// TestCodecs: what is encoded is decoded, and rubbish is an error.
func TestCodecs(t *testing.T) {
	for name, c := range map[string]Codec[question]{"json": JSON[question](), "gob": Gob[question]()} {
		if err := quick.Check(func(v question) bool {
			b, err := encode(c, v, protocol.MaxProcessPayload)
			if err != nil {
				t.Fatal(err)
			}
			w, err := decode(c, b)
			return err == nil && w.Times == v.Times && (w.Text == v.Text || w.Text == strings.ToValidUTF8(v.Text, "\uFFFD"))
		}, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, b := range [][]byte{nil, {0xc1}, []byte("{"), []byte(`{"Text":7}`)} {
			if v, err := decode(c, b); !errors.Is(err, ErrCodec) || v != (question{}) {
				t.Errorf("%s: %q gives %+v, %v", name, b, v, err)
			}
		}
	}
	type word string
	b, err := encode(Text[word](), "as it is", 8)
	if w, err2 := decode(Text[word](), b); err != nil || err2 != nil || w != "as it is" {
		t.Errorf("%q, %v, %v", w, err, err2)
	}
	if _, err := encode(Text[word](), "as it is", 7); !errors.Is(err, ErrTooLarge) {
		t.Errorf("8 bytes where 7 are allowed: %v", err)
	}
	if _, err := encode(JSON[chan int](), nil, 100); !errors.Is(err, ErrCodec) {
		t.Errorf("a channel as JSON: %v", err)
	}
}

// TestLateMessages: a message of a round that is over is given up on the goroutine of the process,
// behind the round's end, once; and one with a timeout while the round goes on.
func TestLateMessages(t *testing.T) {
	b := newBackend(t, 0)
	type got struct {
		what  string
		epoch uint64
	}
	events := make(chan got, 100)
	superseded, go2 := make(chan *Round, 1), make(chan struct{})
	h := &scriptedHandler{
		process: func(*Request) error { return nil }, // never replies
		cancel:  func(r *Round) { events <- got{"cancel", r.Epoch()} },
	}
	h.coordinate = func(r *Round) error {
		if r.Size() == 1 {
			superseded <- r
			<-r.Context().Done() // another one joins
			for _, to := range []uint64{1, 2} {
				if err := r.Request(to, nil, nil, func() { events <- got{"given up", r.Epoch()} }); err != nil {
					t.Errorf("a late message: %v", err)
				}
			}
			<-go2
			return nil
		}
		called := false
		err := r.BroadcastIf(func(*Round) bool { return false }, nil, nil, Callback{Answered: func(a []Answer) { called = len(a) == 0 }})
		if err != nil || !called {
			t.Errorf("no broadcast: called %v, %v", called, err)
		}
		return r.BroadcastIf(func(r *Round) bool { return r.Size() == 2 }, nil, func(m Member) bool { return m.Session == 1 }, Callback{
			Timeout: time.Millisecond,
			GivenUp: func(a []Answer) { events <- got{"timeout", r.Epoch()}; _ = r.Complete(nil) },
		})
	}
	p, _, err := b.join(t.Context(), 1, h, Options{})
	if err != nil {
		t.Fatal(err)
	}
	first := wait(t, "the first round", superseded)
	q, _, err := b.join(t.Context(), 2, &scriptedHandler{process: h.process}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	close(go2)
	for i, want := range []string{"cancel", "given up", "given up", "timeout"} {
		if e := wait(t, want, events); e.what != want || (e.epoch == first.Epoch()) != (i < 3) {
			t.Fatalf("%d: %+v, want %q; the first round is %d", i, e, want, first.Epoch())
		}
	}
	if err := p.WaitInitial(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := first.Request(1, nil, nil, func() { events <- got{"given up", first.Epoch()} }); err != nil { // rounds later
		t.Fatal(err)
	}
	if e := wait(t, "the message of the former round", events); e.what != "given up" {
		t.Errorf("%+v", e)
	}
	for _, p := range []*Membership{p, q} {
		if err := p.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s := p.Stats()
	if s.Asked != 4 || s.GivenUp != 4 || s.Answered != 0 || s.Pending != 0 || s.Prepared != 2 || s.Cancelled != 1 ||
		s.Completed != 1 || s.Panics != 0 || s.Epoch <= first.Epoch() {
		t.Errorf("%+v", s)
	}
	if n := len(events); n != 0 {
		t.Errorf("%d more calls", n)
	}
}

// TestFailLater: a round that fails behind Coordinate is tried again, with its reason in the
// history; what is too early or too late is refused. The membership's context outlives the rounds,
// and ends with the membership even while a callback runs.
func TestFailLater(t *testing.T) {
	b := newBackend(t, 0)
	var mu sync.Mutex
	refused := map[string]error{}
	note := func(what string, err error) {
		mu.Lock()
		defer mu.Unlock()
		refused[what] = err
	}
	lives, go2 := make(chan context.Context, 1), make(chan struct{})
	failed := make(chan *Round, 1)
	h := &scriptedHandler{process: func(q *Request) error { return q.Reply(nil) }}
	h.prepare = func(r *Round) error {
		note("in prepare", r.Fail(errors.New("early")))
		return nil
	}
	h.coordinate = func(r *Round) error {
		if r.Attempt() == 0 {
			failed <- r
			return r.Request(r.Coordinator(), nil, func([]byte) { note("in time", r.Fail(nil)) }, nil)
		}
		lives <- r.Membership()
		<-go2
		<-r.Membership().Done() // by Leave
		return nil
	}
	p, _, err := b.join(t.Context(), 1, h, Options{})
	if err != nil {
		t.Fatal(err)
	}
	first := wait(t, "the first round", failed)
	life := wait(t, "the second attempt", lives)
	if first.Context().Err() == nil || life.Err() != nil || life != first.Membership() {
		t.Errorf("the failed round's context: %v, the membership's: %v", first.Context().Err(), life.Err())
	}
	note("late", first.Fail(errors.New("late")))
	close(go2)
	if err := p.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(context.Cause(life), ErrLeft) {
		t.Errorf("the membership's context ended by %v", context.Cause(life))
	}
	for what, want := range map[string]error{"in prepare": ErrNotPrepared, "in time": nil, "late": ErrRoundOver} {
		if err, ok := refused[what]; !ok || !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	if n := b.tally(); n.Failed != 1 {
		t.Errorf("%d rounds failed", n.Failed)
	}
}
