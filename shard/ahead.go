package shard

// How far Ahead moves the counters of a bucket: past whatever it can have given out between a backup and the end of its cluster, and little enough for far more restores than anybody makes.
const (
	aheadOrders   = 1 << 32 // programs may keep order ids as numbers of 53 bits
	aheadSessions = 1 << 20 // the counter in a session id has 36 bits
)

// Ahead moves the counters of every bucket on, in a machine that was read from a backup. What the shard gave out after the backup was made is not known here, and must not be given out
// again: an order id that came twice would fence nobody off, and a session id that did would name two clients' sessions. A session that began after the backup counts as
// ended then. It is not for a machine that a log is applied to.
func (m *Machine) Ahead() {
	for i := range m.buckets {
		if b := &m.buckets[i]; b.state != bucketAbsent {
			b.orders += aheadOrders
			b.sessions += aheadSessions
		}
	}
}
