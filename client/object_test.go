package client

import (
	"regexp"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestOpNames: errors name operations on processes and tracks in words.
func TestOpNames(t *testing.T) {
	for kind, want := range map[protocol.Kind]string{
		protocol.KindProcessJoin: "join process", protocol.KindProcessForceRound: "force round of process",
		protocol.KindTrackSetRole: "set role", protocol.KindTrackPoll: "poll",
	} {
		if got := opName(kind); got != want {
			t.Errorf("%v is named %q, want %q", kind, got, want)
		}
	}
	words := regexp.MustCompile(`^[a-z]+( [a-z]+)*$`)
	for kind := range protocol.Kind(protocol.NumKinds) {
		if kind.IsRequest() && !words.MatchString(opName(kind)) {
			t.Errorf("%v is named %q", kind, opName(kind))
		}
	}
}
