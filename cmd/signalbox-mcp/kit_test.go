package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/binary"
)

// host is a host with its server: the real binary, and go-sdk's client.
type host struct {
	t        *testing.T
	cmd      *exec.Cmd
	session  *mcp.ClientSession
	progress chan *mcp.ProgressNotificationParams
}

// command is the real binary, not started yet.
func command(t *testing.T, address string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(binary.Program(t, "cmd/signalbox-mcp"), args...)
	cmd.Env = append(os.Environ(), "SIGNALBOX_ENDPOINTS="+address, "SIGNALBOX_AGENT=")
	cmd.Stderr = os.Stderr
	return cmd
}

// start starts a host whose server uses the cluster at an address.
func start(t *testing.T, address string, args ...string) *host {
	t.Helper()
	return connect(t, command(t, address, args...), "")
}

func connect(t *testing.T, cmd *exec.Cmd, revision string) *host {
	t.Helper()
	h := attach(t, &mcp.CommandTransport{Command: cmd}, revision)
	h.cmd = cmd
	return h
}

func attach(t *testing.T, transport mcp.Transport, revision string) *host {
	t.Helper()
	h := &host{t: t, progress: make(chan *mcp.ProgressNotificationParams, 100)}
	c := mcp.NewClient(&mcp.Implementation{Name: "kit", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) { h.progress <- r.Params },
	})
	var err error
	h.session, err = c.Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.session.Close() })
	return h
}

type args map[string]any

// said is an answer: its structured part, its text, and whether it is a refusal.
type said struct {
	reply
	text    string
	refused bool
}

func (h *host) call(tool string, a args) said {
	h.t.Helper()
	s, err := h.try(h.t.Context(), tool, a, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	return s
}

func (h *host) try(ctx context.Context, tool string, a args, token any) (s said, err error) {
	h.t.Helper()
	p := &mcp.CallToolParams{Name: tool, Arguments: a}
	if token != nil {
		p.SetProgressToken(token)
	}
	res, err := h.session.CallTool(ctx, p)
	if err != nil {
		return s, err
	}
	s.text, s.refused = res.Content[0].(*mcp.TextContent).Text, res.IsError
	if n := utf8.RuneCountInString(s.text); n > maxText {
		h.t.Errorf("%s: the text has %d characters", tool, n)
	}
	if s.refused {
		return s, nil
	}
	raw, err := json.Marshal(res.StructuredContent)
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(raw, &s.reply)
}

// lock locks names, which must be granted.
func (h *host) lock(a args) said {
	h.t.Helper()
	s := h.call("lock", a)
	if s.State != "held" {
		h.t.Fatalf("lock %v: %s", a, s.text)
	}
	return s
}

// awaitText calls a tool until its text has words.
func (h *host) awaitText(tool string, a args, words string) said {
	h.t.Helper()
	var s said
	await.True(h.t, fmt.Sprintf("an answer to %s %v that says %q", tool, a, words), func() bool {
		s = h.call(tool, a)
		return strings.Contains(s.text, words)
	})
	return s
}

// session starts a session of another program.
func session(t *testing.T, address string) *client.Session {
	t.Helper()
	s, err := client.OpenSession(t.Context(), client.Config{Endpoints: []string{address}}, client.DefaultNode)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Client().Close() })
	return s
}
