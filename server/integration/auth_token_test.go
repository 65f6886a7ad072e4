package integration

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// TestTokenExpires: a token is good until it expires. Its connections are closed then, it is refused,
// and what is left of its time is among the metrics. Uses are noted, and not at every connection.
func TestTokenExpires(t *testing.T) {
	t.Parallel()
	s := guarded(t, nil)
	root := adminClient(t, s, rootSecret)
	at := time.Now().Add(time.Hour)
	token, err := root.CreateToken(t.Context(), "brief", "brief", admin.Expires(at))
	if err != nil {
		t.Fatal(err)
	}
	grant(t, root, "brief", "/default", "use")
	secret := token.Secret
	brief := as(t, s, secret)
	token = tokenOf(t, root, "brief")
	if token.ExpiresAtMS != uint64(at.UnixMilli()) {
		t.Errorf("the token is %+v", token)
	}
	s.Requests.Tokens.Check(t.Context(), time.Now())
	await.True(t, "the use to be noted", func() bool { return tokenOf(t, root, "brief").UsedAtMS != 0 })
	used := tokenOf(t, root, "brief").UsedAtMS
	as(t, s, secret)
	s.Requests.Tokens.Check(t.Context(), time.Now())
	if now := tokenOf(t, root, "brief").UsedAtMS; now != used {
		t.Errorf("a use %d ms after the last was noted", now-used)
	}
	s.Requests.Tokens.Check(t.Context(), time.Now().Add(2*time.Hour))
	if g := brief.closed(); g == nil || g.Status != protocol.StatusUnauthenticated || !strings.Contains(g.Message, "has expired") {
		t.Errorf("the connection of an expired token was ended with %+v", g)
	}
	late, err := root.CreateToken(t.Context(), "late", "late", admin.Expires(time.Now().Add(time.Second)))
	if err != nil {
		t.Fatal(err)
	}
	await.True(t, "the token to be refused", func() bool {
		_, _, err := greet(t, s, late.Secret)
		return errors.Is(err, protocol.StatusUnauthenticated)
	})
	if text := scrape(s); !strings.Contains(text, "\nsignalbox_token_expiry_timestamp_seconds ") {
		t.Error("the expiry is not among the metrics")
	}
}

func tokenOf(t *testing.T, root *admin.Client, id string) *admin.Token {
	t.Helper()
	state, err := root.Auth(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range state.Tokens {
		if token.ID == id {
			return &token
		}
	}
	t.Fatalf("there is no token %s", id)
	return nil
}

// TestTokenRequests: the server takes the hash of a secret, which only the asker has, and bounds the
// id.
func TestTokenRequests(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	c := connect(t, s)
	ask := func(in string) error {
		return c.call(protocol.KindCluster, 0, &protocol.Cluster{Method: protocol.MethodTokenCreate, Body: []byte(in)}, nil)
	}
	if err := ask(tokenRequest("x", "alice", "0123456789abcdef")); err != nil {
		t.Fatal(err)
	}
	as(t, s, "0123456789abcdef")
	for _, bad := range []string{`{"id":"y","identity":"alice"}`, `{"id":"y","identity":"alice","hash":"AAAA"}`} {
		if err := ask(bad); !errors.Is(err, protocol.StatusBadRequest) || !strings.Contains(err.Error(), "send its SHA-256") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if err := ask(tokenRequest(strings.Repeat("x", 64), "alice", "fedcba9876543210")); err != nil {
		t.Errorf("an id of 64 bytes: %v", err)
	}
	long := strings.Repeat("x", 65)
	if err := ask(tokenRequest(long, "alice", "another secret of mine")); !errors.Is(err, protocol.StatusBadRequest) ||
		!strings.Contains(err.Error(), "give up to 64 bytes") {
		t.Errorf("an id of 65 bytes: %v", err)
	}
	c.fails(protocol.StatusNotFound, protocol.KindCluster, 0,
		&protocol.Cluster{Method: protocol.MethodTokenRevoke, Body: []byte(`{"id":"` + long + `"}`)})
	c.fails(protocol.StatusNotFound, protocol.KindCluster, 0, &protocol.Cluster{Method: protocol.MethodRevoke,
		Body: []byte(`{"path":"/","identity":"` + strings.Repeat("x", 257) + `"}`)})
}

// tokenRequest is the body of a request for a token with a secret of the asker's.
func tokenRequest(id, identity, secret string) string {
	hash := sha256.Sum256([]byte(secret))
	return fmt.Sprintf(`{"id":%q,"identity":%q,"hash":%q}`, id, identity, base64.StdEncoding.EncodeToString(hash[:]))
}
