package meta

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
	"github.com/signalbox-dev/signalbox/shard/formattest"
)

// TestFormat compares each command, each record of a snapshot and the result with
// testdata/format-N.golden. All fields have values other than zero.
func TestFormat(t *testing.T) {
	var g formattest.Golden
	for kind, empty := range newCommand {
		if empty == nil {
			continue
		}
		c := empty()
		formattest.Fill(c)
		b := AppendCommand(nil, OpID{1, 2, 3}, c)
		_, back := decodeCommand(b)
		if back == nil || !bytes.Equal(AppendCommand(nil, OpID{1, 2, 3}, back), b) {
			t.Errorf("%T is not read as it was written", c)
		}
		g.Add(fmt.Sprintf("command %d", kind), reflect.TypeOf(c).Elem().Name(), b)
	}
	var (
		state  State
		node   Node
		op     opRecord
		result Result
		trust  Trust
		whole  bytes.Buffer
	)
	for _, x := range []any{&state, &node, &op, &result, &trust} {
		formattest.Fill(x)
	}
	g.Add("section 1", "", varint.Encode(nil, state.headFields))
	g.Add("section 2", "", varint.Encode(nil, node.fields))
	g.Add("section 3", "", varint.Encode(nil, op.fields))
	g.Add("section 5", "", varint.Encode(nil, trust.fields))
	g.Add("result", "", AppendResult(nil, result))
	if _, err := New().BeginSnapshot().WriteTo(&whole); err != nil {
		t.Fatal(err)
	}
	g.Add("snapshot", "of nothing", whole.Bytes())
	g.Check(t, FormatVersion)
}

// TestNeedsShardFormat: a request that no version of the cluster takes is refused like one that a
// later version takes.
func TestNeedsShardFormat(t *testing.T) {
	if err := NeedsShardFormat(1); protocol.StatusOf(err) != protocol.StatusPreconditionFailed {
		t.Error(err)
	}
	if err := NeedsShardFormat(255); protocol.StatusOf(err) != protocol.StatusInternal {
		t.Error(err)
	}
}

// TestTrustsWaitForTheUpgrade: while an instance may know no trusts, none is proposed, and a
// snapshot of that format has none.
func TestTrustsWaitForTheUpgrade(t *testing.T) {
	m := New()
	put := &TrustPut{Trust{Name: "ci", Issuer: "https://ci", Audience: "signalbox"}}
	bootstrap := examples()[0].(*Bootstrap)
	bootstrap.Version = Version{Minor: 2}
	apply := func(index uint64, c Command) {
		t.Helper()
		if res, err := DecodeResult(m.Apply(index, AppendCommand(nil, OpID{byte(index)}, c))); err != nil || res.Err() != nil {
			t.Fatal(err, res)
		}
	}
	apply(1, bootstrap)
	for _, c := range []Command{put, &TrustRemove{Name: "ci"}} {
		if _, err := m.Entry(OpID{}, c); protocol.StatusOf(err) != protocol.StatusPreconditionFailed {
			t.Errorf("%T is proposed at version 0.2: %v", c, err)
		}
	}
	apply(2, put) // as no instance does
	var b bytes.Buffer
	if _, err := m.BeginSnapshot().WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(&b); err == nil {
		t.Error("a snapshot of the first format has trusts")
	}
	apply(3, &InstanceUpdate{Instance: 1, Expected: 1, Target: Online, Version: Version{Minor: 3}, Start: true, Address: "a:1",
		RaftAddress: "a:2", Domain: bootstrap.Domain})
	apply(4, &ClusterVersion{Version{Minor: 3}})
	if _, err := m.Entry(OpID{}, put); err != nil {
		t.Error(err)
	}
}
