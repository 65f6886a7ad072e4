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
		whole  bytes.Buffer
	)
	for _, x := range []any{&state, &node, &op, &result} {
		formattest.Fill(x)
	}
	g.Add("section 1", "", varint.Encode(nil, state.headFields))
	g.Add("section 2", "", varint.Encode(nil, node.fields))
	g.Add("section 3", "", varint.Encode(nil, op.fields))
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
