package cluster

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

type timeDuration = time.Duration

// hostile are malformed messages.
var hostile = [][]byte{
	nil, {0xc0}, {0x91}, {0x92, 0xa1}, {0x91, 0x01}, {0x91, 0xdf, 0xff, 0xff, 0xff, 0xff},
	{0xdd, 0xff, 0xff, 0xff, 0xff}, {0x91, 0xc6, 0xff, 0xff, 0xff, 0xff},
	bytes.Repeat([]byte{0x91}, 1<<20), bytes.Repeat([]byte{0x81, 0xa1, 'a'}, 1<<18), []byte("GET / HTTP/1.1\r\n\r\n"),
	{0x81, 0xa5, 'S', 'h', 'a', 'r', 'd', 0x01},
}

func TestMessages(t *testing.T) {
	for _, w := range []any{
		&discoverRequest{AddressedAs: "a:1", ID: "id", Voter: true, Peers: []string{"a:1", "b:1"}, Votable: []string{"a:1"}},
		&discoverReply{Leader: "a:1", Undecided: true, Peers: []string{"b:1"}, Votable: []string{"c:1"}},
		&JoinRequest{
			Cluster: "c", UUID: "u", Name: "n\x00\n", Replicaset: "r", Tier: "t", Address: "a:2", RaftAddress: "a:1",
			Domain:  []meta.Label{{Key: "DC", Value: "1"}},
			Version: meta.Version{Major: 1, Minor: 2, Patch: 3}, Restores: 1<<64 - 1,
			LastOfPreviousMajor: meta.Version{Minor: 9, Patch: 1},
		},
		&JoinReply{Cluster: "c", Instance: 1 << 60, MetaReplica: 7, Name: "n"},
		&instanceStatusRequest{UUID: "u"}, &instanceStatusReply{Instance: 1, MetaReplica: 2, Expelled: true},
		&proposeRequest{Shard: 2, Kind: 3, Node: 4, Epoch: 1<<64 - 1, Client: "c", Body: []byte{0, 255}},
		&exportRequest{Shard: 2, Tier: 1, First: 3, Count: 4, Epoch: 5, Cursor: []byte("x")},
		&exportReply{Chunk: []byte("c"), Next: []byte("n")},
		&membersReply{ConfigChange: 1, Voters: []memberAddress{{Replica: 1, Address: "a:1"}},
			NonVotings: []memberAddress{{Replica: 2, Address: "b:1"}}, Removed: []uint64{3}},
		&changeMembersRequest{Shard: 1, What: changeAdd, Replica: 2, Address: "a:1", ConfigChange: 3},
		&transferRequest{Shard: 1, Replica: 2, After: 3},
		&heartbeat{Instance: 1, Incarnation: 2, Seq: 3,
			Shards: []shardHeartbeat{{Shard: 1, Replica: 2, Leader: 3, Term: 4, Applied: 5, Members: 6}}},
		&leaderMessage{To: 1, From: 2, Bytes: []byte("b")}, &setTargetRequest{Instance: 1, Target: 2, Reason: "r"},
	} {
		b := encode(w)
		got := reflect.New(reflect.TypeOf(w).Elem()).Interface()
		if err := decode(b, got); err != nil || !reflect.DeepEqual(got, w) {
			t.Errorf("%+v comes back as %+v, %v", w, got, err)
		}
		for n := range b { // cut short anywhere
			if err := decode(b[:n], reflect.New(reflect.TypeOf(w).Elem()).Interface()); err == nil {
				t.Errorf("%T: %d of %d bytes are taken", w, n, len(b))
			}
		}
		for _, bad := range hostile {
			if err := decode(bad, reflect.New(reflect.TypeOf(w).Elem()).Interface()); err == nil {
				t.Errorf("%T takes %x", w, bad[:min(len(bad), 8)])
			}
		}
	}
}

func FuzzMessages(f *testing.F) {
	f.Add(encode(&heartbeat{Instance: 1, Shards: []shardHeartbeat{{Shard: 1}}}))
	f.Add(encode(&JoinRequest{Name: "n", Domain: []meta.Label{{Key: "K"}}}))
	for _, b := range hostile[:8] {
		f.Add(b)
	}
	f.Fuzz(func(_ *testing.T, b []byte) {
		for _, w := range []any{new(heartbeat), new(JoinRequest), new(discoverRequest), new(membersReply), new(proposeRequest)} {
			_ = decode(b, w)
		}
	})
}
