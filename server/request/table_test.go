package request

import (
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestCharges: each request has its place in the table, and what keeps a session or gives something
// back is never refused.
func TestCharges(t *testing.T) {
	free := []string{ // of no node, or an operator's
		"hello", "ping", "present_ticket", "map", "node_create", "node_alter", "node_describe", "node_delete",
		"node_list", "cluster", "unwatch",
		"session_kill", "force_release", "process_force_round", "process_evict", "process_alter",
	}
	always := []string{
		"session_attach", "session_stop", "release", "process_leave", "process_confirm", "process_fail",
		"process_complete", "process_sync", "process_reply",
		"track_unregister", "limit_leave",
	}
	events := []string{
		"pong", "goodbye", "map_changed", "session_ended", "taken_over", "acquire_result", "lease_lost",
		"watch_fired", "snapshot", "delta", "stream_cut", "detached",
		"track_status", "track_events", "limit_changed", "lease_preempted",
		"process_round", "process_message", "process_state", "process_changes",
	}
	want := make(map[string]quotaCharge)
	for _, name := range free {
		want[name] = chargeNone
	}
	for _, name := range always {
		want[name] = chargeAlways
	}
	for _, name := range events {
		want[name] = chargeNone
	}
	kinds, known := newRequestTable(), 0
	for kind := range protocol.Kind(protocol.NumKinds) {
		name := kind.String()
		if strings.Trim(name, "0123456789") == "kind " || strings.HasPrefix(name, "kind") || name == "" {
			continue // no message
		}
		c, listed := want[name]
		if !listed {
			c = chargeAsk // whatever is new is refused when a node asks too much, until somebody decides otherwise here
		}
		if kinds[kind].charge != c {
			t.Errorf("%s is charged as %d, want %d", name, kinds[kind].charge, c)
		}
		known++
	}
	if known < len(want) {
		t.Errorf("only %d kinds are known, and %d are listed here", known, len(want))
	}
}

// TestKindsThatTakeMemory lists the kinds that are rejected while memory is short. All others are
// served: those that end, release, keep alive, read, report or decide.
func TestKindsThatTakeMemory(t *testing.T) {
	var takes []string
	for kind, row := range newRequestTable() {
		if row.grows {
			takes = append(takes, protocol.Kind(kind).String())
		}
	}
	want := "node_create session_start create update acquire watch process_join process_request process_watch " +
		"track_create track_alter track_register track_publish track_watch track_advance " +
		"limit_create limit_alter limit_join limit_watch"
	slices.Sort(takes)
	wanted := strings.Fields(want)
	slices.Sort(wanted)
	if !slices.Equal(takes, wanted) {
		t.Errorf("these kinds take memory:\n%s\nwant:\n%s", takes, wanted)
	}
}
