package integration

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/certs"
	"github.com/signalbox-dev/signalbox/server/certs/certstest"
	"github.com/signalbox-dev/signalbox/server/governor"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/server/servertest/port"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// TestOverTLS runs the tests of a connection over the other transport.
func TestOverTLS(t *testing.T) {
	form.SkipUntil(t, form.Full, "the tests of a connection once more")
	t.Parallel()
	overTLS = newTLSKit(t)
	for _, c := range []struct {
		name string
		test func(*testing.T)
	}{
		{"serves", TestServes}, {"semaphore requests", TestSemaphoreRequests}, {"stream", TestStream}, {"one-shot watch", TestOneShotWatch},
		{"taken over", TestTakenOver}, {"start again elsewhere", TestStartAgainElsewhere}, {"watch too late", TestWatchTooLate},
		{"reason of the end", TestReasonOfTheEnd}, {"tickets", TestTickets}, {"read consistency", TestReadConsistency}, {"relaxed attach", TestRelaxedAttach},
		{"silence", func(t *testing.T) { silence(t, func(*replica.ManualClock) {}) }}, {"rights", TestRights}, {"panic contained", TestPanicContained},
		{"new leader", TestNewLeader}, {"failed and late", TestFailedAndLate},
		{"configured limits", TestConfiguredLimits}, {"quotas", TestQuotas}, {"pages", TestPages}, {"timeout zero", TestTimeoutZero},
		{"wrong bytes", TestWrongBytes}, {"cut short", TestCutShort}, {"unknown and malformed", TestUnknownAndMalformed}, {"chunks", TestChunks},
		{"timeouts", TestTimeouts}, {"unfinished frames", TestUnfinishedFrames}, {"window", TestWindow}, {"rest", TestPause}, {"burst in parts", TestBurstInParts}, {"bad length behind a burst", TestBadLengthBehindABurst}, {"large answers in one segment", TestLargeAnswersInOneSegment},
		{"graceful stop", TestGracefulStop}, {"stop does not wait", TestStopDoesNotWaitForClients},
		{"slow reader", TestSlowReader}, {"old bytes", TestOldBytes}, {"slow stream", TestSlowStream}, {"many slow streams", TestManySlowStreams},
	} {
		t.Run(c.name, c.test)
	}
}

// openTLS connects a client of the SDK over TLS.
func openTLS(t *testing.T, cfg *tls.Config, endpoint string) (*client.Client, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	c, err := client.Open(ctx, client.Config{Endpoints: []string{endpoint}, TLS: cfg})
	if err == nil {
		t.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

// TestBothListeners: one server, a client at each listener; each is told of addresses of its own
// kind, and they see each other's locks.
func TestBothListeners(t *testing.T) {
	t.Parallel()
	kit := newTLSKit(t)
	s := start(t, func(c *server.Config) { c.TLSListen, c.TLS = "127.0.0.1:0", kit.files })
	plain, err := client.Dial(t.Context(), s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	secure, err := openTLS(t, kit.client, s.TLSAddr())
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		c    *client.Client
		want string
	}{{plain, s.Addr()}, {secure, s.TLSAddr()}} {
		m, err := admin.New(x.c).Map(t.Context())
		if err != nil || len(m.Instances) != 1 || m.Instances[0].Address != x.want {
			t.Errorf("map says %+v, %v; want the address %s", m.Instances, err, x.want)
		}
	}
	hold := func(c *client.Client) *client.Lease {
		session, err := c.Session(t.Context(), "/default", client.Timeout(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		lease, err := session.TryAcquire(t.Context(), "one", client.Exclusive())
		if err != nil && !errors.Is(err, client.ErrNotAcquired) {
			t.Fatal(err)
		}
		return lease
	}
	lease := hold(plain)
	if lease == nil {
		t.Fatal("nobody holds it, and it is not free")
	}
	if hold(secure) != nil {
		t.Fatal("a second holder at the other listener")
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if hold(secure) == nil {
		t.Fatal("what was released at one listener is not free at the other")
	}
}

// TestOnlyTLS: the plain listener stays shut, and who speaks no TLS is told.
func TestOnlyTLS(t *testing.T) {
	t.Parallel()
	kit := newTLSKit(t)
	s := start(t, func(c *server.Config) { c.Listen, c.TLSListen, c.TLS = server.Off, "127.0.0.1:0", kit.files })
	if s.Addr() != "" {
		t.Fatalf("there is a plain address %s", s.Addr())
	}
	nc, err := net.Dial("tcp", s.TLSAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	x := &raw{t: t, s: s, nc: nc}
	x.write(hello(protocol.Magic, protocol.Version))
	if g := x.closed(); g == nil || g.Status != protocol.StatusBadRequest {
		t.Errorf("a plain hello was answered %+v", g)
	}
	if _, err := openTLS(t, kit.client, s.TLSAddr()); err != nil {
		t.Error(err)
	}
	if err := shutdown(s); err != nil {
		t.Error(err)
	}
}

// TestExpiredCertificate: an instance whose certificate has expired is not ready if clients have no
// other address, and health says why new clients fail; after a restart too, until the files are
// replaced.
func TestExpiredCertificate(t *testing.T) {
	t.Parallel()
	for _, plain := range []bool{false, true} {
		dir, ca := t.TempDir(), certstest.New(t)
		issue := func(opts ...certstest.Option) (cert, key string) {
			return ca.Issue(t, dir, "server", append(opts, certstest.Host("127.0.0.1"))...)
		}
		var files certs.Files
		files.Cert, files.Key = issue()
		begin := func() *instance {
			return start(t, func(c *server.Config) {
				c.TLSListen, c.TLS = "127.0.0.1:0", files
				if !plain {
					c.Listen = server.Off
				}
			})
		}
		s := begin()
		check := func(when string, expired bool) {
			t.Helper()
			h := governor.Assess(s.Membership.Observe(t.Context()))
			const want = ": new connections of clients over TLS fail: the certificate of --listen-tls-cert expired at "
			said := slices.ContainsFunc(h.Problems, func(p string) bool { return strings.Contains(p, want) })
			if said != expired || (h.State == protocol.HealthHealthy) == expired {
				t.Errorf("%s health is %s: %q", when, h.State, h.Problems)
			}
			err := s.Ready()
			if bad := err != nil; bad != (expired && !plain) || bad && !strings.Contains(err.Error(), want[2:]) {
				t.Errorf("%s readiness, with a plain listener %t, is %v", when, plain, err)
			}
		}
		reload := func(opts ...certstest.Option) {
			issue(opts...)
			if err := s.ReloadCertificates(); err != nil {
				t.Fatal(err)
			}
		}
		check("at first", false)
		reload(certstest.Expired())
		check("with the expired one", true)
		if err := shutdown(s); err != nil {
			t.Fatal(err)
		}
		s = begin()
		check("after a restart", true)
		reload()
		check("with a new one", false)
	}
}

// TestExpiredBetweenInstances: of an instance whose certificate has expired all say so while its
// connections last, and after its restart it names the certificate and not what it cannot know.
func TestExpiredBetweenInstances(t *testing.T) {
	form.SkipUntil(t, form.Full, "three instances, and certificates that expire")
	t.Parallel()
	k := newClusterKit(t, 3)
	ca, folders := certstest.New(t), map[string]string{}
	issue := func(name string, opts ...certstest.Option) (cert, key string) {
		host, _, err := net.SplitHostPort(k.address(name))
		if err != nil {
			t.Fatal(err)
		}
		return ca.Issue(t, folders[name], "instance", append(opts, certstest.Host(host))...)
	}
	k.change = func(name string, cfg *server.Config) {
		if folders[name] == "" {
			folders[name] = t.TempDir()
			issue(name)
		}
		cfg.ClusterTLS = certs.Files{CA: ca.Write(t, folders[name]), Cert: filepath.Join(folders[name], "instance.pem"),
			Key: filepath.Join(folders[name], "instance.key")}
	}
	for i, name := range []string{"a", "b", "c"} {
		k.must(name, []string{"a", "b"}[:min(i, 1)]...)
	}
	k.eventually("a healthy cluster", func() bool { return k.healthOf("a").State == protocol.HealthHealthy })
	issue("c", certstest.Expired())
	if err := k.server("c").ReloadCertificates(); err != nil {
		t.Fatal(err)
	}
	const want = "new connections of other instances fail: the certificate of --cluster-tls-cert expired at "
	for _, name := range k.names() {
		k.eventually(name+" to say that the certificate of c expired", func() bool {
			h := k.healthOf(name)
			return h.State == protocol.HealthDegraded && strings.HasPrefix(h.Problems[0], "c: "+want)
		})
	}
	k.kill("c")
	cfg := k.config("c")
	cfg.Admin = port.ForTest(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- k.startWith(ctx, "c", cfg) }()
	k.eventually("c to say what keeps it from starting", func() bool {
		_, body := page(t, cfg.Admin, "/readyz")
		return strings.HasPrefix(body, "server is starting: "+want)
	})
	cancel()
	if err := <-done; err == nil {
		t.Error("an instance with an expired certificate started")
	}
}

// TestUnfinishedHandshakes: who begins a handshake and does not end it is closed after the time for
// a hello, and holds up nobody.
func TestUnfinishedHandshakes(t *testing.T) {
	t.Parallel()
	kit := newTLSKit(t)
	var clock interface{ Advance(time.Duration) }
	s := start(t, func(c *server.Config) {
		c.TLSListen, c.TLS, c.Limits.MaxConnections = "127.0.0.1:0", kit.files, 40
		c.Limits.HelloTimeout, c.Limits.IdleTimeout = 2*time.Minute, time.Hour
		clock = manual(c)
	})
	var stuck []net.Conn
	for i := range 39 {
		nc, err := net.Dial("tcp", s.TLSAddr())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		if i%2 == 0 {
			_, _ = nc.Write(clientHello()[:20])
		}
		stuck = append(stuck, nc)
	}
	await.True(t, "the connections to count", func() bool { return s.Transport.Connections() == 39 })
	c, err := openTLS(t, kit.client, s.TLSAddr())
	if err != nil {
		t.Fatal("with unfinished handshakes around:", err)
	}
	// One past the limit: it is closed, as nothing can be said to it.
	over, err := net.Dial("tcp", s.TLSAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer over.Close()
	_ = over.SetReadDeadline(time.Now().Add(wait))
	if n, err := over.Read(make([]byte, 1)); n != 0 || err == nil || isTimeout(err) {
		t.Errorf("one past the limit of connections: %d bytes, %v", n, err)
	}
	clock.Advance(119 * time.Second)
	if n := s.Transport.Connections(); n != 40 {
		t.Fatalf("%d connections before the time for a hello is over", n)
	}
	clock.Advance(2 * time.Second)
	for i, nc := range stuck {
		_ = nc.SetReadDeadline(time.Now().Add(wait))
		if n, err := nc.Read(make([]byte, 1)); n != 0 || err == nil || isTimeout(err) {
			t.Fatalf("unfinished handshake %d: %d bytes, %v", i, n, err)
		}
	}
	if _, err := admin.New(c).Map(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestClientCertificates: one that its authority signed is wanted, the new ones after a change of
// the files.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	dir, ca, next := t.TempDir(), certstest.New(t), certstest.New(t)
	files := certs.Files{CA: ca.Write(t, dir), Require: true}
	files.Cert, files.Key = ca.Issue(t, dir, "server", certstest.Host("127.0.0.1"))
	s := start(t, func(c *server.Config) { c.TLSListen, c.TLS = "127.0.0.1:0", files })
	with := func(a *certstest.Authority, trust *certstest.Authority) error {
		d := t.TempDir()
		cert, key := a.Issue(t, d, "billing")
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		c, err := client.Open(ctx, client.Config{Endpoints: []string{s.TLSAddr()}, TLS: &tls.Config{
			RootCAs: trust.Pool(), GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil },
		}})
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	if err := with(ca, ca); err != nil {
		t.Fatal(err)
	}
	failed := s.Transport.Metrics.HandshakesFailed.Get()
	nc, err := net.Dial("tcp", s.TLSAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	bare := tls.Client(nc, &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1"})
	_ = nc.SetDeadline(time.Now().Add(wait))
	_ = bare.Handshake()
	if n, err := bare.Read(make([]byte, 1)); n != 0 || err == nil || isTimeout(err) {
		t.Errorf("without a certificate: %d bytes, %v", n, err)
	}
	await.True(t, "the failure to count", func() bool { return s.Transport.Metrics.HandshakesFailed.Get() > failed })

	next.Write(t, dir)
	next.Issue(t, dir, "server", certstest.Host("127.0.0.1"))
	if err := s.ReloadCertificates(); err != nil {
		t.Fatal(err)
	}
	if err := with(next, next); err != nil {
		t.Errorf("after the change: %v", err)
	}
}

// TestCertificatesBesideInstance: certificates that are used beside the instance are followed, and
// their expiry is among the metrics.
func TestCertificatesBesideInstance(t *testing.T) {
	t.Parallel()
	dir, ca := t.TempDir(), certstest.New(t)
	var pages, locks certs.Files
	pages.Cert, pages.Key = ca.Issue(t, dir, "console", certstest.Host("127.0.0.1"))
	locks.Cert, locks.Key = ca.Issue(t, dir, "http", certstest.Host("127.0.0.1"))
	s := start(t, func(c *server.Config) { c.ConsoleTLS, c.HTTPTLS = pages, locks })
	for name, current := range map[string]func() *tls.Config{"console": s.ConsoleTLS, "http": s.HTTPTLS} {
		expires := func() string {
			series := `signalbox_certificate_expiry_timestamp_seconds{certificate="` + name + `"} `
			_, after, _ := strings.Cut(scrape(s), "\n"+series)
			value, _, _ := strings.Cut(after, "\n")
			return value
		}
		was := expires()
		ca.Issue(t, dir, name, certstest.Host("127.0.0.1"), certstest.Expired())
		if err := s.ReloadCertificates(); err != nil {
			t.Fatal(err)
		}
		if now := expires(); was == "" || now == "" || now == was {
			t.Errorf("the certificate %s expires at %q, and did at %q", name, now, was)
		}
		cfg, err := current().GetConfigForClient(nil)
		if err != nil || time.Until(cfg.Certificates[0].Leaf.NotAfter) > 0 {
			t.Errorf("%s shows another certificate than that of the files: %v", name, err)
		}
	}
}

// TestAuthorityReplaced: clients trust two authorities, the instance's certificate becomes one of
// the new authority, and the former one goes. A lease lives through new connections at each step.
func TestAuthorityReplaced(t *testing.T) {
	t.Parallel()
	dir, former, next := t.TempDir(), certstest.New(t), certstest.New(t)
	trusted := former.Write(t, dir)
	var files certs.Files
	files.Cert, files.Key = former.Issue(t, dir, "server", certstest.Host("127.0.0.1"))
	s := start(t, func(c *server.Config) { c.TLSListen, c.TLS = "127.0.0.1:0", files })
	var mu sync.Mutex
	var open net.Conn
	c, err := client.Open(t.Context(), client.Config{
		Endpoints: []string{s.TLSAddr()}, GetRootCAs: client.CAFile(trusted),
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			nc, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			mu.Lock()
			defer mu.Unlock()
			open = nc
			return nc, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	states := make(chan client.State, 100)
	session, err := c.Session(t.Context(), "/default", client.Timeout(time.Minute),
		client.OnState(func(s client.State) { states <- s }))
	if err != nil {
		t.Fatal(err)
	}
	lease, err := session.Mutex("job").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		what   string
		change func()
	}{
		{"both are trusted", func() { certstest.Bundle(t, trusted, former, next) }},
		{"the instance has a new certificate", func() { next.Issue(t, dir, "server", certstest.Host("127.0.0.1")) }},
		{"the former one is not trusted", func() { certstest.Bundle(t, trusted, next) }},
		{"the file cannot be read", func() { _ = os.Remove(trusted) }},
	} {
		step.change()
		if err := s.ReloadCertificates(); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		_ = open.Close()
		mu.Unlock()
		for _, want := range []client.State{client.Detached, client.Attached} {
			if got := <-states; got != want {
				t.Fatalf("%s: the session is %v, not %v", step.what, got, want)
			}
		}
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestWrongClientCertificate: the server says of a certificate of another authority that this is
// what is wrong, however the SDK was given the certificate.
func TestWrongClientCertificate(t *testing.T) {
	t.Parallel()
	dir, ca, other := t.TempDir(), certstest.New(t), certstest.New(t)
	files := certs.Files{CA: ca.Write(t, dir), Require: true}
	files.Cert, files.Key = ca.Issue(t, dir, "server", certstest.Host("127.0.0.1"))
	log := new(await.Log)
	s := start(t, func(c *server.Config) {
		c.TLSListen, c.TLS, c.Logger = "127.0.0.1:0", files, slog.New(slog.NewTextHandler(log, nil))
	})
	for _, x := range []struct {
		what  string
		certs []tls.Certificate
		want  string
	}{
		{"another authority's", []tls.Certificate{issued(t, other)}, "certificate signed by unknown authority"},
		{"none", nil, "client didn't provide a certificate"},
	} {
		if _, err := openTLS(t, &tls.Config{RootCAs: ca.Pool(), Certificates: x.certs}, s.TLSAddr()); err == nil {
			t.Fatalf("a client with %s certificate is served", x.what)
		}
		await.True(t, "the log line for "+x.what, func() bool { return strings.Contains(log.String(), x.want) })
	}
	both := []tls.Certificate{issued(t, other), issued(t, ca)}
	if _, err := openTLS(t, &tls.Config{RootCAs: ca.Pool(), Certificates: both}, s.TLSAddr()); err != nil {
		t.Errorf("the right one of two certificates is not shown: %v", err)
	}
}

func issued(t *testing.T, a *certstest.Authority) tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(a.Issue(t, t.TempDir(), "billing"))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// TestTLSBetweenInstances: instances that trust one authority make a cluster; one with another's
// certificate is not let in, nor one without any. The authority is replaced while they run.
func TestTLSBetweenInstances(t *testing.T) {
	form.SkipUntil(t, form.Full, "three instances, and certificates that change")
	t.Parallel()
	k := newClusterKit(t, 3)
	ca, other := certstest.New(t), certstest.New(t)
	folders := make(map[string]string)
	issue := func(name string, a *certstest.Authority) (cert, key string) {
		host, _, err := net.SplitHostPort(k.address(name))
		if err != nil {
			t.Fatal(err)
		}
		return a.Issue(t, folders[name], "instance", certstest.Host(host))
	}
	config := func(name string, a *certstest.Authority, peers ...string) server.Config {
		cfg := k.config(name, peers...)
		folders[name] = t.TempDir()
		cfg.ClusterTLS.CA = a.Write(t, folders[name])
		cfg.ClusterTLS.Cert, cfg.ClusterTLS.Key = issue(name, a)
		return cfg
	}
	if err := k.startWith(t.Context(), "a", config("a", ca)); err != nil {
		t.Fatal(err)
	}
	if err := k.startWith(t.Context(), "b", config("b", ca, "a")); err != nil {
		t.Fatal(err)
	}
	k.awaitOn("a", "two instances", func(s *meta.State) bool { return len(s.Instances()) == 2 })
	for _, x := range []struct {
		what string
		cfg  server.Config
	}{{"another authority", config("c", other, "a")}, {"no certificate", k.config("c", "a")}} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		if err := k.startWith(ctx, "c", x.cfg); err == nil {
			t.Fatalf("an instance with %s was let in", x.what)
		}
		cancel()
	}
	third := config("c", ca, "a")
	if err := k.startWith(t.Context(), "c", third); err != nil {
		t.Fatal(err)
	}
	k.awaitOn("a", "three instances", func(s *meta.State) bool { return len(s.Instances()) == 3 })

	for _, change := range []func(name string){
		func(name string) { certstest.Bundle(t, filepath.Join(folders[name], "ca.pem"), ca, other) },
		func(name string) { issue(name, other) },
		func(name string) { other.Write(t, folders[name]) },
	} {
		for _, name := range []string{"a", "b", "c"} {
			change(name)
			if err := k.server(name).ReloadCertificates(); err != nil {
				t.Fatal(err)
			}
		}
	}
	k.kill("c") // its connections are made again, both ways
	if err := k.startWith(t.Context(), "c", third); err != nil {
		t.Fatal(err)
	}
}
