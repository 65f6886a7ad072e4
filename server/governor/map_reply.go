package governor

import (
	"encoding/binary"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// MapReply is the cluster map for clients. Master, if given, is the leader of a shard as far as
// this instance knows, 0 for unknown, and its raft term. Without it, the map names the leader that
// the governor recorded. Expelled instances, replicas outside their groups and tiers without bucket
// owners are left out. A client that knows this version gets the version alone.
func MapReply(s *meta.State, known uint64, master func(shard uint64) (instance, term uint64)) protocol.MapReply {
	reply := protocol.MapReply{Version: s.MapVersion(), Cluster: s.ClientCluster()}
	if known != 0 && known == reply.Version {
		return reply
	}
	for _, i := range s.Instances() {
		if i.Expelled() {
			continue
		}
		reply.Instances = append(reply.Instances, protocol.MapInstance{ID: i.ID, Name: i.Name, Address: i.Address})
	}
	for _, x := range s.Shards() {
		entry := protocol.MapShard{ID: x.ID, Master: x.Master}
		if master != nil {
			if leader, term := master(x.ID); leader != 0 {
				entry.Master, entry.Term = leader, term
			}
		}
		for _, r := range x.Replicas {
			if i, _ := s.Instance(r.Instance); r.Role != meta.RoleNone && !i.Expelled() {
				entry.Replicas = append(entry.Replicas, r.Instance)
			}
		}
		reply.Shards = append(reply.Shards, entry)
	}
	for _, t := range s.Tiers() {
		if !t.Bootstrapped {
			continue // its buckets have no owner yet, or it has none
		}
		entry := protocol.MapTier{ID: t.ID, Name: t.Name, Buckets: t.Buckets}
		for _, run := range t.Runs {
			if n := len(entry.Runs); n > 0 && entry.Runs[n-1].Shard == run.Shard {
				entry.Runs[n-1].Count += run.Count // of another epoch: clients do not care
				continue
			}
			entry.Runs = append(entry.Runs, protocol.MapRun{Count: run.Count, Shard: run.Shard})
		}
		reply.Tiers = append(reply.Tiers, entry)
	}
	return reply
}

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
// visible filters the nodes; nil shows all. It reads the state applied by this instance. Errors are
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
