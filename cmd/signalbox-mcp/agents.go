package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/user"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/release"
)

const (
	maxCalls       = 64              // under way
	maxAgents      = 16              // each has a session
	maxAgentName   = 64              // bytes
	connectTimeout = 5 * time.Second // after which a call says that the cluster is away
)

// agents share the process. Each has a session of its own, so that they exclude each other.
type agents struct {
	settings
	ctx context.Context // of the process

	mu     sync.Mutex // guards what is below, and what agents have
	list   map[string]*agent
	calls  int            // under way
	client *client.Client // nil: nothing has needed the cluster
	node   string         // path
}

// agent is one of them.
type agent struct {
	all     *agents
	name    string            // empty: the host's main one
	claims  map[string]*claim // by name, without the prefix
	notices []notice          // not told yet
	opening chan struct{}     // filled by the call that may start a session
	session *client.Session   // nil or over: the next call starts one
	calls   int               // under way
}

// enter finds an agent for a call, or makes one, for which one that has nothing makes room. The
// caller calls leave at the call's end.
func (all *agents) enter(name string) (*agent, error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	a := all.list[name]
	for other, x := range all.list {
		if a == nil && len(all.list) >= maxAgents && x.calls+len(x.claims)+len(x.notices) == 0 {
			if delete(all.list, other); x.session != nil {
				all.background(x.session.Close)
			}
		}
	}
	switch {
	case all.calls >= maxCalls:
		return nil, refuse("%d calls are under way. Call again when some are answered.", maxCalls)
	case a == nil && len(all.list) >= maxAgents:
		return nil, refuse("%d agents of this server hold or wait for something. That is the most: let one release its names.",
			maxAgents)
	case a == nil:
		a = &agent{all: all, name: name, claims: make(map[string]*claim), opening: make(chan struct{}, 1)}
		all.list[name] = a
	}
	a.calls++
	all.calls++
	return a, nil
}

func (a *agent) leave() {
	a.all.mu.Lock()
	defer a.all.mu.Unlock()
	a.calls--
	a.all.calls--
}

// background gives something back while the call goes on.
func (all *agents) background(release func(context.Context) error) {
	go func() { _ = release(all.ctx) }() // otherwise it ends with the client
}

// connect makes the client at the first call that needs it.
func (all *agents) connect() (c *client.Client, err error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.client == nil {
		var cfg client.Config
		cfg, all.node, err = client.FromEnv()
		if cfg.Name = "signalbox-mcp/" + release.Current().Version; err == nil {
			all.client, err = client.New(cfg)
		}
		if err != nil {
			return nil, refuse("This server's environment is wrong: %s. Ask the user to mend it.", plain(err))
		}
	}
	return all.client, nil
}

// open is the agent's session. It is started if there is none, or if it is over.
func (a *agent) open(ctx context.Context, req *mcp.CallToolRequest) (*client.Session, error) {
	ctx, done := context.WithTimeout(ctx, connectTimeout)
	defer done()
	c, err := a.all.connect()
	if err != nil {
		return nil, err
	}
	select {
	case a.opening <- struct{}{}:
		defer func() { <-a.opening }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if a.session == nil || a.session.Context().Err() != nil {
		s, err := c.Session(ctx, a.all.node, client.Description(a.description(req.Session.InitializeParams())))
		if err != nil {
			return nil, err
		}
		a.session = s
	}
	return a.session, nil
}

// description identifies the agent to other clients.
func (a *agent) description(p *mcp.InitializeParams) string {
	program := a.all.agent
	if program == "" && p != nil && p.ClientInfo != nil {
		program = p.ClientInfo.Name
	}
	host, _ := os.Hostname()
	login, err := user.Current()
	if err != nil {
		login = &user.User{Username: "unknown"}
	}
	text := fmt.Sprintf("%s %s@%s pid %d", clean(cmp.Or(program, "agent")), login.Username, host, os.Getpid())
	if a.name != "" {
		text += " agent " + a.name
	}
	return text
}
