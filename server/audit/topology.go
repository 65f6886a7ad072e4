package audit

import (
	"fmt"

	"github.com/signalbox-dev/signalbox/shard/meta"
)

// Topology converts changes of the meta shard's entries, in their order. The index of an entry is
// the same in the logs of all instances.
func Topology(changes []meta.AuditEvent) []Event {
	events := make([]Event, 0, len(changes))
	for _, c := range changes {
		e := Event{Title: c.Title, Severity: c.Severity, Message: c.Message}
		switch {
		case c.Backup != 0:
			e.Fields = []Field{{"tier", c.Tier}, {"backup", fmt.Sprintf("%016x", c.Backup)}}
		case c.Tier != "":
			e.Fields = []Field{{"tier", c.Tier}, {"shards_per_replicaset", c.Shards}}
		case c.Shard != 0:
			e.Fields = []Field{{"shard", c.Shard}, {"replicaset", c.Replicaset}}
		default:
			e.Fields = []Field{{"instance_name", c.Name}, {"instance_id", c.Instance}}
		}
		if c.State != "" {
			e.Fields = append(e.Fields, Field{"new_state", c.State})
		}
		e.Fields = append(e.Fields, Field{"index", c.Index})
		events = append(events, e)
	}
	return events
}

// Events of the instance itself. The first two are the first events after a start.
var (
	InitAudit      = Event{Title: "init_audit", Message: "audit log is ready"}
	LocalStartup   = Event{Title: "local_startup", Message: "instance is starting"}
	ConnectLocalDB = Event{Title: "connect_local_db", Message: "the instance reads its own log and snapshots"}
	RecoverLocalDB = Event{Title: "recover_local_db", Message: "the instance has read its own log and snapshots"}
	LocalShutdown  = Event{Title: "local_shutdown", Severity: High, Message: "instance is shutting down"}
)
