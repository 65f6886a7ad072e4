package httpapi

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
)

// TestLossesAreBounded: the losses of the latest 256 sessions are kept, and of each those of its latest
// leases. That of a session is that of what it held too, and ends when the session begins again.
func TestLossesAreBounded(t *testing.T) {
	api := &API{losses: losses{of: make(map[sessionName]*sessionLosses)}}
	session := func(i int) *session { return &session{api: api, sessionName: sessionName{name: fmt.Sprint(i)}} }
	wants := func(i int, lease, cause string) {
		t.Helper()
		got := ""
		if l := session(i).lossOf(lease); l != nil {
			got = l.Cause
		}
		if got != cause {
			t.Errorf("session %d, lease %q: %q, want %q", i, lease, got, cause)
		}
	}
	lost := func(cause string) error { return fmt.Errorf("it ended: %w", &client.Loss{Cause: cause}) }
	a := session(0)
	a.noteLoss("x", lost("preempted"))
	wants(0, "x", "preempted")
	wants(0, "y", "")
	wants(0, "", "")
	a.noteLoss("y", lost("deleted"))
	wants(0, "x", "preempted")
	wants(0, "y", "deleted")
	a.noteLoss("y", nil) // held again
	wants(0, "x", "preempted")
	wants(0, "y", "")
	for i := range 100 {
		a.noteLoss(fmt.Sprint(i), lost("max_hold"))
	}
	wants(0, "99", "max_hold")
	wants(0, "0", "")
	if n := len(api.losses.of[a.sessionName].list); n != maxNoted {
		t.Errorf("%d losses of a session are kept", n)
	}
	a.noteLoss("x", lost("preempted"))
	a.noteLoss("", lost("unreachable"))
	a.noteLoss("z", lost("unknown")) // with its session
	wants(0, "x", "preempted")
	wants(0, "z", "unreachable")
	wants(0, "", "unreachable")
	a.noteLoss("", errors.New("an error that says nothing"))
	wants(0, "", "unreachable")
	a.noteLoss("", client.ErrTakenOver) // it is at another gateway, and lost nothing
	wants(0, "x", "")
	a.noteLoss("z", lost("deleted")) // behind the others
	for i := range 255 {
		session(1+i).noteLoss("", lost("max_hold"))
	}
	wants(0, "z", "deleted")
	wants(1, "any", "max_hold")
	for i := range 5000 {
		session(1000+i%3).noteLoss("", lost("overloaded"))
		session(1000+i%3).noteLoss("", nil)
	}
	if n := len(api.losses.of); n > len(api.losses.keys) {
		t.Errorf("%d losses are kept", n)
	}
	wants(0, "z", "")
	wants(1001, "", "")
}

// TestUnrenewed: a caller that renews its session too late is told so.
func TestUnrenewed(t *testing.T) {
	t.Parallel()
	s := openSite(t, servertest.Start(t, servertest.RealTime()))
	s.ask("POST", "/v1/locks/a?ttl=2s", alice, "").wants(200)
	await.True(t, "the session ends", func() bool { return len(s.sessions()) == 0 })
	for range 2 {
		got := s.ask("POST", "/v1/session/keepalive?holding=a", alice, "").wants(410, "session_expired")
		switch loss, _ := got.doc["loss"].(map[string]any); loss["cause"] {
		case "unknown":
			if !strings.Contains(fmt.Sprint(loss["steps"]), "no request renewed the session for ") {
				t.Errorf("the loss has steps %q", loss["steps"])
			}
		case "process_stood_still": // a busy machine did not run the gateway
		default:
			t.Errorf("the loss is %v", loss)
		}
	}
	s.ask("POST", "/v1/locks/b?ttl=60s", bob, "").wants(200)
	s.ask("DELETE", "/v1/session", bob, "").wants(200)
	if got := s.ask("POST", "/v1/session/keepalive", bob, "").wants(410, "session_expired"); got.doc["loss"] != nil {
		t.Errorf("a session that its caller ended has lost %v", got.doc["loss"])
	}
}

// TestLossesSpeakOfTheGateway: a loss that the SDK has computed in the gateway does not blame the
// caller's process, and an operator's words stay as they are.
func TestLossesSpeakOfTheGateway(t *testing.T) {
	loss := &client.Loss{Cause: "process_stood_still", Stood: time.Second,
		Steps:  []string{"1.0 s before: renewed by a:1", "0.0 s before: the process ran again after 1.0 s"},
		Advice: "this process did not run for 1.0 s: give it CPU"}
	p := badRequest("not renewed: this process did not run for 1.0 s").because(loss)
	got := *p.more["loss"].(*client.Loss)
	if got.Steps[0] != loss.Steps[0] || got.Steps[1] != "0.0 s before: the gateway's process ran again after 1.0 s" ||
		got.Advice != "the gateway's process did not run for 1.0 s: give it CPU" ||
		p.detail != "not renewed: the gateway's process did not run for 1.0 s" || strings.Contains(loss.Steps[1], "gateway") {
		t.Errorf("%q, %+v", p.detail, got)
	}
	if p := badRequest("killed by an operator: this process is broken").because(&client.Loss{}); strings.Contains(p.detail, "gateway") {
		t.Errorf("an operator says %q", p.detail)
	}
}
