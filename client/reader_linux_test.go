package client

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// stoppedClock makes each call close behind the answer before it.
type stoppedClock struct{ clock }

func (stoppedClock) now() time.Duration { return time.Hour }

// eventIDs passes the ids of events on, to a function if there is one.
type eventIDs struct {
	ids    chan uint64
	handle atomic.Pointer[func(id uint64)]
	lost   chan struct{}
}

func (e *eventIDs) handleEvent(_ *conn, h protocol.Header) error {
	if handle := e.handle.Load(); handle != nil {
		(*handle)(h.ID)
		return nil
	}
	e.ids <- h.ID
	return nil
}

func (e *eventIDs) connLost(*conn)     { close(e.lost) }
func (e *eventIDs) serverSilent(*conn) {}

// readerTest is a connection, and the server's end, which the test writes and reads.
type readerTest struct {
	t      *testing.T
	cn     *conn
	events *eventIDs
	server *net.TCPConn
	in     *bufio.Reader // of server
}

func newReaderTest(t *testing.T) *readerTest {
	t.Helper()
	if !reportsEnds() {
		t.Skip("this kernel does not count an end, so callers do not read")
	}
	nc, server := tcpPair(t)
	events := &eventIDs{ids: make(chan uint64, 100), lost: make(chan struct{})}
	r := &readerTest{t: t, events: events, server: server, in: bufio.NewReader(server)}
	r.cn = newConn(r.events, nc, protocol.HelloReply{Instance: 1, Window: 1000}, nil, stoppedClock{systemClock{}})
	r.cn.serve()
	t.Cleanup(func() {
		_ = server.Close()
		<-r.events.lost
	})
	return r
}

// request is the id of the next request that the server reads.
func (r *readerTest) request() uint64 {
	r.t.Helper()
	id, err := readRequest(r.in)
	if err != nil {
		r.t.Fatal(err)
	}
	return id
}

func readRequest(in io.Reader) (id uint64, err error) {
	var length [4]byte
	if _, err := io.ReadFull(in, length[:]); err != nil {
		return 0, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(length[:]))
	if _, err := io.ReadFull(in, frame); err != nil {
		return 0, err
	}
	h, err := protocol.ParseFrame(frame)
	return h.ID, err
}

func answer(id uint64) []byte {
	return protocol.AppendFrame(nil, protocol.KindDescribe|protocol.KindReply, id, uint64(protocol.StatusOK), nil)
}

func event(id uint64) []byte { return protocol.AppendFrame(nil, newerEvent, id, 1, nil) }

// send has the server write.
func (r *readerTest) send(parts ...[]byte) {
	r.t.Helper()
	if _, err := r.server.Write(slices.Concat(parts...)); err != nil {
		r.t.Fatal(err)
	}
}

// wantEvents waits for events.
func (r *readerTest) wantEvents(ids ...uint64) {
	r.t.Helper()
	for _, id := range ids {
		if got := <-r.events.ids; got != id {
			r.t.Errorf("event %d; want %d", got, id)
		}
	}
}

// begun is a call that waits for its answer.
type begun struct {
	id     uint64
	result chan error
}

func (r *readerTest) start(ctx context.Context, of *Session, shard uint64) (*call, uint64) {
	r.t.Helper()
	cl, id, err := r.cn.startCall(ctx, of, protocol.KindDescribe, 0, nil, func(_ uint64, cl *call) { cl.shard = shard })
	if err != nil {
		r.t.Fatal(err)
	}
	return cl, id
}

func (r *readerTest) wait(ctx context.Context, cl *call, id uint64) begun {
	b := begun{id, make(chan error, 1)}
	go func() { b.result <- r.cn.waitReply(ctx, cl, id, nil) }()
	return b
}

// startOwn makes calls that follow each other, until it has begun one whose caller reads.
func (r *readerTest) startOwn(ctx context.Context, of *Session, shard uint64) (*call, uint64) {
	r.t.Helper()
	for {
		cl, id := r.start(ctx, of, shard)
		if cl.reads {
			return cl, id
		}
		b := r.wait(ctx, cl, id)
		r.request()
		r.send(answer(id))
		r.want(b, nil)
	}
}

// ownCall begins a call whose caller reads. The server has read its request.
func (r *readerTest) ownCall(ctx context.Context, of *Session, shard uint64) begun {
	r.t.Helper()
	cl, id := r.startOwn(ctx, of, shard)
	b := r.wait(ctx, cl, id)
	r.request()
	return b
}

// want waits for the end of a call.
func (r *readerTest) want(b begun, want error) {
	r.t.Helper()
	if err := <-b.result; !errors.Is(err, want) {
		r.t.Errorf("the call ended with %v; want %v", err, want)
	}
}

// call makes another call. The server has read its request.
func (r *readerTest) call() begun {
	r.t.Helper()
	cl, id := r.start(r.t.Context(), nil, 0)
	b := r.wait(r.t.Context(), cl, id)
	r.request()
	return b
}

// answerInOrder has the server answer each call when the one before has ended.
func (r *readerTest) answerInOrder(calls ...begun) {
	r.t.Helper()
	for _, b := range calls {
		r.send(answer(b.id))
		r.want(b, nil)
	}
}

// wantLost waits for the end of the connection on both sides.
func (r *readerTest) wantLost() {
	r.t.Helper()
	<-r.events.lost
	if n, err := r.server.Read(make([]byte, 1)); n > 0 || err == nil {
		r.t.Errorf("the server read %d bytes and %v; want the end", n, err)
	}
}

// TestCallerReads has a caller read its answer, with what else comes, and all goes on after it.
func TestCallerReads(t *testing.T) {
	cut := func(b []byte) ([]byte, []byte) { return b[:len(b)/2], b[len(b)/2:] }
	for name, test := range map[string]func(r *readerTest, own begun){
		"an answer": func(r *readerTest, own begun) {
			r.answerInOrder(own)
		},
		"an answer in two parts": func(r *readerTest, own begun) {
			a, b := cut(answer(own.id))
			r.send(a)
			pollAll()
			r.send(b)
			r.want(own, nil)
		},
		"events before and behind the answer": func(r *readerTest, own begun) {
			r.send(event(1))
			r.wantEvents(1)
			r.send(event(2), answer(own.id), event(3))
			r.want(own, nil)
			r.wantEvents(2, 3)
		},
		"more than a read takes": func(r *readerTest, own begun) {
			sent := [][]byte{answer(own.id)}
			var ids []uint64
			for id := range uint64(90) {
				sent, ids = append(sent, event(id)), append(ids, id)
			}
			r.send(sent...)
			r.want(own, nil)
			r.wantEvents(ids...)
		},
		"a part of an event behind the answer": func(r *readerTest, own begun) {
			a, b := cut(event(1))
			r.send(answer(own.id), a)
			r.want(own, nil)
			r.send(b)
			r.wantEvents(1)
		},
		"an event between two calls": func(r *readerTest, own begun) {
			r.send(answer(own.id))
			r.want(own, nil)
			r.send(event(1))
			r.wantEvents(1)
		},
		"another call, answered first": func(r *readerTest, own begun) { r.answerInOrder(r.call(), own) },
		"another call, answered later": func(r *readerTest, own begun) { r.answerInOrder(own, r.call()) },
		"no answer for long": func(r *readerTest, own begun) {
			for r.turn() != ofGoroutine {
				time.Sleep(time.Millisecond) // of maxCallerRead
			}
			r.send(event(1), answer(own.id))
			r.want(own, nil)
			r.wantEvents(1)
		},
		"the timer of the last call": func(r *readerTest, own begun) {
			r.cn.reader.recall()
			r.cn.reader.recall()
			r.send(answer(own.id))
			r.want(own, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReaderTest(t)
			own := r.ownCall(t.Context(), nil, 0)
			if name != "no answer for long" {
				r.cn.reader.timer.Stop()
			}
			test(r, own)
			for range 2 * callsInARow { // in every state
				r.answerInOrder(r.call())
			}
			r.send(event(100))
			r.wantEvents(100)
		})
	}
}

func (r *readerTest) turn() readTurn {
	r.cn.mu.Lock()
	defer r.cn.mu.Unlock()
	return r.cn.reader.turn
}

// TestCallerRecalledBeforeItReads: the timer of the call before fires when a call has the turn and
// has not written its request.
func TestCallerRecalledBeforeItReads(t *testing.T) {
	r := newReaderTest(t)
	cl, id := r.startOwn(t.Context(), nil, 0)
	r.cn.reader.recall()
	own := r.wait(t.Context(), cl, id)
	r.request()
	r.answerInOrder(own)
	r.answerInOrder(r.ownCall(t.Context(), nil, 0))
}

// TestCallerStopsReading: what ends a call ends it while its caller reads.
func TestCallerStopsReading(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(r *readerTest, s *Session, cancel func())
		want error
		lost bool
	}{
		{name: "its context", end: func(_ *readerTest, _ *Session, cancel func()) { cancel() }, want: context.Canceled},
		{name: "its session", end: func(r *readerTest, s *Session, _ func()) { r.cn.failSessionCalls(s) }, want: errCallStopped},
		{name: "its shard", end: func(r *readerTest, _ *Session, _ func()) { r.cn.failShardCalls(7) }, want: errConnLost},
		{name: "the client", end: func(r *readerTest, _ *Session, _ func()) { r.cn.end(net.ErrClosed) }, want: errConnLost, lost: true},
		{name: "the server", end: func(r *readerTest, _ *Session, _ func()) { _ = r.server.CloseWrite() }, want: errConnLost, lost: true},
		{name: "bad bytes", end: func(r *readerTest, _ *Session, _ func()) {
			r.send([]byte{0xff, 0xff, 0xff, 0xff, 0xff})
		}, want: errConnLost, lost: true},
		{name: "the server, behind an event", end: func(r *readerTest, _ *Session, _ func()) {
			resetBehindEvent(t, r.server)
		}, want: errConnLost, lost: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newReaderTest(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := new(Session)
			own := r.ownCall(ctx, s, 7)
			if c.want != context.Canceled { // which the caller sees when the timer fires
				r.cn.reader.timer.Stop()
			}
			c.end(r, s, cancel)
			r.want(own, c.want)
			if c.lost {
				r.wantLost()
				return
			}
			r.send(answer(own.id)) // nobody's
			own = r.ownCall(t.Context(), nil, 0)
			r.send(answer(own.id))
			r.want(own, nil)
		})
	}
}

// TestCallerAmongEvents: a server that never pauses keeps no caller from its answer, nor from the
// end of its context.
func TestCallerAmongEvents(t *testing.T) {
	for _, answered := range []bool{true, false} {
		r := newReaderTest(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		own := r.ownCall(ctx, nil, 0)
		var over atomic.Bool
		handle := func(id uint64) {
			if !over.Load() {
				_, _ = r.server.Write(event(id)) // the reader always leaves something
			}
		}
		r.events.handle.Store(&handle)
		var sent []byte
		if answered {
			r.cn.reader.timer.Stop()
			sent = answer(own.id)
		}
		for range maxReadBuffer / 8 { // more than a read takes
			sent = append(sent, event(1)...)
		}
		r.send(sent)
		var want error
		if !answered {
			cancel()
			want = context.Canceled
		}
		r.want(own, want)
		over.Store(true)
		_ = r.server.Close()
	}
}

// TestCallerUnwinds: a handler panics while a caller reads, and the program goes on. The connection
// ends.
func TestCallerUnwinds(t *testing.T) {
	r := newReaderTest(t)
	cl, id := r.startOwn(t.Context(), nil, 0)
	handle := func(uint64) { panic("of a handler") }
	r.events.handle.Store(&handle)
	recovered := make(chan any, 1)
	go func() {
		defer func() { recovered <- recover() }()
		_ = r.cn.waitReply(t.Context(), cl, id, nil)
	}()
	r.request()
	r.send(event(1))
	if got := <-recovered; got != "of a handler" {
		t.Errorf("recovered %v", got)
	}
	r.wantLost()
	if !errors.Is(r.cn.err, errUnwound) {
		t.Errorf("the connection ended with %v; want %v", r.cn.err, errUnwound)
	}
}

// TestEndBetweenCalls: the connection ends while nobody reads.
func TestEndBetweenCalls(t *testing.T) {
	for name, end := range map[string]func(r *readerTest){
		"by the client": func(r *readerTest) { r.cn.end(net.ErrClosed) },
		"by the server": func(r *readerTest) { _ = r.server.CloseWrite() },
	} {
		t.Run(name, func(t *testing.T) {
			r := newReaderTest(t)
			own := r.ownCall(t.Context(), nil, 0)
			r.send(answer(own.id))
			r.want(own, nil)
			end(r)
			r.wantLost()
		})
	}
}

// TestReadersAtRandom has callers that come alone and together, that give up, and a server that
// sends events beside answers, in pieces. Every call ends, and every event arrives in its place.
func TestReadersAtRandom(t *testing.T) {
	const calls, workers = 3000, 3
	r := newReaderTest(t)
	sent := make(chan uint64, 1)
	go func() { // the server
		rnd := rand.New(rand.NewPCG(1, 2))
		var events uint64
		defer func() { sent <- events }()
		for {
			id, err := readRequest(r.in)
			if err != nil {
				return
			}
			var out []byte
			before := rnd.IntN(2)
			for i := range 2 {
				if i == before {
					out = append(out, answer(id)...)
				}
				if rnd.IntN(4) == 0 {
					events++
					out = append(out, event(events)...)
				}
			}
			for len(out) > 0 {
				n := len(out)
				if rnd.IntN(10) == 0 {
					n = 1 + rnd.IntN(n)
				}
				if _, err := r.server.Write(out[:n]); err != nil {
					return
				}
				out = out[n:]
			}
		}
	}()
	var last uint64
	handled := make(chan struct{})
	go func() {
		defer close(handled)
		for id := range r.events.ids {
			if id != last+1 {
				t.Errorf("event %d after %d", id, last)
			}
			last = id
		}
	}()
	var own [workers]int
	var wait sync.WaitGroup
	for w := range workers {
		wait.Go(func() {
			rnd := rand.New(rand.NewPCG(3, uint64(w)))
			for range calls {
				if rnd.IntN(50) == 0 {
					time.Sleep(time.Duration(rnd.IntN(int(2 * goroutineBack)))) // so that others are alone
				}
				ctx, cancel := context.WithCancel(t.Context())
				if rnd.IntN(20) == 0 {
					time.AfterFunc(time.Duration(rnd.IntN(100_000)), cancel)
				}
				cl, id, err := r.cn.startCall(ctx, nil, protocol.KindDescribe, 0, nil, nil)
				if err == nil {
					if cl.reads {
						own[w]++
					}
					err = r.cn.waitReply(ctx, cl, id, nil)
				}
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	wait.Wait()
	_ = r.server.CloseRead()
	events := <-sent
	_ = r.server.Close()
	<-r.events.lost
	close(r.events.ids)
	<-handled
	if last != events {
		t.Errorf("%d events arrived; want %d", last, events)
	}
	t.Logf("callers read for themselves in %v of %d calls each", own, calls)
}
