package discovery

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestCancelledRequests: a request that its caller cancels says nothing of its member, whether it
// waits for an answer or for a connection. If it was the one that tries an ejected member, the next
// one tries it.
func TestCancelledRequests(t *testing.T) {
	entered := make(chan struct{})
	web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/slow" {
			entered <- struct{}{}
			<-req.Context().Done()
		}
	}))
	defer web.Close()
	s := &httpService{t: new(Transport), name: "api", balance: loads(0)}
	b := &backend{load: load{weight: 100}, transport: s.newTransport(web.Listener.Addr().String())}
	defer b.transport.CloseIdleConnections()
	s.balance.backends = []*load{&b.load, {weight: 100}}
	send := func(ctx context.Context, path string) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.signalbox"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if b.choose(); !b.ejected == b.probing {
			t.Fatalf("the request of an ejected member tries it: %+v", b.load)
		}
		resp, _, err := s.try(b, req, false)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	for _, ejected := range []bool{false, true} {
		if ejected {
			for range failuresEject {
				s.balance.result(time.Now(), &b.load, true)
			}
			b.until = time.Now()
		}
		was := b.load
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-entered
			cancel()
		}()
		if err := send(ctx, "/slow"); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if err := send(ctx, "/"); !errors.Is(err, context.Canceled) { // before it has a connection
			t.Fatal(err)
		}
		if b.load != was {
			t.Errorf("ejected %v: the cancelled requests leave %+v of %+v", ejected, b.load, was)
		}
		if !b.mayTry(time.Now()) {
			t.Error("nobody tries the member again")
		}
	}
	if err := send(t.Context(), "/"); err != nil || b.ejected || b.failures != 0 || b.inFlight != 0 {
		t.Errorf("%v: %+v", err, b.load)
	}
}
