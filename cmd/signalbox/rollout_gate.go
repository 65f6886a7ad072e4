package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/signalbox-dev/signalbox/client/rollout"
	"github.com/spf13/cobra"
)

func rolloutGate(a *app) *cobra.Command {
	c := command("gate TRACK", "Run the gates of a rollout, until Ctrl-C",
		`Run the gates of a rollout until Ctrl-C. A location takes a version only after its gates have
passed. Several gate runners may run: the first outcome of a run counts.

  command    sh runs it, with SIGNALBOX_VERSION, SIGNALBOX_LOCATION, SIGNALBOX_GATE and
             SIGNALBOX_ATTEMPT; exit 0: passed, 75: inconclusive, retried later, other: failed
  webhook    gets the same values with POST, as JSON; 2xx: passed, 4xx: failed,
             other: inconclusive, retried later; a redirect is not followed

A failed gate keeps the version from its location.`)
	c.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		out, err := inv.reportStream()
		if err != nil {
			return err
		}
		return withTrack(inv, args[0], func(t *rollout.Track) error {
			keeper := rollout.Gatekeeper{
				Track: t,
				Check: func(ctx context.Context, run rollout.GateRun) (rollout.Outcome, string) {
					return checkGate(ctx, inv, run)
				},
				OnDecided: func(run rollout.GateRun, outcome rollout.Outcome, text string, err error) {
					r := row{
						{"time", "time", clockTime{time.Now()}}, {"event", "event", outcome.String()},
						{"location", "location", run.Location}, {"gate", "gate", run.Gate.Name},
						{"version", "version", labelled{"version", run.Version}},
						{"attempt", "attempt", labelled{"attempt", run.Attempt}}, {"text", "text", uncut(text)},
					}
					if err != nil {
						r = append(r, field{"error", "error", uncut(err.Error())})
					}
					_ = out.event(r)
				},
			}
			if err := keeper.Run(inv.longCtx); inv.longCtx.Err() == nil {
				return err
			}
			return nil
		})
	})
	return c
}

func checkGate(ctx context.Context, inv *invocation, run rollout.GateRun) (rollout.Outcome, string) {
	if run.Gate.Kind == rollout.Webhook {
		return callWebhook(ctx, run)
	}
	var out tail
	c := &child{
		args: []string{"sh", "-c", run.Gate.Spec}, stdin: strings.NewReader(""), stdout: &out,
		stderr: &out, grace: 2 * time.Second,
		env: []string{
			"SIGNALBOX_VERSION=" + strconv.FormatUint(run.Version, 10), "SIGNALBOX_LOCATION=" + run.Location,
			"SIGNALBOX_GATE=" + run.Gate.Name,
			"SIGNALBOX_ATTEMPT=" + strconv.FormatUint(run.Attempt, 10),
		},
	}
	err := c.run(ctx)
	var ce *codeError
	switch {
	case err == nil:
		return rollout.Success, out.last()
	case errors.As(err, &ce) && ce.code != exitSourceError && !errors.Is(err, errLost) && ce.quiet:
		return rollout.Failure, strings.TrimSpace(fmt.Sprintf("exit code %d  %s", ce.code, out.last()))
	}
	return rollout.Inconclusive, out.last()
}

// webhooks calls webhooks. It follows no redirect: after one a POST becomes a GET, and a login page
// that answers 200 would pass the gate.
var webhooks = &http.Client{
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// maxWebhookText bounds the text of a webhook's answer that is read, in bytes.
const maxWebhookText = 1 << 10

// callWebhook asks a webhook. ctx bounds the time: it ends with the gate's timeout.
func callWebhook(ctx context.Context, run rollout.GateRun) (rollout.Outcome, string) {
	body, err := marshalPlain(row{
		{"location", "", run.Location}, {"gate", "", run.Gate.Name}, {"version", "", run.Version},
		{"attempt", "", run.Attempt},
	})
	if err != nil {
		return rollout.Inconclusive, err.Error()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, run.Gate.Spec, bytes.NewReader(body))
	if err != nil {
		return rollout.Inconclusive, err.Error()
	}
	req.Header.Set("Content-Type", "application/json")
	reply, err := webhooks.Do(req)
	if err != nil {
		return rollout.Inconclusive, err.Error()
	}
	defer reply.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(reply.Body, maxWebhookText))
	said := strings.TrimSpace(reply.Status + "  " + strings.TrimSpace(string(text)))
	switch reply.StatusCode / 100 {
	case 2:
		return rollout.Success, said
	case 3:
		if to := reply.Header.Get("Location"); to != "" {
			said = fmt.Sprintf("%s to %s, which is not followed", reply.Status, to)
		}
	case 4:
		return rollout.Failure, said
	}
	return rollout.Inconclusive, said
}

// tail keeps the end of a command's output.
type tail struct {
	mu sync.Mutex
	b  []byte
}

const maxTail = 4 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, b...)
	if len(t.b) > maxTail {
		t.b = append(t.b[:0], t.b[len(t.b)-maxTail:]...)
	}
	return len(b), nil
}

func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(t.b)), "\n")
	return lines[len(lines)-1]
}
