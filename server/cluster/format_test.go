package cluster

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"testing"

	"github.com/signalbox-dev/signalbox/server/peer"
	"github.com/signalbox-dev/signalbox/shard/formattest"
)

var _ = flag.Bool("update", false, "rewrite the golden files of testdata")

// TestFormat compares each message between instances with testdata/format-N.golden. All fields have
// values other than zero.
func TestFormat(t *testing.T) {
	var g formattest.Golden
	for _, x := range allMessages() {
		formattest.Fill(x)
		g.Add(reflect.TypeOf(x).Elem().Name(), "", encode(x))
	}
	source, err := os.ReadFile("messages.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^type (\w+) struct`).FindAllStringSubmatch(string(source), -1) {
		if !g.Has(m[1]) {
			t.Errorf("no %s in this test; add it", m[1])
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^\t((?:method|kind)\w+)\s+uint8 = (\d+)`).FindAllStringSubmatch(string(source), -1) {
		fmt.Fprintf(&g, "%s: %s\n", m[1], m[2])
	}
	g.Check(t, peer.HandshakeVersion)
}

// allMessages returns an empty one of each message between instances.
func allMessages() []any {
	return []any{
		&discoverRequest{}, &discoverReply{}, &JoinRequest{}, &JoinReply{}, &instanceStatusRequest{},
		&instanceStatusReply{}, &applicantRequest{}, &applicantReply{}, &fetchKeysRequest{}, &proposeRequest{}, &shardRequest{},
		&registersRequest{}, &exportRequest{}, &exportReply{}, &copyRequest{}, &copyReply{}, &memberAddress{},
		&membersReply{}, &changeMembersRequest{}, &transferRequest{}, &heartbeat{}, &shardHeartbeat{},
		&leaderMessage{}, &setTargetRequest{}, &processExitedRequest{}, &processExitedReply{},
	}
}

// messageNamed returns an empty message of this type, nil for an unknown name.
func messageNamed(name string) any {
	for _, m := range allMessages() {
		if reflect.TypeOf(m).Elem().Name() == name {
			return m
		}
	}
	return nil
}
