package shard

// How far BumpCounters moves the counters of a bucket: past whatever it can have given out between
// a backup and the end of its cluster, and little enough for far more restores than anybody makes.
// The longer ago the backup was made, the further, so that two clusters that are made of one
// backup, one after the other, give out different ids.
const (
	skipOrders   = 1 << 32 // programs may keep order ids as numbers of 53 bits
	skipSessions = 1 << 20 // the counter in a session id has 36 bits

	skipOrdersPerSecond   = 1 << 20 // more than a bucket can give out
	skipSessionsPerSecond = 1 << 5  // than it does for long
	skipMaxSeconds        = 1 << 28 // seconds: eight years
)

// BumpCounters advances the counters of every bucket and of its hosted objects, in a machine that
// was read from a backup made so many seconds ago. The shard does not know what it gave out after
// the backup, and must not give it out again: a repeated order id, process epoch or token would
// fence nothing off, and a repeated session id would name two clients' sessions. A session that
// began after the backup counts as ended. It is not for a machine that a log is applied to.
func (t *bucketTable) BumpCounters(seconds uint64) {
	seconds = min(seconds, skipMaxSeconds)
	orders := skipOrders + seconds*skipOrdersPerSecond
	for i := range t.buckets {
		b := &t.buckets[i]
		if b.state == bucketAbsent {
			continue
		}
		b.orderCounter += orders
		b.sessionCounter += skipSessions + seconds*skipSessionsPerSecond
		for _, objects := range b.objects {
			for _, x := range objects { // each for itself: their order shows nowhere
				x.state.bumpCounters(orders)
			}
		}
	}
}
