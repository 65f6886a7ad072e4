package integration

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/auth"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/server/trust/trusttest"
)

// trustedCluster is three instances that trust an issuer, whose keys they fetch each period: jobs of
// octo are the identity ci, which may use /default.
func trustedCluster(t *testing.T, period time.Duration) (k *clusterKit, issuer *trusttest.Server, endpoints []string) {
	t.Helper()
	issuer, k = trusttest.Serve(t), newClusterKit(t, 3)
	k.change = func(_ string, c *server.Config) {
		c.Auth, c.AdminToken, c.IssuerPeriod = true, rootSecret, period
	}
	names := []string{"a", "b", "c"}
	k.startAll(names...)
	k.await("a stable cluster", stable(3, 3))
	for _, n := range names {
		endpoints = append(endpoints, k.server(n).Addr())
	}
	c, err := client.Open(t.Context(), client.Config{Endpoints: endpoints, Token: []byte(rootSecret)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	root := admin.New(c)
	made, err := root.CreateTrust(t.Context(), admin.Trust{Name: "ci", Issuer: issuer.URL, Audience: trusttest.Audience,
		CA: string(issuer.CA)})
	if err != nil || made.Problem != "" || len(made.KeyIDs) != 0 && made.KeysAtMS == 0 {
		t.Fatalf("the trust is %+v, %v", made, err)
	}
	addRule(t, root, "repository", "octo/*", "ci")
	grant(t, root, "ci", "/default", "use")
	return k, issuer, endpoints
}

// counts reports whether an instance takes a token.
func (k *clusterKit) counts(name, token string) bool {
	v := k.server(name).Requests.Auth()
	_, _, err := v.Authenticate(auth.Credentials{Token: []byte(token)}, time.Now(), true)
	return err == nil
}

// TestIssuerAway: while an issuer does not answer as often as it is asked in an hour, no instance
// refuses or closes what it took before: not another leader of the meta shard, and not an instance
// that starts meanwhile.
func TestIssuerAway(t *testing.T) {
	form.SkipUntil(t, form.Full, "TestAway has the hour, for one instance")
	t.Parallel()
	k, issuer, _ := trustedCluster(t, 20*time.Millisecond)
	token := func() string { return issuer.Token(t, "job", time.Hour, ofOcto) }
	former := token()
	taken := make(map[string]*raw)
	for _, n := range k.names() {
		await.True(t, "the keys at "+n, func() bool { return k.counts(n, former) })
		taken[n] = as(t, k.server(n), former)
	}
	issuer.Stop()
	fails := func() {
		t.Helper()
		await.True(t, "the fetches of an hour to fail", func() bool {
			s := k.server(k.governs())
			if s == nil {
				return false
			}
			_, line, _ := strings.Cut(scrape(s), "\nsignalbox_trust_key_fetch_failures_total{trust=\"ci\"} ")
			line, _, _ = strings.Cut(line, "\n")
			n, _ := strconv.Atoi(line)
			return n >= 60
		})
	}
	fails()
	k.moveGovernor()
	fails()
	restarted := ""
	for _, n := range k.names() {
		if n != k.governs() {
			restarted = n
		}
	}
	k.kill(restarted)
	k.must(restarted, "a", "b", "c")
	await.True(t, "the keys at the instance that starts", func() bool { return k.counts(restarted, former) })
	for _, n := range k.names() {
		as(t, k.server(n), former)
		as(t, k.server(n), token())
		if n != restarted {
			taken[n].must(protocol.KindMap, 0, &protocol.MapRequest{}, &protocol.MapReply{})
		}
	}
}

// TestKeysRotate: an issuer replaces its keys each second, another instance leads the meta shard,
// the one that leads is killed, and clients with locks lose none. When one instance does not take a
// former key any more, no instance takes it or serves a connection that came in by it, within a
// second.
func TestKeysRotate(t *testing.T) {
	form.SkipUntil(t, form.Full, "TestPlatformTokenExpires keeps a lease over tokens, and TestPeriod has rotations")
	t.Parallel()
	clients, rotations := form.Size(10, 20, 50), form.Size(6, 8, 120)
	k, issuer, endpoints := trustedCluster(t, 200*time.Millisecond)
	token := func() string { return issuer.Token(t, "job", time.Hour, ofOcto) }
	counts := func(name, token string) bool { return k.counts(name, token) }
	everywhere := func(what string, want bool, token string) {
		t.Helper()
		for _, n := range k.names() {
			await.True(t, what+" at "+n, func() bool { return counts(n, token) == want })
		}
	}
	everywhere("the first key", true, token())

	leases := make([]*client.Lease, clients)
	var taking sync.WaitGroup
	for i := range leases {
		taking.Go(func() {
			c, err := client.Open(t.Context(), client.Config{Endpoints: endpoints,
				GetToken: func(context.Context) ([]byte, error) { return []byte(token()), nil }})
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { _ = c.Close() })
			s, err := c.Session(t.Context(), "/default", client.Timeout(time.Minute))
			if err == nil {
				leases[i], err = s.Mutex(fmt.Sprint("lock-", i)).Lock(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	taking.Wait()
	if t.Failed() {
		return
	}
	var longest time.Duration
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for i := range rotations {
		switch i {
		case rotations / 4, 3 * rotations / 4:
			k.moveGovernor()
		case rotations / 2: // who fetches dies
			k.kill(k.governs())
		}
		former := token()
		var served []*raw
		for _, n := range k.names() {
			served = append(served, as(t, k.server(n), former))
		}
		<-second.C
		issuer.Rotate(t)
		await.True(t, "an instance to learn it", func() bool {
			return slices.ContainsFunc(k.names(), func(n string) bool { return !counts(n, former) })
		})
		learned := time.Now()
		everywhere("the former key to be gone", false, former)
		for _, c := range served {
			if g := c.closed(); g == nil || g.Status != protocol.StatusUnauthenticated {
				t.Errorf("a connection by the former key was ended with %+v", g)
			}
		}
		longest = max(longest, time.Since(learned))
		everywhere("the new key", true, token())
	}
	t.Logf("%d keys, %d clients: the last connection by a former key was closed %s after the first instance knew",
		rotations, clients, longest)
	if form.Is(form.Long) && longest > time.Second { // it is what users are promised, so it is asserted where there is time
		t.Errorf("a key that is gone was served for %s", longest)
	}
	for i, l := range leases {
		if err := l.Context().Err(); err != nil {
			t.Errorf("lease %d ended: %v", i, context.Cause(l.Context()))
		}
	}
	check, err := client.Open(t.Context(), client.Config{Endpoints: endpoints, Token: []byte(token())})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = check.Close() })
	node, err := check.Node(t.Context(), "/default")
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range leases {
		d, err := node.Describe(t.Context(), fmt.Sprint("lock-", i), client.IncludeOwners())
		if err != nil || len(d.Owners) != 1 || d.Owners[0].Token != l.Token() {
			t.Errorf("lock %d is %+v, %v", i, d, err)
		}
	}
}
