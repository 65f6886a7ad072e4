package protocol

// The names of small enumerations, as people and JSON documents have them. A number that
// has none is "unknown".

// String is the name in capitals, such as WAITING_DELAY.
func (s TrackState) String() string {
	return enumName(int(s), "", "UNSET", "CONVERGING", "CONVERGED", "WAITING_DELAY", "WAITING_GATE", "WAITING_SHARE",
		"REELECTION_PENDING", "STALLED", "PAUSED", "EMPTY",
		"SKIPPED", "EXCLUDED", "NO_LEADER", "READY", "REMOVED")
}

// String is the name, such as reelect-explicit.
func (r TrackReason) String() string {
	return enumName(int(r), "", "initial", "advance", "reelect-explicit", "reelect-implicit",
		"reelect-operator", "promote", "rollback")
}

// String is the name in capitals, such as NO_TARGET.
func (w TrackPollStatus) String() string {
	return enumName(int(w), "TARGET", "NO_TARGET", "PAUSED", "EXCLUDED", "REMOVED", "SOURCE_WANTED",
		"SOURCE_UNAVAILABLE")
}

// String is the name, such as gate-done.
func (k TrackEventKind) String() string {
	return enumName(int(k), "", "target", "widen", "state", "converged", "skip", "gate", "gate-done", "joined",
		"left", "role", "admin", "published", "alert")
}

// String is leader or follower.
func (r TrackInstanceRole) String() string { return enumName(int(r), "", "follower", "leader") }

// String is the command's name, such as rollback.
func (v TrackVerb) String() string {
	return enumName(int(v), "", "pause", "resume", "promote", "rollback", "reelect", "exclude", "include", "evict")
}

// String is success, failure or inconclusive.
func (o GateOutcome) String() string {
	return enumName(int(o), "", "success", "failure", "inconclusive")
}

// String is command or webhook.
func (k GateKind) String() string { return enumName(int(k), "", "command", "webhook") }

// String is tso, external or published.
func (s TrackSource) String() string { return enumName(int(s), "", "tso", "external", "published") }

// String is selected or converged.
func (d DelayFrom) String() string { return enumName(int(d), "selected", "converged") }

// String is oldest, lowest-id or preferred.
func (e ProcessElection) String() string {
	return enumName(int(e), "oldest", "lowest-id", "preferred")
}

// String is the phase's name, such as preparing.
func (p ProcessPhase) String() string {
	return enumName(int(p), "idle", "waiting", "preparing", "coordinating", "completing", "completed")
}

// String is the member's status, such as prepared.
func (s ProcessMemberStatus) String() string {
	return enumName(int(s), "outside", "preparing", "prepared", "completing", "completed", "resuming", "absent")
}

// String is completed, cancelled or failed; none for a round that has no outcome.
func (o ProcessOutcome) String() string {
	return enumName(int(o), "none", "completed", "cancelled", "failed")
}

func enumName(i int, names ...string) string {
	if i < len(names) && (i > 0 || names[0] != "") {
		return names[i]
	}
	return "unknown"
}
