package handle

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/client/internal/driver"
	"github.com/signalbox-dev/signalbox/protocol"
)

// operator is a client of one instance whose answers to methods for operators are a test's.
type operator struct {
	t  *testing.T
	mu sync.Mutex
	// answer is called for each request, with mu held: the status and the message; lose: the
	// connection is lost instead.
	answer func(m *protocol.Cluster) (status protocol.Status, reply protocol.Message, lose bool)
	Client
}

// inBubble runs a test with an operator, in a bubble of synctest: pauses cost no time.
func inBubble(t *testing.T, test func(t *testing.T, o *operator)) {
	synctest.Test(t, func(t *testing.T) {
		o := &operator{t: t}
		d := driver.New(driver.Config{Endpoints: []string{"1"}, Name: "test", Dial: o.dial})
		defer d.Close()
		if err := d.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		o.Client = Client{Driver: d}
		test(t, o)
	})
}

func (o *operator) dial(context.Context, string) (net.Conn, error) {
	client, server := net.Pipe()
	go o.serve(server)
	return client, nil
}

func (o *operator) serve(nc net.Conn) {
	defer nc.Close()
	out := make(chan []byte, 100) // a client that writes does not read
	defer close(out)
	go func() {
		for b := range out {
			_, _ = nc.Write(b)
		}
	}()
	var buf []byte
	for {
		frame, n, err := protocol.SplitFrame(buf, protocol.MaxFrameLen)
		if err != nil {
			o.t.Error(err)
			return
		}
		if n == 0 {
			chunk := make([]byte, 4096)
			n, err := nc.Read(chunk)
			if err != nil {
				return
			}
			buf = append(buf, chunk[:n]...)
			continue
		}
		h, err := protocol.ParseFrame(frame)
		if err != nil {
			o.t.Error(err)
			return
		}
		buf = buf[n:]
		kind, status, lose := h.Kind|protocol.KindReply, protocol.StatusOK, false
		var reply protocol.Message
		switch h.Kind {
		case protocol.KindHello:
			reply = &protocol.HelloReply{
				Version: protocol.Version, Cluster: "c", Instance: 1, Window: 64, MaxFrame: protocol.MaxFrameLen, MapVersion: 1,
			}
		case protocol.KindMap:
			reply = &protocol.MapReply{
				Version: 1, Cluster: "c", Instances: []protocol.MapInstance{{ID: 1, Address: "1"}},
				Shards: []protocol.MapShard{{ID: 1, Master: 1, Replicas: []uint64{1}}},
				Tiers:  []protocol.MapTier{{Buckets: 1, Runs: []protocol.MapRun{{Count: 1, Shard: 1}}}},
			}
		case protocol.KindPing:
			kind = protocol.KindPong
		case protocol.KindCluster:
			var m protocol.Cluster
			if err := protocol.DecodeBody(&m, h.Body); err != nil {
				o.t.Error(err)
				return
			}
			o.mu.Lock()
			status, reply, lose = o.answer(&m)
			o.mu.Unlock()
		}
		if lose {
			return
		}
		out <- protocol.AppendFrame(nil, kind, h.ID, uint64(status), reply)
	}
}

func refused() protocol.Message { return &protocol.Failure{Message: "says the test"} }

// TestCluster: an operator's request is sent again when a connection breaks or there is no leader,
// and its answer and refusals come back.
func TestCluster(t *testing.T) {
	inBubble(t, func(t *testing.T, o *operator) {
		tries := 0
		o.answer = func(m *protocol.Cluster) (protocol.Status, protocol.Message, bool) {
			if m.Method != protocol.MethodExpel || string(m.Body) != `{"instance":"b"}` {
				t.Errorf("asked %s %s", m.Method, m.Body)
			}
			switch tries++; tries {
			case 1:
				return 0, nil, true
			case 2:
				return protocol.StatusUnavailable, refused(), false
			case 3:
				return 0, &protocol.ClusterReply{Body: []byte(`{"id":2,"name":"b","target":"Expelled","new":[1]}`)}, false
			}
			return protocol.StatusPreconditionFailed, refused(), false
		}
		var out protocol.ClusterInstance
		err := o.Cluster(t.Context(), protocol.MethodExpel, protocol.ExpelRequest{Instance: "b"}, &out)
		if err != nil || out.ID != 2 || out.Target != "Expelled" || tries != 3 {
			t.Errorf("answered %+v, %v after %d tries", out, err, tries)
		}
		err = o.Cluster(t.Context(), protocol.MethodExpel, protocol.ExpelRequest{Instance: "b"}, nil)
		if !errors.Is(err, protocol.StatusPreconditionFailed) || errors.Is(err, driver.ErrOutcomeUnknown) || tries != 4 {
			t.Errorf("a refusal comes as %v after %d tries", err, tries)
		}
	})
}

// TestClusterErrors: what cannot be read or written is an error, and a change that nobody answers
// may have been made.
func TestClusterErrors(t *testing.T) {
	inBubble(t, func(t *testing.T, o *operator) {
		o.answer = func(*protocol.Cluster) (protocol.Status, protocol.Message, bool) {
			return 0, &protocol.ClusterReply{Body: []byte("{")}, false
		}
		err := o.Cluster(t.Context(), protocol.MethodStatus, nil, &protocol.ClusterStatus{})
		if protocol.StatusOf(err) != protocol.StatusInternal {
			t.Errorf("half a document comes as %v", err)
		}
		var unsupported *json.UnsupportedTypeError
		if err := o.Cluster(t.Context(), protocol.MethodStatus, make(chan int), nil); !errors.As(err, &unsupported) {
			t.Errorf("what JSON cannot have comes as %v", err)
		}
		o.mu.Lock()
		o.answer = func(*protocol.Cluster) (protocol.Status, protocol.Message, bool) { return 0, nil, true }
		o.mu.Unlock()
		for method, unknown := range map[string]bool{protocol.MethodStatus: false, protocol.MethodExpel: true} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			err := o.Cluster(ctx, method, nil, nil)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, driver.ErrOutcomeUnknown) != unknown {
				t.Errorf("%s that nobody answers comes as %v", method, err)
			}
		}
	})
}

// TestChangeWithoutMajority: the server says that a change waits for a shard without a majority. The
// caller learns at once that the change may still happen.
func TestChangeWithoutMajority(t *testing.T) {
	inBubble(t, func(t *testing.T, o *operator) {
		answers := 0
		o.answer = func(*protocol.Cluster) (protocol.Status, protocol.Message, bool) {
			answers++
			return protocol.StatusUnavailable, &protocol.Failure{Message: "the meta shard has no majority", Shard: 1}, false
		}
		err := o.Cluster(t.Context(), protocol.MethodDrain, nil, nil)
		if !errors.Is(err, driver.ErrOutcomeUnknown) || !errors.Is(err, protocol.StatusUnavailable) || answers != 1 {
			t.Errorf("%v, after %d answers", err, answers)
		}
	})
}

// answersAfterALoss are the answers to two calls. The connection of the first one is lost, and each
// request after it is answered with the status.
func answersAfterALoss(t *testing.T, method string, status protocol.Status) (errs [2]error) {
	inBubble(t, func(t *testing.T, o *operator) {
		lost := false
		o.answer = func(*protocol.Cluster) (protocol.Status, protocol.Message, bool) {
			lose := !lost
			lost = true
			return status, refused(), lose
		}
		for i := range errs {
			errs[i] = o.Cluster(t.Context(), method, nil, nil)
		}
	})
	return errs
}

// TestAuthChangedWithoutAnswer: who turns auth on, gets no answer and is refused when the client asks
// again, may have turned it on: the secret must be kept. So may have a change of rights.
func TestAuthChangedWithoutAnswer(t *testing.T) {
	for method, refusal := range map[string]protocol.Status{
		protocol.MethodAuthSwitch: protocol.StatusForbidden, protocol.MethodGrant: protocol.StatusForbidden,
		protocol.MethodRevoke: protocol.StatusForbidden, protocol.MethodTokenRevoke: protocol.StatusUnauthenticated,
	} {
		for i, err := range answersAfterALoss(t, method, refusal) {
			if unknown := i == 0; !errors.Is(err, refusal) || errors.Is(err, driver.ErrOutcomeUnknown) != unknown {
				t.Errorf("%s: %v; the outcome is unknown: %t", method, err, unknown)
			}
		}
	}
}

// TestRevokedWithoutAnswer: what is not there any more when the client asks again, the first sending
// has removed.
func TestRevokedWithoutAnswer(t *testing.T) {
	for method, want := range map[string]error{
		protocol.MethodTokenRevoke: nil, protocol.MethodRevoke: nil, protocol.MethodDrain: protocol.StatusNotFound,
	} {
		errs := answersAfterALoss(t, method, protocol.StatusNotFound)
		if !errors.Is(errs[0], want) || !errors.Is(errs[1], protocol.StatusNotFound) {
			t.Errorf("%s: %v, and with nothing lost %v", method, errs[0], errs[1])
		}
	}
}
