package governor

import (
	"encoding/binary"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// cursorByID begins a cursor that names a node by its id. No path begins so.
const cursorByID = 0xff

// MaxPage is the most nodes of a page of ListNodes, and the default. A server never changes it;
// tests of lists do, before they start one.
var MaxPage = 1000

// Other bounds of a page.
const (
	pageBytes   = 256 << 10 // of paths and configs: far below a frame
	maxPageScan = 20_000    // nodes scanned, when most of them are hidden
)

// ListNodes lists the nodes whose path starts with a prefix of bytes, in byte order, a page at a
// time. A page may be short, even empty, and not be the last: only an empty cursor is the end.
// visible filters the nodes; nil shows all. It reads what this instance has applied. Errors are
// *protocol.Error: BAD_REQUEST; ABORTED when the hidden node at which the list was to continue is
// gone.
func (svc Service) ListNodes(req *protocol.NodeList, visible func(path string) bool) (protocol.NodeListReply, error) {
	var reply protocol.NodeListReply
	if len(req.Prefix) > protocol.MaxPathLen || len(req.Cursor) > protocol.MaxPathLen+1 {
		return reply, protocol.Errorf(protocol.StatusBadRequest, "prefix and cursor have at most %d bytes",
			protocol.MaxPathLen)
	}
	limit := min(int(max(req.Limit, 1)), MaxPage)
	if req.Limit == 0 {
		limit = MaxPage
	}
	state := svc.State()
	from := string(req.Cursor)
	if len(from) == 1+8 && from[0] == cursorByID {
		n, ok := state.Node(binary.BigEndian.Uint64(req.Cursor[1:]))
		if !ok {
			return reply, protocol.Errorf(protocol.StatusAborted, "the place where the list was to go on is gone; list again")
		}
		from = n.Path
	}
	shown := func(n *meta.Node) bool { return n.Visible() && (visible == nil || visible(n.Path)) }
	bytes, looked := 0, 0
	// The cursor is the first node that was not scanned: its path, or its id if the node is hidden
	// from the caller.
	for n := range state.Nodes(req.Prefix, from) {
		if len(reply.Nodes) == limit || bytes > pageBytes || looked == maxPageScan {
			reply.Cursor = []byte(n.Path)
			if !shown(&n) {
				reply.Cursor = binary.BigEndian.AppendUint64([]byte{cursorByID}, n.ID)
			}
			break
		}
		looked++
		if !shown(&n) {
			continue
		}
		reply.Nodes = append(reply.Nodes, n.Info(state))
		bytes += len(n.Path) + 64
	}
	return reply, nil
}
