package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"sync"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/release"
)

const (
	maxAgents    = 16 // each has a session
	maxAgentName = 64 // bytes
	// connectTimeout is how long a call waits for the cluster before it says that it is away.
	connectTimeout = 5 * time.Second
)

// agents share the process. Each has a session of its own, so that they exclude each other.
type agents struct {
	settings
	ctx    context.Context // of the process
	pauses pauses
	calls  atomic.Int64 // under way

	connecting sync.Mutex
	client     *client.Client // nil: nothing has needed the cluster
	node       string         // path

	mu   sync.Mutex // guards what agents have
	list map[string]*agent
}

// agent is one of them. agents.mu guards the maps and what is below.
type agent struct {
	all      *agents
	name     string              // empty: the host's main one
	opening  chan struct{}       // has a value while the session is started
	holds    map[string]*hold    // by name, without the prefix
	attempts map[string]*attempt // by each of their names
	notices  []notice            // not told yet
	session  *client.Session     // nil or over: the next call that needs one starts it
	calls    int                 // under way
}

func newAgents(ctx context.Context, s settings) *agents {
	return &agents{settings: s, ctx: ctx, list: make(map[string]*agent)}
}

// cluster is the client, which is made by the first call that needs it.
func (all *agents) cluster() (*client.Client, error) {
	all.connecting.Lock()
	defer all.connecting.Unlock()
	if all.client != nil {
		return all.client, nil
	}
	cfg, node, err := client.FromEnv()
	cfg.Name = "signalbox-mcp/" + release.Current().Version
	if err == nil {
		all.node = node
		all.client, err = client.New(cfg)
	}
	if err != nil {
		return nil, refuse("This server's environment is wrong: %s. Ask the user to mend it.", clean(err.Error()))
	}
	return all.client, nil
}

// enter finds an agent for a call, or makes one. leave ends the call.
func (all *agents) enter(name string) (*agent, error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	a := all.list[name]
	if a == nil {
		if len(all.list) >= maxAgents && !all.forgetIdle() {
			return nil, refuse("%d agents of this server hold or wait for something, which is the most. Let one release its names.",
				maxAgents)
		}
		a = &agent{
			all: all, name: name, opening: make(chan struct{}, 1),
			holds: make(map[string]*hold), attempts: make(map[string]*attempt),
		}
		all.list[name] = a
	}
	a.calls++
	return a, nil
}

func (a *agent) leave() {
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	a.calls--
}

// forgetIdle makes room: it ends the session of an agent that has nothing.
func (all *agents) forgetIdle() bool {
	for name, a := range all.list {
		if a.calls+len(a.holds)+len(a.attempts)+len(a.notices) == 0 {
			if delete(all.list, name); a.session != nil {
				all.background(a.session.Close)
			}
			return true
		}
	}
	return false
}

// background gives something back while the call goes on.
func (all *agents) background(release func(context.Context) error) {
	go func() { _ = release(all.ctx) }() // otherwise it ends with the client
}

// open is the agent's session. It is started if there is none, or if it is over.
func (a *agent) open(ctx context.Context, host string) (*client.Session, error) {
	c, err := a.all.cluster()
	if err != nil {
		return nil, err
	}
	ctx, done := context.WithTimeout(ctx, connectTimeout)
	defer done()
	select {
	case a.opening <- struct{}{}:
		defer func() { <-a.opening }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s := a.present(); s != nil {
		return s, nil
	}
	s, err := c.Session(ctx, a.all.node, client.Description(description(cmp.Or(a.all.agent, host, "agent"), a.name)))
	if err != nil {
		return nil, a.all.nodeError(err)
	}
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	a.session = s
	return s, nil
}

func (all *agents) nodeError(err error) error {
	if errors.Is(err, client.NotFound) {
		return refuse("The coordination node %s does not exist. Ask the user to create it (signalbox node create), "+
			"or to set SIGNALBOX_NODE for this server.", quote(all.node))
	}
	return err
}

// present is the agent's session if it lives, else nil.
func (a *agent) present() *client.Session {
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	if s := a.session; s != nil && s.Context().Err() == nil {
		return s
	}
	return nil
}

// read is the coordination node for a call that reads, and how the agent sees it.
func (a *agent) read(ctx context.Context) (*client.Node, view, error) {
	v := view{prefix: a.all.prefix}
	if s := a.present(); s != nil {
		v.self = s.ID()
	}
	c, err := a.all.cluster()
	if err != nil {
		return nil, v, err
	}
	n, err := c.Node(ctx, a.all.node)
	return n, v, a.all.nodeError(err)
}

// description is what others see of an agent.
func description(name, agent string) string {
	login, host := os.Getenv("USER"), "unknown"
	if u, err := user.Current(); err == nil {
		login = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	text := fmt.Sprintf("%s %s@%s pid %d", clean(name), login, host, os.Getpid())
	if agent != "" {
		text += " agent " + agent
	}
	return text
}

// close ends all sessions, so that what they hold is free, and returns after limit at the latest.
func (all *agents) close(limit time.Duration) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		all.connecting.Lock()
		defer all.connecting.Unlock()
		if all.client != nil {
			_ = all.client.Close() // a session whose end is not answered ends with its timeout
		}
	}()
	select {
	case <-ended:
	case <-time.After(limit):
	}
}
