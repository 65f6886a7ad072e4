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
	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
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
	for c, want := range map[int]rollout.Outcome{200: rollout.Success, 204: rollout.Success, 304: rollout.Inconclusive,
		404: rollout.Failure, 409: rollout.Failure, 500: rollout.Inconclusive, 302: rollout.Inconclusive} {
		code = c
		outcome, text := callWebhook(context.Background(), run)
		if outcome != want || c != 204 && c != 304 && !strings.HasSuffix(text, "so it is") || !strings.HasPrefix(text, fmt.Sprint(c)) {
			t.Errorf("%d is %v, %q", c, outcome, text)
		}
	}
	if asked != `POST {"location":"MAN","gate":"alerts","version":7,"attempt":2}` {
		t.Errorf("asked %s", asked)
	}
	// A redirect passes no gate, whatever answers where it leads.
	page := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s of the page", r.Method) }))
	defer page.Close()
	redirects := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, page.URL, code)
	}))
	defer redirects.Close()
	run.Gate.Spec = redirects.URL
	for _, code = range []int{301, 302, 303, 307, 308} {
		outcome, text := callWebhook(context.Background(), run)
		if outcome != rollout.Inconclusive || !strings.HasPrefix(text, fmt.Sprint(code)) ||
			!strings.HasSuffix(text, page.URL+", which is not followed") {
			t.Errorf("a redirect with %d is %v, %q", code, outcome, text)
		}
	}
	// An answer without an end is read up to its bound.
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := fmt.Fprint(w, strings.Repeat("x", 1<<10)); err != nil {
				return
			}
		}
	}))
	defer endless.Close()
	run.Gate.Spec = endless.URL
	if outcome, text := callWebhook(context.Background(), run); outcome != rollout.Success || len(text) > 2*maxWebhookText {
		t.Errorf("an answer without an end is %v, of %d bytes", outcome, len(text))
	}
	// A gate's time bounds the call.
	over, cancel := context.WithCancel(context.Background())
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else the server does not see that the caller is gone
		cancel()
		<-r.Context().Done()
	}))
	defer silent.Close()
	run.Gate.Spec = silent.URL
	if outcome, _ := callWebhook(over, run); outcome != rollout.Inconclusive {
		t.Errorf("a webhook that does not answer in time is %v", outcome)
	}
	run.Gate.Spec = hook.URL
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
	f := rolloutFileOf(&c)
	asYAML, err := f.yaml()
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := marshalPlain(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{asYAML, string(asJSON)} {
		again, err := parseRollout([]byte(text))
		if got := fmt.Sprintf("%+v", again); err != nil || got != want {
			t.Errorf("%s\nis read as\n%s, want\n%s: %v", text, got, want, err)
		}
	}
	for text, say := range map[string]string{
		"": "names no location", "locations: [{name: a}]\nsource: else": "source", "locations: [{name: a}]\ndelay-from: else": "delay-from",
		"locations: [{name: a, delay: 5}]": "not a duration", "locations: [{name: a, delay: -5s}]": "-5s is negative",
		"colour: red": "colour",
		"locations: [{name: a, gates: [{name: g, command: x, webhook: y}]}]": "either",
		"locations: [{name: a, share: 300}]":                                 "line 1", "[": "cannot be read",
	} {
		var ue *settings.Error
		if _, err := parseRollout([]byte(text)); !errors.As(err, &ue) || !strings.Contains(err.Error(), say) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestFollowExits: what a command's exit says of a version.
func TestFollowExits(t *testing.T) {
	f := &followRun{bad: []int{9, 10}}
	explicit := func() (string, error) { return "CORRUPT", nil }
	for code, want := range map[int]string{9: "the version is bad", 10: "the version is bad", 75: "its source failed", 3: "exited with 3"} {
		if err := f.outcome(&codeError{code: code, quiet: true}, explicit); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("exit %d is %v", code, err)
		}
	}
	away := errors.New("nobody is there")
	unread := func() (string, error) { return "", away }
	err := f.outcome(&codeError{code: 9, quiet: true}, unread)
	if !errors.Is(err, away) || !strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("exit 9 with unknown codes is %v", err)
	}
	if err := f.outcome(nil, explicit); err != nil {
		t.Error(err)
	}
	other := errors.New("no fork")
	if err := f.outcome(other, explicit); err != other {
		t.Error(err)
	}
}

// TestFileDurations: a file has durations as people write them, and reads them back.
func TestFileDurations(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Millisecond: "1ms", 90 * time.Second: "1m30s", 10 * time.Minute: "10m", 100 * time.Second: "1m40s",
		2 * time.Hour: "2h", 20 * time.Hour: "20h", time.Hour + 10*time.Second: "1h0m10s", time.Hour + 10*time.Minute: "1h10m",
	} {
		text, err := fileDuration(d).MarshalText()
		again, readErr := readDuration(string(text))
		if string(text) != want || again != d || err != nil || readErr != nil {
			t.Errorf("%v is %s, read as %v: %v, %v", d, text, again, err, readErr)
		}
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
