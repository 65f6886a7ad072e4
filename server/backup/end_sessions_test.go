package backup

import (
	"encoding/binary"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/shard"
)

// TestEndSessions: a restore that keeps clients ends the sessions of all pages of the list.
func TestEndSessions(t *testing.T) {
	p, _ := takeOver(shard.New(2))
	do := func(kind shard.CommandKind, body []byte) {
		t.Helper()
		if st := p.propose(shard.Command{Kind: kind, Node: 1, Body: body}); st != protocol.StatusOK {
			t.Fatal(kind, st)
		}
	}
	config := nodeConfig
	config.MaxSessions = 3 * uint64(shard.PageEntries)
	do(shard.CmdNodePut, shard.AppendNodePut(nil, shard.NodePutBody{Node: 1, Revision: 1, Config: config}))
	do(shard.CmdBuckets, shard.AppendBuckets(nil, shard.BucketsBody{Total: 8, Count: 8, Epoch: 1}))
	for n := range 2*shard.PageEntries + 1 {
		m := protocol.SessionStart{Node: 1, CreateID: binary.BigEndian.AppendUint64(make([]byte, 8), uint64(n)),
			Key: make([]byte, 16), Timeout: 10_000, Nonce: 1}
		do(shard.CmdSessionStart, protocol.AppendBody(nil, &m))
	}
	left := func() (n int) {
		for s := (protocol.SessionListReply{Cursor: make([]byte, 8)}); len(s.Cursor) > 0; {
			list := protocol.SessionList{Node: 1, Cursor: s.Cursor}
			s = protocol.SessionListReply{}
			if err := p.m.Sessions().List(&list, &s); err != nil {
				t.Fatal(err)
			}
			n += len(s.Sessions)
		}
		return n
	}
	if n := left(); n != 2*shard.PageEntries+1 {
		t.Fatalf("there are %d sessions", n)
	}
	if err := p.endSessions(); err != nil {
		t.Fatal(err)
	}
	if n := left(); n != 0 {
		t.Errorf("%d sessions of the backup live on", n)
	}
}
