package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

var seedFlag = flag.Uint64("seed", 0, "of TestRandomAgents; 0: another one each time")

// model is what a random run knows of the agents: what each was told that it has, and which losses
// it has to be told.
type model struct {
	*host
	all    *agents
	holds  map[string]map[string]uint64 // by agent and name: the token, 0 for a place that is kept
	doomed map[string]map[string]int    // losses by agent and name that it was not told of
	rng    *rand.Rand
	done   []string // calls and events, for a failure
}

// TestRandomAgents: over random calls, cancelled ones too, and random losses, each loss is told
// once, to the agent that had it, before it hears anything else; what an agent is told to hold it
// holds, and for no longer than its bound; and the server has a session for each agent that lives.
func TestRandomAgents(t *testing.T) {
	t.Parallel()
	seed := cmp.Or(*seedFlag, rand.Uint64())
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("again, in cmd/signalbox-mcp: go test -run '^TestRandomAgents$' . -seed %d", seed)
		}
	})
	srv := servertest.Start(t, servertest.RealTime())
	c, err := client.New(client.Config{Endpoints: []string{srv.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	other := session(t, srv.Addr())
	m := &model{all: &agents{settings: settings{maxHold: time.Hour}, ctx: t.Context(), list: make(map[string]*agent),
		client: c, node: client.DefaultNode}, rng: rand.New(rand.NewPCG(seed, 0)),
		holds: make(map[string]map[string]uint64), doomed: make(map[string]map[string]int)}
	here, there := mcp.NewInMemoryTransports()
	if _, err := newServer(m.all).Connect(t.Context(), here, nil); err != nil {
		t.Fatal(err)
	}
	m.host = attach(t, there, "")
	for step := range form.Of(1500, 15_000) {
		if step%100 == 99 {
			m.checkSessions(other)
		}
		name := fmt.Sprint("n", m.rng.IntN(5))
		agent := []string{"", "one", "two", "three"}[m.rng.IntN(4)]
		if m.rng.IntN(10) == 0 { // a passer-by, for which an idle agent makes room
			agent = fmt.Sprint("agent", m.rng.IntN(100))
		}
		switch m.rng.IntN(12) {
		case 0, 1, 2, 3:
			m.ask(agent, "lock", args{"names": []string{name}})
		case 4:
			m.ask(agent, "lock", args{"names": []string{name, "x" + name}})
		case 5:
			m.wait(agent, name, other)
		case 6, 7:
			m.ask(agent, "release", args{"all": true})
		case 8:
			m.ask(agent, "release", args{"names": []string{name}})
		case 9:
			m.ask(agent, "lock", args{"names": "wrong"})
		case 10:
			m.killSession(agent, other)
		case 11:
			m.forceRelease(agent, name, other)
		}
		if t.Failed() {
			t.Fatal(strings.Join(m.done, "\n"))
		}
	}
	for agent := range m.doomed {
		m.ask(agent, "release", args{"all": true})
	}
	for agent, names := range m.doomed {
		for name, n := range names {
			if n != 0 {
				t.Errorf("agent %q was not told %d losses of %s\n%s", agent, n, name, strings.Join(m.done, "\n"))
			}
		}
	}
	m.checkSessions(other)
}

// checkSessions fails the test unless the server has a session for each agent that lives, and no other.
func (m *model) checkSessions(other *client.Session) {
	m.t.Helper()
	await.True(m.t, "the server's sessions are those of the agents", func() bool {
		want := []uint64{other.ID()}
		m.all.mu.Lock()
		for _, a := range m.all.list {
			if a.session != nil && a.session.Context().Err() == nil {
				want = append(want, a.session.ID())
			}
		}
		m.all.mu.Unlock()
		var got []uint64
		for s, err := range admin.OfNode(other.Node()).Sessions(m.t.Context()) {
			if err != nil {
				m.t.Fatal(err)
			}
			got = append(got, s.ID)
		}
		return slices.Equal(got, slices.Sorted(slices.Values(want)))
	})
}

var lostNames = regexp.MustCompile(`^You lost (.*) at `)

// ask calls a tool, and checks its answer.
func (m *model) ask(agent, tool string, a args) {
	m.t.Helper()
	if a["agent"] = agent; agent == "" {
		delete(a, "agent")
	}
	p, _ := m.session.CallTool(m.t.Context(), &mcp.CallToolParams{Name: tool, Arguments: a})
	s, text := p.StructuredContent.(map[string]any), p.Content[0].(*mcp.TextContent).Text
	m.done = append(m.done, fmt.Sprintf("%s %v: %s", tool, a, strings.ReplaceAll(text, "\n", " | ")))
	notices, _ := s["notices"].([]any)
	for _, n := range notices {
		lost := lostNames.FindStringSubmatch(n.(string))
		if lost == nil {
			continue
		}
		for _, name := range strings.Split(lost[1], ", ") {
			name = strings.Trim(name, `"`)
			if m.doomed[agent][name]--; m.doomed[agent] == nil || m.doomed[agent][name] < 0 {
				m.t.Errorf("agent %q is told a loss of %s that it did not have, or again", agent, name)
			}
		}
	}
	for name, n := range m.doomed[agent] {
		if n > 0 {
			m.t.Errorf("agent %q was not told that it lost %s", agent, name)
		}
	}
	names, _ := s["names"].([]any)
	for _, x := range names {
		x := x.(map[string]any)
		name, state := x["name"].(string), x["state"].(string)
		token, had := m.holds[agent][name]
		switch state {
		case "held":
			now := uint64(x["token"].(float64))
			if had && token != 0 && token != now {
				m.t.Errorf("agent %q holds %s with token %d, and was told %d", agent, name, now, token)
			}
			if until, err := time.Parse(time.RFC3339, x["until"].(string)); err != nil || until.After(time.Now().Add(m.all.maxHold)) {
				m.t.Errorf("agent %q holds %s until %s", agent, name, x["until"])
			}
			m.has(agent, name, now)
		case "released", "left_queue":
			if !had {
				m.t.Errorf("agent %q released %s", agent, name)
			}
			delete(m.holds[agent], name)
		default:
			if had {
				m.t.Errorf("agent %q has %s, and is told %s", agent, name, state)
			}
		}
	}
}

func (m *model) has(agent, name string, token uint64) {
	if m.holds[agent] == nil {
		m.holds[agent], m.doomed[agent] = make(map[string]uint64), make(map[string]int)
	}
	m.holds[agent][name] = token
}

// wait waits for a name that somebody else holds, cancels the call, and lets it be granted.
func (m *model) wait(agent, name string, other *client.Session) {
	m.all.mu.Lock()
	n := 0
	for _, a := range m.all.list {
		n += len(a.claims)
		if a.claims[name] != nil {
			n = maxHolds
		}
	}
	m.all.mu.Unlock()
	if n >= maxHolds-1 {
		return // an agent has it
	}
	m.ask(agent, "list_locks", args{"prefix": "none"}) // what it was not told
	free, done := context.WithTimeout(m.t.Context(), time.Minute)
	defer done()
	l, err := other.Acquire(free, name, client.Exclusive())
	if err != nil {
		m.t.Fatalf("no agent has %s: %v\n%s", name, err, strings.Join(m.done, "\n"))
	}
	ctx, cancel := context.WithCancel(m.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = m.session.CallTool(ctx, &mcp.CallToolParams{Name: "lock",
			Arguments: args{"names": []string{name}, "wait_seconds": 40, "agent": agent}})
	}()
	await.True(m.t, "the agent waits", func() bool {
		q, err := other.Node().ExplainWait(m.t.Context(), name, 0)
		return err == nil && len(q.Ahead) == 1
	})
	cancel()
	<-ended
	a := m.agent(agent)
	await.True(m.t, "the place is kept", func() bool {
		m.all.mu.Lock()
		defer m.all.mu.Unlock()
		return a.claims[name].waiting == 0
	})
	m.done = append(m.done, fmt.Sprintf("%s waits for %s, and cancels", agent, name))
	m.has(agent, name, 0)
	if m.rng.IntN(2) == 0 {
		m.killSession(agent, other)
	}
	if err := l.Release(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
	if _, kept := m.holds[agent][name]; kept {
		await.True(m.t, "it is granted", func() bool {
			m.all.mu.Lock()
			defer m.all.mu.Unlock()
			return a.claims[name].lease != nil
		})
	}
}

func (m *model) agent(name string) *agent {
	m.all.mu.Lock()
	defer m.all.mu.Unlock()
	return m.all.list[name]
}

// killSession ends an agent's session, with all that it has.
func (m *model) killSession(agent string, other *client.Session) {
	a := m.agent(agent)
	if a == nil || a.session == nil || a.session.Context().Err() != nil {
		return
	}
	if err := admin.OfNode(other.Node()).KillSession(m.t.Context(), a.session.ID(), "a test"); err != nil {
		m.t.Fatal(err)
	}
	m.done = append(m.done, fmt.Sprintf("the session of %q is killed", agent))
	<-a.session.Context().Done()
	for _, name := range slices.Collect(maps.Keys(m.holds[agent])) {
		m.dies(a, name)
	}
}

// forceRelease takes a name from an agent.
func (m *model) forceRelease(agent, name string, other *client.Session) {
	token := m.holds[agent][name]
	if token == 0 {
		return
	}
	if _, err := admin.OfNode(other.Node()).ForceRelease(m.t.Context(), name, token, token, "a test"); err != nil {
		m.t.Fatal(err)
	}
	m.done = append(m.done, fmt.Sprintf("%s of %q is released by force", name, agent))
	m.dies(m.agent(agent), name)
}

// dies awaits that the agent's client knows of a loss, which the agent is to be told.
func (m *model) dies(a *agent, name string) {
	delete(m.holds[a.name], name)
	m.doomed[a.name][name]++
	await.True(m.t, "the client knows that "+name+" is lost", func() bool {
		m.all.mu.Lock()
		defer m.all.mu.Unlock()
		c := a.claims[name]
		return c == nil || c.lease != nil && c.lease.Context().Err() != nil
	})
}
