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
	Instance uint64 // id; 0 in events about tiers and shards
	Name     string // of the instance
	State    string // the new state, like Online(1), in change_target_state and change_current_state; else empty

	Tier       string // of change_shards and restore_tier
	Shards     uint32 // how many shards each replicaset of the tier is to have, in change_shards
	Backup     uint64 // digest of the backup that the tier was restored from, in restore_tier
	Shard      uint64 // of create_shard and remove_shard
	Replicaset string // of the shard

	Index uint64 // log index of the entry that made the change
	Count int    // position among the entry's events, from 1
}

// Audit lists the topology changes between two states; the entry with this log index made the
// second from the first. Every instance gets the same events for the same entry: instances in order
// of id, and for each join, target, current, replicaset, expel; then tiers, then shards in order of
// id.
func Audit(before, after *State, index uint64) []AuditEvent {
	var events []AuditEvent
	for at := range after.instances {
		i := &after.instances[at]
		old, known := before.Instance(i.ID)
		add := func(title string, severity Severity, state, format string, args ...any) {
			events = append(events, AuditEvent{
				Title: title, Severity: severity, Message: fmt.Sprintf(format, args...),
				Instance: i.ID, Name: i.Name, State: state,
				Index: index, Count: len(events) + 1,
			})
		}
		if !known {
			add("join_instance", SeverityLow, "", "a new instance `%s` joined the cluster", i.Name)
			add("create_local_db", SeverityLow, "", "local database created on `%s`", i.Name)
		}
		if old.Target != i.Target {
			add("change_target_state", SeverityLow, i.Target.String(), "target state of instance `%s` changed to %s",
				i.Name, i.Target)
		}
		if old.Current != i.Current {
			add("change_current_state", SeverityMedium, i.Current.String(),
				"current state of instance `%s` changed to %s", i.Name, i.Current)
		}
		if known && old.Replicaset != i.Replicaset {
			from, _ := before.Replicaset(old.Replicaset)
			to, _ := after.Replicaset(i.Replicaset)
			add("reassign_instance", SeverityMedium, "", "instance `%s` moved from replicaset `%s` to `%s`",
				i.Name, from.Name, to.Name)
		}
		if i.Expelled() && !old.Expelled() {
			add("expel_instance", SeverityLow, "", "instance `%s` was expelled from the cluster", i.Name)
			add("drop_local_db", SeverityLow, "", "local database dropped on `%s`", i.Name)
		}
	}
	return auditShards(events, before, after, index)
}

// auditShards appends restored tiers, and the changes of shards and of their numbers. The shards
// that the cluster begins with are not listed.
func auditShards(events []AuditEvent, before, after *State, index uint64) []AuditEvent {
	if !before.Bootstrapped() {
		return events
	}
	add := func(e AuditEvent, format string, args ...any) {
		e.Message, e.Index, e.Count = fmt.Sprintf(format, args...), index, len(events)+1
		events = append(events, e)
	}
	for _, t := range after.tiers {
		old, ok := before.Tier(t.ID)
		if ok && old.ShardsPerReplicaset != t.ShardsPerReplicaset {
			add(AuditEvent{Title: "change_shards", Severity: SeverityMedium, Tier: t.Name,
				Shards: t.ShardsPerReplicaset},
				"the number of shards of each replicaset of tier `%s` is to be %d instead of %d",
				t.Name, t.ShardsPerReplicaset, old.ShardsPerReplicaset)
		}
		if old.ToBeRestored() && !t.ToBeRestored() {
			add(AuditEvent{Title: "restore_tier", Severity: SeverityHigh, Tier: t.Name, Backup: old.Restore.Backup},
				"tier `%s` was restored from the backup with digest %016x", t.Name, old.Restore.Backup)
		}
	}
	event := func(title string, s *State, x *Shard) AuditEvent {
		set, _ := s.Replicaset(x.Replicaset)
		return AuditEvent{Title: title, Severity: SeverityLow, Shard: x.ID, Replicaset: set.Name}
	}
	// Both lists are in order of id.
	for a, b := before.shards, after.shards; len(a)+len(b) > 0; {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].ID < b[0].ID:
			e := event("remove_shard", before, &a[0])
			add(e, "shard %d of replicaset `%s` was removed", e.Shard, e.Replicaset)
			a = a[1:]
		case len(a) == 0 || b[0].ID < a[0].ID:
			e := event("create_shard", after, &b[0])
			add(e, "shard %d of replicaset `%s` was created", e.Shard, e.Replicaset)
			b = b[1:]
		default:
			a, b = a[1:], b[1:]
		}
	}
	return events
}
