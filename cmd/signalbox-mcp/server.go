package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
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

// addTool adds a tool with arguments of a type. Each answer begins with what the agent has not been
// told, refusals too.
func addTool[In any](s *mcp.Server, all *agents, name string, reads bool, about string,
	run func(*agent, context.Context, *call, In) (*reply, error)) {
	input, no := schemaOf[In](), false
	tool := &mcp.Tool{
		Name: name, Description: about, InputSchema: input.Schema(), OutputSchema: schemaOf[reply]().Schema(),
		Annotations: &mcp.ToolAnnotations{
			ReadOnlyHint: reads, IdempotentHint: true, DestructiveHint: &no, OpenWorldHint: &no,
		},
	}
	s.AddTool(tool, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if all.calls.Add(1) > maxCalls {
			all.calls.Add(-1)
			return result(&reply{head: fmt.Sprintf("%d calls are under way. Call again when some are answered.", maxCalls)}, true), nil
		}
		defer all.calls.Add(-1)
		var in In
		agentName, err := readArguments(req.Params.Arguments, input, &in)
		a, full := all.enter(agentName)
		if full != nil {
			return result(&reply{head: full.Error()}, true), nil
		}
		defer a.leave()
		r := &reply{}
		if err == nil {
			r, err = run(a, ctx, &call{req, ctx}, in)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err() // nobody reads the answer
		}
		if err != nil {
			r = &reply{head: view{prefix: all.prefix}.explain(err)}
		}
		r.Notices = a.takeNotices()
		return result(r, err != nil), nil
	})
}

func result(r *reply, refused bool) *mcp.CallToolResult {
	res := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: r.text()}}, IsError: refused}
	if !refused {
		res.StructuredContent = r
	}
	return res
}

func schemaOf[T any]() *jsonschema.Resolved {
	schema, err := jsonschema.For[T](nil)
	if err == nil {
		var resolved *jsonschema.Resolved
		if resolved, err = schema.Resolve(nil); err == nil {
			return resolved
		}
	}
	panic(err) // a mistake in the type
}

// readArguments reads arguments, and returns the agent that they name.
func readArguments(raw json.RawMessage, schema *jsonschema.Resolved, in any) (agent string, err error) {
	if len(raw) == 0 {
		raw = json.RawMessage("{}")
	}
	var values map[string]any
	if err = json.Unmarshal(raw, &values); err == nil {
		if err = schema.Validate(values); err == nil {
			err = json.Unmarshal(raw, in)
		}
	}
	if agent, _ = values["agent"].(string); err == nil {
		err = checkText("agent", agent, maxAgentName)
	}
	if err != nil {
		return "", refuse("The arguments are wrong: %s. Call again as the tool's schema says.", clean(err.Error()))
	}
	return agent, nil
}

// call is a call of a tool.
type call struct {
	req *mcp.CallToolRequest
	ctx context.Context
}

// host is how the host calls itself.
func (c *call) host() string {
	if p := c.req.Session.InitializeParams(); p != nil && p.ClientInfo != nil {
		return p.ClientInfo.Name
	}
	return ""
}

// longestWait is how long the call may wait: hosts that get progress cut it later.
func (c *call) longestWait() time.Duration {
	if c.req.Params.GetProgressToken() == nil {
		return maxWait
	}
	return maxProgressWait
}

// progress tells a host that asked for it that the call waits.
func (c *call) progress(waited, wait time.Duration, names []string) {
	if token := c.req.Params.GetProgressToken(); token != nil {
		// A host that has gone is noticed elsewhere.
		_ = c.req.Session.NotifyProgress(c.ctx, &mcp.ProgressNotificationParams{
			ProgressToken: token, Progress: waited.Seconds(), Total: wait.Seconds(),
			Message: "waiting for " + quoteAll(names),
		})
	}
}
