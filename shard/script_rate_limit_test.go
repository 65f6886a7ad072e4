package shard

import (
	"fmt"
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
)

// rateLimitCommand makes a command about a rate limit of a line such as "limit a api rate=1000".
func rateLimitCommand(verb string, a scriptArgs, path []byte, head func() protocol.Head) (CommandKind, protocol.Message) {
	config := protocol.LimitConfig{Rate: a.num("rate", 0) * 1000, Min: a.num("min", 0) * 1000, Lease: a.num("lease", 0),
		Unlimited: a.num("rate", 0) == 0}
	switch verb {
	case "limit":
		return CmdLimitCreate, &protocol.LimitCreate{Head: head(), Path: path, Config: config}
	case "relimit":
		return CmdLimitAlter, &protocol.LimitAlter{Head: head(), Path: path, Revision: a.num("revision", 0), Config: config}
	case "unlimit":
		return CmdLimitDelete, &protocol.LimitDelete{Head: head(), Path: path, Revision: a.num("revision", 0)}
	case "use":
		return CmdLimitJoin, &protocol.LimitJoin{Head: head(), Path: path, Again: a.has("again")}
	case "unuse":
		return CmdLimitLeave, &protocol.LimitLeave{Head: head(), Path: path}
	}
	return 0, nil
}

// listRateLimits shows the trees of a node, with their resources and participants.
func (x *scriptRunner) listRateLimits(node uint64) string {
	var b strings.Builder
	var r protocol.LimitListReply
	if err := x.m.RateLimits().List(&protocol.LimitList{Node: node}, &r); err != nil {
		return err.Error() + "\n"
	}
	for _, item := range r.Limits {
		v, err := x.m.RateLimits().View(node, item.Name, 0)
		if err != nil {
			return err.Error() + "\n"
		}
		fmt.Fprintf(&b, "%s revision=%d resources=%d", item.Name, item.Revision, item.Resources)
		for _, id := range v.Tree.Sessions() {
			epoch, _ := v.Tree.Joined(id)
			fmt.Fprintf(&b, " %s/%d", x.sessionName(id), epoch)
		}
		b.WriteString("\n")
		v.Tree.Resources("", func(path string, revision uint64, c *protocol.LimitConfig) bool {
			fmt.Fprintf(&b, "  %s rate=%d revision=%d\n", path, c.Rate/1000, revision)
			return true
		})
	}
	return b.String()
}
