package main

import (
	"context"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/server/release"
)

const instructions = `Locks that other agents and people respect. Before you use what must not be used twice at once (a
repository, a test database, a deployment), lock it; release it after. Each sub-agent gives a name of its own as agent. An
answer begins with what you lost since the last one: stop using that at once.`

// newServer has the tools that the settings allow. Listing them needs no cluster.
func newServer(all *agents) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "signalbox-mcp", Version: release.Current().Version},
		&mcp.ServerOptions{
			Instructions: instructions, Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}})
	if !all.readOnly {
		addTool(s, all, "lock", false, `Lock names, all or none, or wait for them in their queues. A name that this agent holds is
held longer. An election is a lock with a note: who holds it leads. The end of this server releases all.`, (*agent).lock)
		addTool(s, all, "release", false, "Release names that this agent holds, or leave their queues.", (*agent).releaseNames)
	}
	addTool(s, all, "who_holds", true, "Who holds a name, since when, with which note; who waits, and why.", (*agent).whoHolds)
	addTool(s, all, "list_locks", true, "Names with their holders, 50 at a time, and all that the agents of this server have.", (*agent).listLocks)
	return s
}

// call is a call of a tool by an agent, whose session it has.
type call struct {
	*mcp.CallToolRequest
	began   time.Time
	session *client.Session
}

// addTool adds a tool with arguments of a type. Each answer begins with what the agent has not been
// told, refusals too.
func addTool[In interface{ check(prefix string) error }](s *mcp.Server, all *agents, name string, reads bool,
	about string, run func(*agent, context.Context, call, In) (*reply, error)) {
	input, no := schemaOf[In](), false
	tool := &mcp.Tool{
		Name: name, Description: about, InputSchema: input, OutputSchema: schemaOf[reply](),
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: reads, IdempotentHint: true, DestructiveHint: &no,
			OpenWorldHint: &no},
	}
	s.AddTool(tool, func(host context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var in In
		c, r := call{CallToolRequest: req, began: time.Now()}, &reply{}
		ctx, done := context.WithTimeout(host, callTime)
		defer done()
		defer context.AfterFunc(all.ctx, func() { time.AfterFunc(callsTimeout, done) })()
		a, err := all.readArguments(req.Params.Arguments, input, &in)
		if a != nil {
			defer a.leave()
		}
		if err == nil {
			err = in.check(all.prefix)
		}
		if err == nil {
			c.session, err = a.open(ctx, req)
		}
		if err == nil {
			r, err = run(a, ctx, c, in)
		}
		if host.Err() != nil {
			return nil, host.Err() // nobody reads the answer
		}
		if err != nil {
			r = &reply{head: explain(err, all.prefix)}
		}
		if a != nil {
			r.Notices = a.takeNotices()
		}
		text := []mcp.Content{&mcp.TextContent{Text: r.text()}}
		return &mcp.CallToolResult{Content: text, StructuredContent: r, IsError: err != nil}, nil
	})
}

func schemaOf[T any]() *jsonschema.Schema {
	schema, err := jsonschema.For[T](nil)
	if err != nil {
		panic(err) // a mistake in the type
	}
	return schema
}

// progress tells a host that asked for it that a call waits, until ctx ends.
func (c call) progress(ctx context.Context, wait time.Duration, names []string) {
	token, began, tick := c.Params.GetProgressToken(), time.Now(), time.Tick(progressTime)
	for token != nil {
		select {
		case <-ctx.Done():
			return
		case <-tick: // a host that has gone is noticed elsewhere
			_ = c.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token,
				Progress: time.Since(began).Seconds(), Total: wait.Seconds(), Message: "waiting for " + quoteAll(names)})
		}
	}
}
