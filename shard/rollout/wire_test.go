package rollout

import (
	"reflect"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestSameNumbers: what has a name here and on the wire has the same number, and the same bounds.
func TestSameNumbers(t *testing.T) {
	for _, c := range []struct {
		name       string
		here, wire uint64
	}{
		{"source tso", uint64(SourceTSO), uint64(protocol.SourceTSO)}, {"source external", uint64(SourceExternal), uint64(protocol.SourceExternal)},
		{"source published", uint64(SourcePublished), uint64(protocol.SourcePublished)},
		{"selected", uint64(FromSelected), uint64(protocol.FromSelected)}, {"converged", uint64(FromConverged), uint64(protocol.FromConverged)},
		{"command", uint64(GateCommand), uint64(protocol.GateCommand)}, {"webhook", uint64(GateWebhook), uint64(protocol.GateWebhook)},
		{"follower", uint64(Follower), uint64(protocol.InstanceFollower)}, {"leader", uint64(Leader), uint64(protocol.InstanceLeader)},
		{"success", uint64(Success), uint64(protocol.GateSuccess)}, {"failure", uint64(Failure), uint64(protocol.GateFailure)},
		{"inconclusive", uint64(Inconclusive), uint64(protocol.GateInconclusive)},
		{"why target", uint64(WhyTarget), uint64(protocol.PollTarget)}, {"why no target", uint64(WhyNoTarget), uint64(protocol.PollNoTarget)},
		{"why paused", uint64(WhyPaused), uint64(protocol.PollPaused)}, {"why excluded", uint64(WhyExcluded), uint64(protocol.PollExcluded)},
		{"why removed", uint64(WhyRemoved), uint64(protocol.PollRemoved)}, {"why wanted", uint64(WhySourceWanted), uint64(protocol.PollSourceWanted)},
		{"why unavailable", uint64(WhySourceUnavailable), uint64(protocol.PollSourceUnavailable)},
		{"unset", uint64(StateUnset), uint64(protocol.StateUnset)}, {"converging", uint64(StateConverging), uint64(protocol.StateConverging)},
		{"converged", uint64(StateConverged), uint64(protocol.StateConverged)}, {"delay", uint64(StateWaitingDelay), uint64(protocol.StateWaitingDelay)},
		{"gate", uint64(StateWaitingGate), uint64(protocol.StateWaitingGate)}, {"share", uint64(StateWaitingShare), uint64(protocol.StateWaitingShare)},
		{"pending", uint64(StateReelectionPending), uint64(protocol.StateReelectionPending)}, {"stalled", uint64(StateStalled), uint64(protocol.StateStalled)},
		{"paused", uint64(StatePaused), uint64(protocol.StatePaused)}, {"empty", uint64(StateEmpty), uint64(protocol.StateEmpty)},
		{"skipped", uint64(StateSkipped), uint64(protocol.StateSkipped)}, {"excluded", uint64(StateExcluded), uint64(protocol.StateExcluded)},
		{"no leader", uint64(StateNoLeader), uint64(protocol.StateNoLeader)}, {"ready", uint64(StateReady), uint64(protocol.StateReady)},
		{"removed", uint64(StateRemoved), uint64(protocol.StateRemoved)},
		{"initial", uint64(ReasonInitial), uint64(protocol.ReasonInitial)}, {"advance", uint64(ReasonAdvance), uint64(protocol.ReasonAdvance)},
		{"explicit", uint64(ReasonExplicit), uint64(protocol.ReasonExplicit)}, {"implicit", uint64(ReasonImplicit), uint64(protocol.ReasonImplicit)},
		{"operator", uint64(ReasonOperator), uint64(protocol.ReasonOperator)}, {"promote", uint64(ReasonPromote), uint64(protocol.ReasonPromote)},
		{"rollback", uint64(ReasonRollback), uint64(protocol.ReasonRollback)},
		{"change target", uint64(ChangeTarget), uint64(protocol.TrackEventTarget)}, {"change widen", uint64(ChangeWiden), uint64(protocol.TrackEventWiden)},
		{"change state", uint64(ChangeState), uint64(protocol.TrackEventState)}, {"change converged", uint64(ChangeConverged), uint64(protocol.TrackEventConverged)},
		{"change skip", uint64(ChangeSkip), uint64(protocol.TrackEventSkip)}, {"change gate", uint64(ChangeGate), uint64(protocol.TrackEventGate)},
		{"change gate done", uint64(ChangeGateDone), uint64(protocol.TrackEventGateDone)}, {"change joined", uint64(ChangeJoined), uint64(protocol.TrackEventJoined)},
		{"change left", uint64(ChangeLeft), uint64(protocol.TrackEventLeft)}, {"change role", uint64(ChangeRole), uint64(protocol.TrackEventRole)},
		{"change admin", uint64(ChangeAdmin), uint64(protocol.TrackEventAdmin)}, {"change published", uint64(ChangePublished), uint64(protocol.TrackEventPublished)},
		{"change alert", uint64(ChangeAlert), uint64(protocol.TrackEventAlert)},
		{"locations", MaxLocations, protocol.MaxTrackLocations}, {"gates", MaxGates, protocol.MaxTrackGates}, {"codes", MaxCodes, protocol.MaxTrackCodes},
		{"name", MaxName, protocol.MaxTrackName}, {"instance", MaxInstance, protocol.MaxTrackInstance}, {"meta", MaxMeta, protocol.MaxTrackMeta},
		{"message", MaxMessage, protocol.MaxTrackMessage}, {"spec", MaxGateSpec, protocol.MaxTrackGateSpec}, {"payload", MaxPayload, protocol.MaxTrackPayload},
		{"version", MaxVersion, protocol.MaxTrackVersion}, {"duration", MaxDuration, protocol.MaxTrackDuration},
	} {
		if c.here != c.wire {
			t.Errorf("%s is %d here and %d on the wire", c.name, c.here, c.wire)
		}
	}
}

// TestSameNames: people read the same words of both.
func TestSameNames(t *testing.T) {
	for i := range uint8(20) {
		if i > 0 {
			for what, pair := range map[string][2]string{
				"state": {State(i).String(), protocol.TrackState(i).String()}, "reason": {Reason(i).String(), protocol.TrackReason(i).String()},
				"change": {ChangeKind(i).String(), protocol.TrackEventKind(i).String()},
			} {
				if !strings.EqualFold(pair[0], pair[1]) {
					t.Errorf("%s %d is %s here and %s on the wire", what, i, pair[0], pair[1])
				}
			}
		}
		if here, wire := Why(i).String(), protocol.TrackPollStatus(i).String(); !strings.EqualFold(here, wire) {
			t.Errorf("why %d is %s here and %s on the wire", i, here, wire)
		}
	}
	if Leader.String() != protocol.InstanceLeader.String() || Follower.String() != protocol.InstanceFollower.String() {
		t.Error("roles have other names")
	}
}

// fill sets every field, at every depth, to something of its own.
func fill(v reflect.Value, n *uint64) {
	*n++
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), n)
		fill(v.Index(1), n)
	case reflect.String:
		v.SetString(string(rune('a' + *n%26)))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int:
		v.SetInt(int64(*n))
	default:
		v.SetUint(*n % 250)
	}
}

// leaves are the values of all fields of one name, at any depth.
func leaves(v reflect.Value, name string, out map[string][]any) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			leaves(v.Field(i), v.Type().Field(i).Name, out)
		}
	case reflect.Slice:
		for i := range v.Len() {
			leaves(v.Index(i), name, out)
		}
	case reflect.Int:
		out[name] = append(out[name], uint64(v.Int()))
	case reflect.Uint8, reflect.Uint64:
		out[name] = append(out[name], v.Uint())
	default:
		out[name] = append(out[name], v.Interface())
	}
}

// TestWireHasEverything: no field is left behind on the way to the wire; but for those that are named here, names are the same on both sides.
func TestWireHasEverything(t *testing.T) {
	compare := func(what string, here, wire any, without map[string]bool) {
		t.Helper()
		a, b := map[string][]any{}, map[string][]any{}
		leaves(reflect.ValueOf(here), "", a)
		leaves(reflect.ValueOf(wire), "", b)
		if len(a) < 3 {
			t.Fatalf("%s: only %d fields found", what, len(a))
		}
		for name, values := range a {
			if !without[name] && !reflect.DeepEqual(values, b[name]) {
				t.Errorf("%s: %s is %v, on the wire %v", what, name, values, b[name])
			}
		}
	}
	n := uint64(0)
	var config Config
	fill(reflect.ValueOf(&config).Elem(), &n)
	wire := config.Wire()
	compare("config", config, wire, nil)
	if back := ConfigOf(&wire); !reflect.DeepEqual(back, config) {
		t.Errorf("%+v came back as %+v", config, back)
	}
	var answer PollResult
	fill(reflect.ValueOf(&answer).Elem(), &n)
	compare("answer", answer, answer.Wire(), map[string]bool{"Expected": true})
	var change Change
	fill(reflect.ValueOf(&change).Elem(), &n)
	compare("change", change, change.Wire(), nil)
	var instance InstanceStatus
	fill(reflect.ValueOf(&instance).Elem(), &n)
	compare("instance", instance, instance.Wire(), nil)
	var row Row
	fill(reflect.ValueOf(&row).Elem(), &n)
	compare("row", row, row.Wire(), nil)
	var status Status
	fill(reflect.ValueOf(&status).Elem(), &n)
	compare("status", status, status.Wire(nil, 100), map[string]bool{"Revision": true, "Instances": true})
	if w := status.Wire(nil, 1); w.ConfigRevision != status.Revision || w.NumInstances != uint64(status.Instances) || len(w.Locations[0].BlockedBy) != 1 {
		t.Errorf("status is %+v", w)
	}
	var gates []GateRun
	fill(reflect.ValueOf(&gates).Elem(), &n)
	compare("gates", gates, status.Wire(gates, 0).Gates, map[string]bool{"Index": true})
	w := protocol.UpdateReport{Seq: 1, Current: 2, Target: 3, Code: "4", Message: "5", Attempts: 6}
	if r := ReportOf(&w); *r != (Report{1, 2, 3, "4", "5", 6}) {
		t.Errorf("report is %+v", r)
	}
	if ReportOf(&protocol.UpdateReport{Current: 2}) != nil {
		t.Error("a report without a number is one")
	}
}
