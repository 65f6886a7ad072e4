package issuer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/trust"
	"github.com/signalbox-dev/signalbox/server/trust/trusttest"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

const issuerURL = "https://ci.example"

// world is an issuer in memory, and the meta shard of an instance that fetches its keys. All is in
// one bubble of synctest, so that hours pass at once.
type world struct {
	t      *testing.T
	keys   *trusttest.Issuer
	ca     []byte
	cert   tls.Certificate
	keeper *Keeper

	mu       sync.Mutex
	answer   http.HandlerFunc // nil: as an issuer does
	away     bool             // nobody answers the dial
	requests []time.Time      // for the configuration
	bearers  []string

	trust   meta.Trust
	leading bool
	changed chan struct{}
	puts    int // changes that were proposed
}

func newWorld(t *testing.T, pod string) *world {
	t.Helper()
	w := &world{t: t, keys: trusttest.New(t), leading: true, changed: make(chan struct{})}
	w.ca, w.cert = authority(t)
	w.trust = meta.Trust{Name: "ci", Issuer: issuerURL, Audience: "signalbox", CA: w.ca, CreatedAt: 1, Revision: 1}
	w.keeper = New(Config{State: w.state, Leading: func() bool { return w.locked(func() bool { return w.leading }) },
		Changed: func() <-chan struct{} { w.mu.Lock(); defer w.mu.Unlock(); return w.changed }, Change: w.change, Dial: w.dial,
		Pod: pod, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { w.keeper.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended; time.Sleep(time.Minute) }) // TLS waits a while for its goodbye
	return w
}

func (w *world) locked(f func() bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return f()
}

// set changes the world, and says so.
func (w *world) set(f func()) {
	w.mu.Lock()
	f()
	close(w.changed)
	w.changed = make(chan struct{})
	w.mu.Unlock()
	synctest.Wait()
}

// state is a meta shard with the one trust.
func (w *world) state() *meta.State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return stateWith(w.t, w.trust)
}

func stateWith(t *testing.T, x meta.Trust) *meta.State {
	m := meta.New()
	apply := func(index uint64, c meta.Command) {
		res, err := meta.DecodeResult(m.Apply(index, meta.AppendCommand(nil, meta.OpID{byte(index)}, c)))
		if err != nil || res.Err() != nil {
			t.Errorf("apply: %v, %v", err, res.Err())
		}
	}
	apply(1, &meta.Bootstrap{Cluster: "c", ClusterName: "demo", Secret: [32]byte{1, 2}, Instance: 1, UUID: "u1", Name: "n",
		Address: "a:1", RaftAddress: "a:2", Domain: []meta.Label{{Key: "DC", Value: "MSK"}}, Version: meta.Version{Minor: 3},
		Tier: "default", Buckets: 16, ReplicationFactor: 1, ShardsPerReplicaset: 1, CanVote: true, Shards: []uint64{2},
		NodeConfig: protocol.DefaultNodeConfig(), Wall: 1e12})
	x.Revision = 0
	apply(2, &meta.TrustPut{Trust: x})
	return &m.State
}

func (w *world) change(_ context.Context, _ string, change func(t *meta.Trust) error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := change(&w.trust); err != nil {
		return err
	}
	w.trust.Revision++
	w.puts++
	close(w.changed)
	w.changed = make(chan struct{})
	return nil
}

// dial connects to the issuer, or to another host, by a pipe.
func (w *world) dial(_ context.Context, _, address string) (net.Conn, error) {
	if w.locked(func() bool { return w.away }) {
		return nil, errors.New("no route to host")
	}
	here, there := net.Pipe()
	go func() {
		_ = http.Serve(&oneConn{conn: tls.Server(there, &tls.Config{Certificates: []tls.Certificate{w.cert}})},
			http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.serve(rw, r, address) }))
	}()
	return here, nil
}

func (w *world) serve(rw http.ResponseWriter, r *http.Request, address string) {
	w.mu.Lock()
	answer, keys := w.answer, w.keys.Keys(w.t)
	if strings.HasSuffix(r.URL.Path, "openid-configuration") {
		w.requests = append(w.requests, time.Now())
	}
	w.bearers = append(w.bearers, r.Header.Get("Authorization"))
	w.mu.Unlock()
	if answer != nil {
		answer(rw, r)
		return
	}
	switch {
	case address != "ci.example:443":
		_, _ = fmt.Fprint(rw, "{}")
	case r.URL.Path == "/.well-known/openid-configuration":
		_, _ = fmt.Fprintf(rw, `{"issuer":%q,"jwks_uri":%q}`, issuerURL, issuerURL+"/keys")
	default:
		_, _ = rw.Write(keys)
	}
}

// oneConn is a listener of one connection.
type oneConn struct {
	conn net.Conn
	done bool
}

func (l *oneConn) Accept() (net.Conn, error) {
	if l.done {
		return nil, io.EOF
	}
	l.done = true
	return l.conn, nil
}
func (l *oneConn) Close() error   { return nil }
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// authority makes a certificate for the issuer and for other.example that is its own authority.
func authority(t *testing.T) (text []byte, cert tls.Certificate) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	x := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"ci.example", "other.example"}, IsCA: true,
		BasicConstraintsValid: true, NotAfter: time.Now().Add(1000 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, x, x, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// has reports whether the trust has the keys that the issuer publishes now.
func (w *world) has() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	want, _, err := trust.ReadKeys(w.keys.Keys(w.t))
	return err == nil && string(w.trust.Keys) == string(want)
}

func (w *world) fetches() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.requests)
}

// after lets time pass.
func after(d time.Duration) { time.Sleep(d); synctest.Wait() }

// TestPeriod: keys are fetched at creation and each 15 minutes, and proposed only when they
// changed.
func TestPeriod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "none")
		synctest.Wait()
		if !w.has() || w.fetches() != 1 {
			t.Fatalf("after its creation it has the keys: %t, fetches: %d", w.has(), w.fetches())
		}
		after(15*time.Minute - time.Second)
		if w.fetches() != 1 {
			t.Error("it fetches before a period has passed")
		}
		after(time.Second)
		if w.fetches() != 2 || w.puts != 1 {
			t.Errorf("after a period: fetches %d, changes %d", w.fetches(), w.puts)
		}
		w.keys.Rotate(t)
		after(15 * time.Minute)
		if !w.has() || w.puts != 2 {
			t.Error("a rotated key does not come with the next fetch")
		}
		for _, s := range w.keeper.Status() {
			if s.Age != 0 || s.Failed != 0 || s.Err != nil {
				t.Errorf("the status is %+v", s)
			}
		}
	})
}

// TestUnknownKey: who asks gets keys that are a minute old at most, with one fetch for all who ask.
func TestUnknownKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "none")
		synctest.Wait()
		w.keys.Rotate(t)
		after(59 * time.Second)
		if err := w.keeper.Refresh(t.Context(), "ci"); err != nil || w.fetches() != 1 {
			t.Errorf("within a minute: %v, fetches %d", err, w.fetches())
		}
		after(time.Second)
		var asking sync.WaitGroup
		for range 20 {
			asking.Go(func() {
				if err := w.keeper.Refresh(t.Context(), "ci"); err != nil || !w.has() {
					t.Errorf("after a minute: %v, the new key is there: %t", err, w.has())
				}
			})
		}
		asking.Wait()
		if w.fetches() != 2 {
			t.Errorf("twenty questions are %d fetches", w.fetches()-1)
		}
		if err := w.keeper.Refresh(t.Context(), "x"); err == nil {
			t.Error("a trust is refreshed that does not exist")
		}
	})
}

// TestAway: an issuer that is away for an hour costs nobody anything, is said, and is asked each
// minute.
func TestAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "none")
		synctest.Wait()
		kept := string(w.trust.Keys)
		w.set(func() { w.away = true })
		after(75 * time.Minute)
		if string(w.trust.Keys) != kept {
			t.Error("the keys are gone")
		}
		s := w.keeper.Status()[0]
		if s.Age != 75*time.Minute || s.Failed != 61 || s.Err == nil {
			t.Errorf("the status is %+v", s)
		}
		if p := w.keeper.Problems(); len(p) != 1 || !strings.Contains(p[0], "no route to host") || !strings.Contains(p[0], "1h15m0s ago") {
			t.Errorf("the problems are %q", p)
		}
		w.keys.Rotate(t)
		w.set(func() { w.away = false })
		after(time.Minute)
		if !w.has() || w.keeper.Problems() != nil {
			t.Errorf("it is back, and its key is known: %t, %q", w.has(), w.keeper.Problems())
		}
	})
}

// TestLateKeys: keys that were fetched before others came in do not take their place: an instance
// that led before would bring a withdrawn key back.
func TestLateKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "none")
		synctest.Wait()
		former := w.keys.Keys(t)
		w.keys.Rotate(t)
		newer, _, err := trust.ReadKeys(w.keys.Keys(t))
		if err != nil {
			t.Fatal(err)
		}
		w.set(func() {
			w.answer = func(rw http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "openid-configuration") {
					_, _ = fmt.Fprintf(rw, `{"issuer":%q,"jwks_uri":%q}`, issuerURL, issuerURL+"/keys")
					return
				}
				w.mu.Lock()
				w.trust.Keys, w.answer = newer, nil // by the instance that leads now
				w.mu.Unlock()
				_, _ = rw.Write(former)
			}
		})
		after(15 * time.Minute)
		if !w.has() {
			t.Error("keys that were fetched earlier took the place of newer ones")
		}
		after(time.Minute)
		if s := w.keeper.Status()[0]; !w.has() || s.Err != nil || s.Failed != 1 {
			t.Errorf("after another fetch: %+v", s)
		}
	})
}

// TestWrongIssuers: each answer that is wrong leaves the former keys, and the sentence says what is
// wrong.
func TestWrongIssuers(t *testing.T) {
	t.Parallel()
	about := func(issuer, keys string) http.HandlerFunc {
		return func(rw http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "openid-configuration") {
				_, _ = fmt.Fprintf(rw, `{"issuer":%q,"jwks_uri":%q}`, issuer, keys)
				return
			}
			list := ""
			if strings.HasSuffix(r.URL.Path, "many") {
				list = strings.Repeat(`{},`, 32) + `{}`
			}
			_, _ = fmt.Fprintf(rw, `{"keys":[%s]}`, list)
		}
	}
	for want, answer := range map[string]http.HandlerFunc{
		"context deadline exceeded": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"deadline exceeded": func(rw http.ResponseWriter, r *http.Request) { // a byte a second
			for r.Context().Err() == nil {
				_, _ = rw.Write([]byte(" "))
				_ = http.NewResponseController(rw).Flush()
				time.Sleep(time.Second)
			}
		},
		"has more than 64 KiB": func(rw http.ResponseWriter, _ *http.Request) {
			_, _ = rw.Write([]byte(strings.Repeat(" ", 64<<10) + "{}"))
		},
		"it redirects to another host": func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, "https://other.example/", http.StatusFound)
		},
		"more than three times": func(rw http.ResponseWriter, r *http.Request) { http.Redirect(rw, r, "/", http.StatusFound) },
		"redirects to another host": func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, "http://ci.example/", http.StatusFound)
		},
		"is that of \"https://evil\"":       about("https://evil", issuerURL+"/keys"),
		"is not an https address":           about(issuerURL, "http://ci.example/keys"),
		"none of its 0 keys":                about(issuerURL, issuerURL+"/keys"),
		"answers \"404 Not Found\"":         http.NotFound,
		"is not JSON as OpenID Connect has": func(rw http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(rw, "<html>") },
		"it has 33 keys":                    about(issuerURL, issuerURL+"/many"),
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "none")
				synctest.Wait()
				kept := string(w.trust.Keys)
				w.set(func() { w.answer = answer })
				after(15*time.Minute + 6*time.Second)
				s := w.keeper.Status()[0]
				if s.Err == nil || !strings.Contains(s.Err.Error(), want) {
					t.Errorf("the error is %v, want %q", s.Err, want)
				}
				if string(w.trust.Keys) != kept {
					t.Error("the keys are not the former ones")
				}
			})
		})
	}
	t.Run("a stranger's certificate", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, "none")
			synctest.Wait()
			w.set(func() { w.trust.CA, _ = authority(t); w.trust.Keys = nil })
			if s := w.keeper.Status()[0]; s.Err == nil || w.trust.Keys != nil {
				t.Errorf("its keys were taken: %+v", s)
			}
		})
	})
}

// TestWhoFetches: the leader alone, for trusts whose keys nobody gave, as they are now.
func TestWhoFetches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "none")
		synctest.Wait()
		w.set(func() { w.leading = false })
		after(time.Hour)
		if w.fetches() != 1 || w.keeper.Status() != nil || w.keeper.Refresh(t.Context(), "ci") == nil {
			t.Errorf("it does not lead: fetches %d, status %v", w.fetches(), w.keeper.Status())
		}
		w.set(func() { w.leading = true })
		if w.fetches() != 2 {
			t.Error("a new leader does not fetch at once")
		}
		w.set(func() { w.trust.KeysGiven = true })
		after(time.Hour)
		if w.fetches() != 2 {
			t.Error("keys are fetched that an operator has given")
		}
		w.set(func() { w.trust.KeysGiven, w.trust.CreatedAt = false, 2 })
		if w.fetches() != 3 {
			t.Error("keys of a trust that was made again are not fetched at once")
		}
		w.set(func() { w.trust.Issuer = "http://ci.example" })
		after(time.Hour)
		if w.fetches() != 3 {
			t.Error("keys are fetched without encryption")
		}
	})
}

// TestBearer: an issuer gets the token of the trust's file. In a pod its own cluster's issuer gets
// the service account's, and nobody else does.
func TestBearer(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		account string // issuer of the pod's token
		given   bool   // a file
		want    string
	}{
		"the pod's": {issuerURL, false, "pod"}, "another cluster's": {"https://other", false, ""}, "none": {"", false, ""},
		"the file's": {issuerURL, true, "Bearer given"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				token := trusttest.New(t).Token(t, "pod", time.Hour, map[string]any{"iss": x.account})
				if x.account != "" {
					if err := os.WriteFile(filepath.Join(pod, "token"), []byte(token+"\n"), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				if x.want == "pod" {
					x.want = "Bearer " + token
				}
				w := newWorld(t, pod)
				synctest.Wait()
				if x.given {
					given := filepath.Join(pod, "given")
					if err := os.WriteFile(given, []byte("given\n"), 0o600); err != nil {
						t.Fatal(err)
					}
					w.set(func() { w.trust.BearerFile, w.bearers = given, nil })
				}
				w.mu.Lock()
				defer w.mu.Unlock()
				if len(w.bearers) != 2 || w.bearers[0] != x.want || w.bearers[1] != x.want {
					t.Errorf("the issuer got %q, want %q twice", w.bearers, x.want)
				}
			})
		})
	}
}
