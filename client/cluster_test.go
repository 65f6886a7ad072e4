package client

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestCluster: an operator's request goes to any instance, again when a connection breaks or there
// is no leader, and its answer and refusals come back.
func TestCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t, func(c *Config) { c.Endpoints = []string{"1", "2"} })
		tries := 0
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind != protocol.KindCluster {
					return false
				}
				m := decode[protocol.Cluster](t, h.Body)
				switch tries++; {
				case m.Method != protocol.MethodExpel || string(m.Body) != `{"instance":"b"}`:
					t.Errorf("asked %s %s", m.Method, m.Body)
				case tries == 1:
					_ = fc.nc.Close()
				case tries == 2:
					fc.fail(h, protocol.StatusUnavailable)
				case tries == 3:
					fc.reply(h, &protocol.ClusterReply{Body: []byte(`{"id":2,"name":"b","target":"Expelled","new":[1]}`)})
				default:
					fc.fail(h, protocol.StatusPreconditionFailed)
				}
				return true
			}
		})
		var out protocol.ClusterInstance
		if err := callCluster(bg, c, protocol.MethodExpel, protocol.ExpelRequest{Instance: "b"}, &out); err != nil ||
			out.ID != 2 || out.Target != "Expelled" || tries != 3 {
			t.Errorf("answered %+v, %v after %d tries", out, err, tries)
		}
		if err := callCluster(bg, c, protocol.MethodExpel, protocol.ExpelRequest{Instance: "b"},
			nil); !errors.Is(err, PreconditionFailed) || tries != 4 {
			t.Errorf("a refusal comes as %v after %d tries", err, tries)
		}
	})
}

func TestClusterErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		c := f.open(t)
		body := []byte("{")
		f.set(func() {
			f.on = func(fc *fakeConn, h protocol.Header) bool {
				if h.Kind != protocol.KindCluster {
					return false
				}
				if body == nil {
					_ = fc.nc.Close()
				} else {
					fc.reply(h, &protocol.ClusterReply{Body: body})
				}
				return true
			}
		})
		if err := callCluster(bg, c, protocol.MethodStatus, nil,
			&protocol.ClusterStatus{}); protocol.StatusOf(err) != protocol.StatusInternal {
			t.Errorf("half a document comes as %v", err)
		}
		var unsupported *json.UnsupportedTypeError
		if err := callCluster(bg, c, protocol.MethodStatus, make(chan int), nil); !errors.As(err, &unsupported) {
			t.Errorf("what JSON cannot have comes as %v", err)
		}
		f.set(func() { body = nil })
		for method, want := range map[string]bool{protocol.MethodStatus: false, protocol.MethodExpel: true} {
			ctx, cancel := context.WithTimeout(bg, 10*time.Second)
			err := callCluster(ctx, c, method, nil, nil)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrOutcomeUnknown) != want {
				t.Errorf("%s that nobody answers comes as %v", method, err)
			}
		}
	})
}
