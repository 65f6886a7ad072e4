package governor

import "github.com/signalbox-dev/signalbox/protocol"

// Bounds of a page of ListNodes. Page is also the default.
const (
	Page      = 1000
	pageBytes = 256 << 10 // of paths and configs: far below a frame
	pageLook  = 20_000    // nodes looked at, when most of them may not be seen
)

// ListNodes lists nodes whose path starts with a prefix of bytes, in byte order, a page at a time. A page may be short, even empty, and not be the last:
// only an empty cursor is the end. Nodes that visible does not let through are left out; nil lets all through. It reads what this instance has applied.
// Errors are *protocol.Error: BAD_REQUEST.
func (g *Governor) ListNodes(req *protocol.NodeList, visible func(path string) bool) (protocol.NodeListReply, error) {
	var reply protocol.NodeListReply
	if len(req.Prefix) > protocol.MaxPathLen || len(req.Cursor) > protocol.MaxPathLen+1 {
		return reply, protocol.Errorf(protocol.StatusBadRequest, "prefix and cursor have at most %d bytes", protocol.MaxPathLen)
	}
	limit := int(min(max(req.Limit, 1), Page))
	if req.Limit == 0 {
		limit = Page
	}
	bytes, looked := 0, 0
	// The cursor is the first path that has not been looked at.
	for n := range g.State().Nodes(req.Prefix, string(req.Cursor)) {
		if len(reply.Nodes) == limit || bytes > pageBytes || looked == pageLook {
			reply.Cursor = []byte(n.Path)
			break
		}
		looked++
		if !n.Visible() || (visible != nil && !visible(n.Path)) {
			continue
		}
		reply.Nodes = append(reply.Nodes, n.Info())
		bytes += len(n.Path) + 64
	}
	return reply, nil
}
