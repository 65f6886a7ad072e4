package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client/rollout"
)

// TestWebhook: what a webhook answers decides.
func TestWebhook(t *testing.T) {
	var asked string
	code := 200
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		asked = r.Method + " " + string(b)
		w.WriteHeader(code)
		fmt.Fprintln(w, "so it is")
	}))
	run := rollout.GateRun{Location: "MAN", Version: 7, Attempt: 2,
		Gate: rollout.Gate{Name: "alerts", Kind: rollout.Webhook, Spec: hook.URL}}
	for c, want := range map[int]rollout.Outcome{200: rollout.Success, 204: rollout.Success, 404: rollout.Failure,
		409: rollout.Failure, 500: rollout.Inconclusive, 302: rollout.Inconclusive} {
		code = c
		outcome, text := callWebhook(context.Background(), run)
		if outcome != want || c != 204 && !strings.HasSuffix(text, "so it is") || !strings.HasPrefix(text, fmt.Sprint(c)) {
			t.Errorf("%d is %v, %q", c, outcome, text)
		}
	}
	if asked != `POST {"location":"MAN","gate":"alerts","version":7,"attempt":2}` {
		t.Errorf("asked %s", asked)
	}
	hook.Close()
	if outcome, text := callWebhook(context.Background(), run); outcome != rollout.Inconclusive || text == "" {
		t.Errorf("nobody there is %v, %q", outcome, text)
	}
	run.Gate.Spec = "://"
	if outcome, _ := callWebhook(context.Background(), run); outcome != rollout.Inconclusive {
		t.Errorf("no address is %v", outcome)
	}
}

// TestRolloutFile: everything a file may have, and what it may not.
func TestRolloutFile(t *testing.T) {
	c, err := parseRollout([]byte(`
source: tso
delay-from: converged
explicit-codes: [A, B]
implicit-after: 2m
implicit-attempts: 5
stall-timeout: 3m
auto-demote: true
skip-empty-after: 4m
reelect-min-interval: 5s
min-advance-interval: 6s
retention: 7h
keep-removed: true
locations:
  - {name: SAS, delay: 1s, bake: 2s, share: 30, share-bake: 4s, gates: [{name: g, command: "x y", timeout: 5s, retry: 6s}, {name: h, webhook: "http://h"}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%+v", c)
	want := fmt.Sprintf("%+v", rollout.Config{
		Source: rollout.TSO, DelayFrom: rollout.Converged, ExplicitCodes: []string{"A", "B"},
		ImplicitAfter: 2 * time.Minute, ImplicitAttempts: 5, StallTimeout: 3 * time.Minute,
		AutoDemote: true, SkipEmptyAfter: 4 * time.Minute, ReelectMinInterval: 5 * time.Second,
		MinAdvanceInterval: 6 * time.Second, Retention: 7 * time.Hour, KeepRemoved: true,
		Locations: []rollout.Location{{Name: "SAS", Delay: time.Second, Bake: 2 * time.Second, Share: 30,
			ShareBake: 4 * time.Second, Gates: []rollout.Gate{
				{Name: "g", Kind: rollout.Command, Spec: "x y", Timeout: 5 * time.Second, Retry: 6 * time.Second}, {Name: "h", Kind: rollout.Webhook, Spec: "http://h"},
			}}},
	})
	if got != want {
		t.Errorf("read\n%s, want\n%s", got, want)
	}
	for text, say := range map[string]string{
		"": "names no location", "locations: [{name: a}]\nsource: else": "source", "locations: [{name: a}]\ndelay-from: else": "delay-from",
		"locations: [{name: a, delay: 5}]": "not a duration", "locations: [{name: a, delay: -5s}]": "-5s is negative",
		"colour: red": "colour",
		"locations: [{name: a, gates: [{name: g, command: x, webhook: y}]}]": "either",
		"locations: [{name: a, share: 300}]":                                 "line 1", "[": "cannot be read",
	} {
		var ue *usageError
		if _, err := parseRollout([]byte(text)); !errors.As(err, &ue) || !strings.Contains(err.Error(), say) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestFollowExits: what a command's exit says of a version.
func TestFollowExits(t *testing.T) {
	f := &followRun{bad: []int{9, 10}}
	for code, want := range map[int]string{9: "the version is bad", 10: "the version is bad", 75: "its source failed", 3: "exited with 3"} {
		if err := f.outcome(&codeError{code: code, quiet: true}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("exit %d is %v", code, err)
		}
	}
	if err := f.outcome(nil); err != nil {
		t.Error(err)
	}
	other := errors.New("no fork")
	if err := f.outcome(other); err != other {
		t.Error(err)
	}
}

func TestTail(t *testing.T) {
	var out tail
	for range 1000 {
		fmt.Fprintln(&out, strings.Repeat("x", 50))
	}
	fmt.Fprint(&out, "the end\n\n")
	if out.last() != "the end" || len(out.b) > maxTail {
		t.Errorf("%q of %d bytes", out.last(), len(out.b))
	}
	var none tail
	if none.last() != "" {
		t.Errorf("%q of nothing", none.last())
	}
}
