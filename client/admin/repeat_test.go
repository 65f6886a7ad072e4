package admin_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// arriveTwice has each operators' request arrive twice, as if the first answer had been lost.
func arriveTwice(a *admin.Client) *admin.Client {
	return admin.Intercepted(a, admin.Interceptor{Call: func(_ context.Context, send func(any) error, _, out any) error {
		if err := send(new(json.RawMessage)); err != nil {
			return err
		}
		return send(out)
	}})
}

// TestLostAnswers: what is made once stays made once, and its secret is the caller's, if a request
// arrives again because its answer was lost.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	s := servertest.Start(t)
	as := func(secret string) *admin.Client {
		c, err := client.Open(t.Context(), client.Config{Endpoints: []string{s.Addr()}, Token: []byte(secret)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.CloseWithoutRelease)
		return arriveTwice(admin.New(c))
	}
	first := as("")
	for _, id := range []string{"x", ""} {
		token, err := first.CreateToken(t.Context(), id, "alice")
		if err != nil || id != "" && token.ID != id || token.ID == "" || token.Identity != "alice" {
			t.Fatalf("the token %q is %+v, %v", id, token, err)
		}
		if me, err := as(token.Secret).WhoAmI(t.Context()); err != nil || me.Identity != "alice" {
			t.Errorf("with the secret of token %q: %+v, %v", id, me, err)
		}
	}
	for want := uint64(2); want <= 3; want++ {
		if key, err := first.RotateTicketKey(t.Context()); err != nil || key != want {
			t.Errorf("the ticket key is %d, %v; want %d", key, err, want)
		}
	}
	const secret = "0123456789abcdef"
	// The repeated request may ask, although it comes without a token.
	if _, err := first.Grant(t.Context(), "anonymous", "/", "admin"); err != nil {
		t.Fatal(err)
	}
	if token, err := first.EnableAuth(t.Context(), secret); err != nil || token.ID != "admin" {
		t.Fatalf("the administrator's token is %+v, %v", token, err)
	}
	if me, err := as(secret).WhoAmI(t.Context()); err != nil || me.Identity != "admin" {
		t.Errorf("with the administrator's secret: %+v, %v", me, err)
	}
}
