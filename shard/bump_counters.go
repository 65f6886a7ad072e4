package shard

// How far BumpCounters moves the counters of a bucket: past all that it can have given out between
// a backup and the end of its cluster, and little enough for far more restores than anybody makes.
//
// What a cluster gives out is below what the time since skipOrigin allows, so a restore continues
// above that. Thus it continues above what a cluster gave out that was made of another backup
// before. The longer ago the backup was made, the further too, in case that the wall clock was
// wrong.
const (
	skipOrders   = 1 << 32 // programs may keep order ids as numbers of 53 bits
	skipSessions = 1 << 20 // the counter in a session id has 36 bits

	skipOrdersPerSecond   = 1 << 20 // more than a bucket can give out
	skipSessionsPerSecond = 1 << 5  // than it does for long

	skipOrigin     = 1_767_225_600_000 // ms since 1970: the beginning of 2026, before any cluster
	skipMaxAge     = 1 << 28           // seconds: eight years
	skipMaxSeconds = 1 << 30           // since skipOrigin: until 2060
)

// BumpCounters advances the counters of every bucket and of its hosted objects, in a machine that
// was read from a backup. The backup was made and is restored at these times, in ms since 1970. The
// shard does not know what it gave out after the backup, and must not give it out again: a repeated
// order id, process epoch or token would fence nothing off, a repeated version would name other data,
// and a repeated session id would name two clients' sessions. A session that began after the backup counts as ended. It is not for a
// machine that a log is applied to.
func (t *bucketTable) BumpCounters(made, now uint64) {
	age := min((max(now, made)-made)/1000, skipMaxAge)
	since := min((max(now, skipOrigin)-skipOrigin)/1000, skipMaxSeconds)
	orders := func(n uint64) uint64 { return skipTo(n, age, since, skipOrdersPerSecond, skipOrders) }
	for i := range t.buckets {
		b := &t.buckets[i]
		if b.state == bucketAbsent {
			continue
		}
		b.orderCounter, b.versionFloor = orders(b.orderCounter), orders(b.versionFloor)
		b.sessionCounter = skipTo(b.sessionCounter, age, since, skipSessionsPerSecond, skipSessions)
		for _, objects := range b.objects {
			for _, x := range objects { // each for itself: their order shows nowhere
				x.state.bumpCounters(orders)
			}
		}
	}
}

// skipTo is where a counter goes on. While the clock is right that depends on the time of the
// restore alone, however often what the backup is of was restored before. Nothing is added to that,
// or a later restore of an older backup would go on below.
func skipTo(n, age, since, perSecond, skip uint64) uint64 {
	if least := since*perSecond + skip; n+age*perSecond <= least {
		return least
	}
	return n + age*perSecond + skip
}
