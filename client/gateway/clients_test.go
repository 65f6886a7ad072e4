package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/client/internal/sessionstate"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/trust/trusttest"
)

// TestClusterAway: the log says once that no cluster is found, and that it is back.
func TestClusterAway(t *testing.T) {
	web := httptest.NewServer(http.NotFoundHandler()) // it does not speak TLS, which fails at once
	defer web.Close()
	var log bytes.Buffer
	table := NewClients(t.Context(), ClientsConfig[int]{Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Client: client.Config{Endpoints: []string{web.Listener.Addr().String()}, TLS: &tls.Config{}}})
	for range 2 {
		c := &Connection[int]{ready: make(chan struct{})}
		table.making++
		if table.connect(c, func() {}); c.err == nil {
			t.Fatal("a web server is a cluster")
		}
	}
	table.logReach(protocol.StatusUnauthenticated)
	table.logReach(nil)
	for what, n := range map[string]int{"level=WARN": 1, "does not answer, so clients wait": 1, "answers again": 1} {
		if strings.Count(log.String(), what) != n {
			t.Errorf("%q is not there %d times:\n%s", what, n, log.String())
		}
	}
}

// TestTokensOfConnectionsInTheMaking: tokens that are being checked leave the connections of others
// alone, and have a bound of their own. A connection that was made takes the place of the one that
// was not used for longest.
func TestTokensOfConnectionsInTheMaking(t *testing.T) {
	var opened int64
	table := NewClients(t.Context(), ClientsConfig[int]{Changed: func(by int64) { opened += by }})
	add := func(token string) *Connection[int] {
		c := &Connection[int]{token: token, ready: make(chan struct{}), Client: new(client.Client), users: 1}
		table.byToken[token] = c
		return c
	}
	made := func(c *Connection[int]) error {
		defer close(c.ready)
		return table.made(c, nil)
	}
	for i := range maxClients { // all in use
		c := add(fmt.Sprint("connected ", i))
		close(c.ready)
	}
	for i := range maxClients {
		add(fmt.Sprint("being made ", i))
		table.making++
	}
	ended := false
	if c, err := table.try("one more",
		func() { ended = true }); protocol.StatusOf(err) != protocol.StatusOverloaded || !ended || len(table.byToken) != 2*maxClients {
		t.Fatal(c, err, len(table.byToken))
	}
	if c, err := table.take("connected 0"); c == nil || err != nil {
		t.Fatal(c, err)
	}
	if err := made(table.byToken["being made 0"]); protocol.StatusOf(err) != protocol.StatusOverloaded ||
		table.byToken["being made 0"] != nil {
		t.Fatal(err)
	}
	if err := table.made(table.byToken["being made 1"], protocol.StatusUnauthenticated); !IsUnauthenticated(err) ||
		table.byToken["being made 1"] != nil {
		t.Fatal(err)
	}
	if table.making != maxClients-2 || opened != 0 {
		t.Fatal(table.making, opened)
	}
}

// TestClosedConnectionsAreNotFollowed: nothing waits for the end of the token of a connection that
// was closed before: callers with a token for each request would leave thousands of them.
func TestClosedConnectionsAreNotFollowed(t *testing.T) {
	const root = "the administrator's secret"
	srv := servertest.Start(t, servertest.RealTime(), servertest.Config(func(c *server.Config) {
		c.Auth, c.AdminToken = true, root
	}))
	c, err := client.Open(t.Context(), client.Config{Endpoints: []string{srv.Addr()}, Token: []byte(root)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseWithoutRelease()
	issuer := trusttest.New(t)
	trusttest.Trust(t, admin.New(c), issuer)
	table := NewClients(t.Context(), ClientsConfig[int]{Client: client.Config{Endpoints: []string{srv.Addr()}}})
	defer table.Close()
	used, release, err := table.Use(t.Context(), issuer.Token(t, "job", time.Hour, nil), "host")
	if err != nil {
		t.Fatal(err)
	}
	release()
	var following sync.WaitGroup
	following.Go(func() { table.follow(used) })
	table.mu.Lock()
	table.remove(used)
	table.mu.Unlock()
	following.Wait()
	if table.wait(used, time.Now().Add(time.Hour)) {
		t.Error("the end of a closed connection's token came")
	}
}

// TestTrials: a host tries a few tokens at a time, and a few of its calls wait. Other hosts do not
// notice. A token that was refused is refused without another try.
func TestTrials(t *testing.T) {
	tr := newTrials()
	var ends []func()
	for range maxTrials {
		end, err := tr.begin(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end)
	}
	type outcome struct {
		end func()
		err error
	}
	waiting := make(chan outcome)
	ctx, cancel := context.WithCancel(t.Context())
	for range maxTrialsWaiting {
		go func() {
			end, err := tr.begin(ctx, "a")
			waiting <- outcome{end, err}
		}()
	}
	calls := func() int {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		if h := tr.hosts["a"]; h != nil {
			return h.calls
		}
		return 0
	}
	await.True(t, "all calls to wait", func() bool { return calls() == maxTrials+maxTrialsWaiting })
	if _, err := tr.begin(t.Context(), "a"); protocol.StatusOf(err) != protocol.StatusOverloaded {
		t.Fatal(err)
	}
	if end, err := tr.begin(t.Context(), "b"); err != nil {
		t.Fatal(err)
	} else {
		end()
	}
	ends[0]()
	if next := <-waiting; next.err != nil {
		t.Fatal(next.err)
	} else {
		ends[0] = next.end
	}
	cancel()
	for range maxTrialsWaiting - 1 {
		if next := <-waiting; !errors.Is(next.err, context.Canceled) {
			t.Fatal(next.err)
		}
	}
	for _, end := range ends {
		end()
	}
	if len(tr.hosts) != 0 {
		t.Errorf("%d hosts without calls are remembered", len(tr.hosts))
	}

	now, why := time.Now(), errors.New("wrong")
	tr.refuse("x", why, now)
	if tr.refused("x", now.Add(refusalMemory-1)) != why || tr.refused("x", now.Add(refusalMemory)) != nil || tr.refused("y", now) != nil {
		t.Error("a refusal counts for too long, or not long enough")
	}
	tr.refuse("z", errAnonymous, now)
	if tr.refused("z", now.Add(anonymousMemory-1)) != errAnonymous || tr.refused("z", now.Add(anonymousMemory)) != nil {
		t.Error("an unknown token counts as one for too long, or not long enough")
	}
	if tr.forgetAnonymous("x") || tr.refused("x", now) == nil || !tr.forgetAnonymous("z") || tr.refused("z", now) != nil {
		t.Error("what is forgotten is not what is unknown")
	}
	for i := range 3 * maxRefusals {
		tr.refuse(fmt.Sprint(i), why, now.Add(time.Duration(i)*time.Millisecond))
	}
	if len(tr.refusals) > maxRefusals {
		t.Errorf("%d refusals are remembered", len(tr.refusals))
	}
}

// TestNativeTimeout: the native session may be relied on for the client's timeout and the slack,
// with any grace period, and the cluster takes its timeout.
func TestNativeTimeout(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Millisecond, 100 * time.Millisecond, time.Second, 5 * time.Second,
		10 * time.Second, time.Minute, MaxTimeout} {
		native := NativeTimeout(timeout)
		if native < sessionstate.MinTimeout || native > sessionstate.MaxTimeout {
			t.Errorf("%v becomes %v, which the cluster refuses", timeout, native)
		}
		for _, grace := range []time.Duration{1500 * time.Millisecond, 10 * time.Second, maxGrace} {
			window := sessionstate.Window(sessionstate.Enlarge(native, grace), grace)
			if window < timeout+slack(timeout) {
				t.Errorf("%v becomes %v, relied on for %v only with a grace period of %v", timeout, native, window, grace)
			}
		}
	}
}
