package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// listing is what a server has, in lines that say the same for ever, whatever fields messages get:
// nodes, tokens and rights; sessions, semaphores with their owners and queues, processes, tracks,
// each in the order of its shard.
func listing(t *testing.T, s *instance) string {
	t.Helper()
	c := connect(t, s)
	var lines []string
	line := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	state := s.Meta.State()
	var nodes []protocol.NodeInfo
	for n := range state.Nodes("", "") {
		info := c.nodeInfo(n.Path)
		nodes = append(nodes, info)
		line("node %s id=%d grace=%d self_check=%d max_sessions=%d max_semaphores=%d max_bytes=%d max_waiters=%d max_watchers=%d max_requests=%d", info.Path, info.ID, info.Config.GracePeriod, info.Config.SelfCheckPeriod,
			info.Config.MaxSessions, info.Config.MaxSemaphores, info.Config.MaxBytes, info.Config.MaxWaiters,
			info.Config.MaxWatchers, info.Config.MaxRequests)
	}
	tokens, _ := state.Tokens()
	for _, x := range tokens {
		line("token %s identity=%s", x.ID, x.Identity)
	}
	rights, _ := state.RightsList()
	for _, x := range rights {
		line("right %s %s %d", x.Prefix, x.Identity, x.Rights)
	}
	for _, n := range nodes {
		var found []string
		for _, x := range state.Shards() {
			found = append(found, listShard(c, n.ID, x.ID, c.anyBucket(x.ID))...)
		}
		slices.Sort(found) // which shard has what depends on their number
		for _, l := range found {
			line("in %s: %s", n.Path, l)
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// anyBucket is a bucket that a shard has.
func (c *raw) anyBucket(shard uint64) uint64 {
	state := c.s.Meta.State()
	for _, run := range state.Tiers()[0].Runs {
		if run.Shard == shard {
			return uint64(run.First)
		}
	}
	return 0
}

func listShard(c *raw, node, shard, bucket uint64) (lines []string) {
	c.t.Helper()
	line := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	total := uint64(c.s.Meta.State().Tiers()[0].Buckets)
	at := func(b uint32) uint64 { return uint64(b) % total }

	var sessions protocol.SessionListReply
	c.must(protocol.KindSessionList, bucket, &protocol.SessionList{Shard: shard, Node: node, Limit: 1000}, &sessions)
	for _, x := range sessions.Sessions {
		line("session %d timeout=%d created=%d %q", x.Session, x.Timeout, x.CreatedAt, x.Description)
	}
	var names protocol.ListReply
	c.must(protocol.KindList, bucket, &protocol.List{Shard: shard, Node: node, Limit: 1000, Consistency: protocol.Strict}, &names)
	for _, x := range names.Semaphores {
		var d protocol.DescribeReply
		c.must(protocol.KindDescribe, at(protocol.Bucket(node, x.Name, uint32(total))), &protocol.Describe{
			Node: node, Name: x.Name, Flags: protocol.WithOwners | protocol.WithWaiters, Consistency: protocol.Strict,
		}, &d)
		line("semaphore %s limit=%d used=%d version=%d ephemeral=%v created=%d data=%q", d.Name, d.Limit, d.Used,
			d.Version, d.Ephemeral, d.CreatedAt, d.Data)
		for _, o := range d.Owners {
			line("semaphore %s owner %d session=%d count=%d since=%d data=%q", d.Name, o.OrderID, o.Session, o.Count, o.Since, o.Data)
		}
		for _, w := range d.Waiters {
			line("semaphore %s waiter %d session=%d count=%d since=%d timeout=%d data=%q", d.Name, w.OrderID,
				w.Session, w.Count, w.Since, w.Timeout, w.Data)
		}
	}
	var processes protocol.ProcessListReply
	c.must(protocol.KindProcessList, bucket,
		&protocol.ProcessList{Shard: shard, Node: node, Limit: 1000, Consistency: protocol.Strict}, &processes)
	for _, x := range processes.Processes {
		var d protocol.ProcessStatus
		c.must(protocol.KindProcessDescribe, at(protocol.ProcessBucket(node, x.Name, uint32(total))), &protocol.ProcessDescribe{
			Node: node, Name: x.Name, Flags: protocol.WithProcessMembers | protocol.WithProcessHistory, Consistency: protocol.Strict,
		}, &d)
		line("process %s epoch=%d topology=%d coordinator=%d", x.Name, x.Epoch, x.Topology, x.Coordinator)
		for _, m := range d.Members {
			line("process %s member %d key=%q data=%q weight=%d", x.Name, m.Member.Session, m.Member.Key, m.Member.Data, m.Member.Weight)
		}
		for _, r := range d.History {
			line("process %s round %d outcome=%d size=%d", x.Name, r.Epoch, r.Outcome, r.Size)
		}
	}
	var tracks protocol.TrackListReply
	c.must(protocol.KindTrackList, bucket,
		&protocol.TrackList{Shard: shard, Node: node, Limit: 1000, Consistency: protocol.Strict}, &tracks)
	for _, x := range tracks.Tracks {
		var d protocol.TrackStatus
		c.must(protocol.KindTrackDescribe, at(protocol.Bucket(node, x.Name, uint32(total))), &protocol.TrackDescribe{
			Node: node, Name: x.Name, Flags: protocol.WithTrackConfig | protocol.WithTrackInstances, Consistency: protocol.Strict,
		}, &d)
		line("track %s last=%d revision=%d paused=%v", x.Name, d.Last, d.ConfigRevision, d.Paused)
		for _, l := range d.Locations {
			line("track %s location %s target=%d stable=%d generation=%d members=%d", x.Name, l.Name, l.Target,
				l.Stable, l.Generation, l.Members)
		}
		for _, i := range d.Instances {
			line("track %s instance %s location=%s session=%d incarnation=%d current=%d", x.Name, i.ID, i.Location,
				i.Session, i.Incarnation, i.Report.Current)
		}
	}
	return lines
}
