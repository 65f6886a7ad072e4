package trusttest

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Server is an issuer that publishes its keys by OpenID Connect. Its methods may be called from any
// goroutine.
type Server struct {
	URL string // its tokens' iss
	CA  []byte // PEM of its certificate

	Stop  func()       // nobody answers any more
	Hangs atomic.Bool  // questions are not answered
	Hung  atomic.Int32 // so many are not

	mu     sync.Mutex
	issuer *Issuer
}

// Serve makes an issuer with a key, until the test ends.
func Serve(t testing.TB) *Server {
	t.Helper()
	s := &Server{issuer: New(t)}
	h := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.Hangs.Load() {
			s.Hung.Add(1)
			<-r.Context().Done()
			return
		}
		if r.URL.Path == "/.well-known/openid-configuration" {
			_, _ = fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, s.URL, s.URL+"/keys")
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		_, _ = w.Write(s.issuer.Keys(t))
	}))
	t.Cleanup(h.Close)
	s.URL, s.Stop = h.URL, h.Close
	s.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})
	return s
}

// Rotate replaces the key.
func (s *Server) Rotate(t testing.TB) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.issuer.Rotate(t)
}

// Token signs a token; see Issuer.
func (s *Server) Token(t testing.TB, subject string, life time.Duration, more map[string]any) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	claims := map[string]any{"iss": s.URL}
	for k, v := range more {
		claims[k] = v
	}
	return s.issuer.Token(t, subject, life, claims)
}
