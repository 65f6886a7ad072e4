package main

import (
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestTransferOutcome: a transfer is over when the map names one leader, and has worked when that
// is the instance that was named, by its name or uuid.
func TestTransferOutcome(t *testing.T) {
	for _, c := range []struct {
		what, master, target, to string
		over                     bool
		want                     string // in the error; empty: none
	}{
		{"under way", "a", "b", "b", false, ""},
		{"without a leader", "", "b", "b", false, ""},
		{"done", "b", "b", "b", true, ""},
		{"done, by uuid", "b", "b", "u-b", true, ""},
		{"kept", "a", "a", "b", true, "shard 2 is led by a: b could not take it over"},
		{"kept, by uuid", "a", "a", "u-b", true, "u-b could not take it over"},
	} {
		s := &protocol.ClusterStatus{
			Instances: []protocol.ClusterInstance{{Name: "a", UUID: "u-a"}, {Name: "b", UUID: "u-b"}},
			Shards:    []protocol.ClusterShard{{ID: 1, Master: "c", TargetMaster: "c"}, {ID: 2, Master: c.master, TargetMaster: c.target}},
		}
		master, over, err := transferOutcome(s, 2, c.to)
		if master != c.master || over != c.over || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: led by %q, over %v, %v", c.what, master, over, err)
		}
	}
	if _, over, err := transferOutcome(&protocol.ClusterStatus{}, 2, "b"); !over || err == nil {
		t.Errorf("a shard that was removed: over %v, %v", over, err)
	}
}
