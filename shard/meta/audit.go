package meta

import "fmt"

// Severity is the importance of an audit event.
type Severity string

const (
	SeverityLow    Severity = "low"
	SeverityMedium Severity = "medium"
	SeverityHigh   Severity = "high"
)

// AuditEvent is a change of the cluster's topology.
type AuditEvent struct {
	Title    string
	Severity Severity
	Message  string
	Instance uint64 // id
	Name     string // of the instance
	State    string // the new state, like Online(1), in change_target_state and change_current_state; else empty
	Index    uint64 // log index of the entry that made the change
	Count    int    // position among the entry's events, from 1
}

// Audit lists the topology changes between two states; the entry with this log index made the
// second from the first. Every instance gets the same events for the same entry: instances in order
// of id, and for each join, target, current, replicaset, expel.
func Audit(before, after *State, index uint64) []AuditEvent {
	var events []AuditEvent
	for at := range after.instances {
		i := &after.instances[at]
		old, known := before.Instance(i.ID)
		add := func(title string, severity Severity, state, format string, args ...any) {
			events = append(events, AuditEvent{
				Title: title, Severity: severity, Message: fmt.Sprintf(format, args...), Instance: i.ID, Name: i.Name, State: state,
				Index: index, Count: len(events) + 1,
			})
		}
		if !known {
			add("join_instance", SeverityLow, "", "a new instance `%s` joined the cluster", i.Name)
			add("create_local_db", SeverityLow, "", "local database created on `%s`", i.Name)
		}
		if old.Target != i.Target {
			add("change_target_state", SeverityLow, i.Target.String(), "target state of instance `%s` changed to %s", i.Name, i.Target)
		}
		if old.Current != i.Current {
			add("change_current_state", SeverityMedium, i.Current.String(), "current state of instance `%s` changed to %s", i.Name, i.Current)
		}
		if known && old.Replicaset != i.Replicaset {
			from, _ := before.Replicaset(old.Replicaset)
			to, _ := after.Replicaset(i.Replicaset)
			add("reassign_instance", SeverityMedium, "", "instance `%s` moved from replicaset `%s` to `%s`", i.Name, from.Name, to.Name)
		}
		if i.Expelled() && !old.Expelled() {
			add("expel_instance", SeverityLow, "", "instance `%s` was expelled from the cluster", i.Name)
			add("drop_local_db", SeverityLow, "", "local database dropped on `%s`", i.Name)
		}
	}
	return events
}
