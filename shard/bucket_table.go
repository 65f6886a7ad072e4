package shard

import "github.com/signalbox-dev/signalbox/protocol"

// bucketTable has all buckets of the shard's tier, and says which of them the shard serves.
type bucketTable struct {
	tier      uint8
	buckets   []bucket // by number; empty until the first CmdBuckets
	copyCount uint64   // of how many of them this shard has a copy

	// tokenFloor is the highest floor of any node that came. Invariant: no copy's counters of order
	// ids and versions are below it, unless the copy is going.
	tokenFloor uint64

	// highestVersion is not below the version of any semaphore's data. It is no part of the state.
	highestVersion uint64
}

// noteVersion notes the version of a semaphore's data.
func (t *bucketTable) noteVersion(version uint64) { t.highestVersion = max(t.highestVersion, version) }

// maxTokenFloor bounds floors: an order counter that is raised never overflows.
const maxTokenFloor = 1 << 62

// raiseTokens has every copy of a bucket give out order ids and versions above floor. Copies that
// come later begin above it too.
func (t *bucketTable) raiseTokens(floor uint64) {
	if floor <= t.tokenFloor {
		return
	}
	t.tokenFloor = floor
	for i := range t.buckets {
		if b := &t.buckets[i]; b.state != bucketAbsent {
			b.raiseCounters(floor)
		}
	}
}

// HighestToken returns the highest number that the shard may have given out to fence clients, in any
// bucket, those that have left it included: an order id, a version, or what an object hands out.
func (t *bucketTable) HighestToken() (highest uint64) {
	highest = t.highestVersion
	for i := range t.buckets {
		highest = max(highest, t.buckets[i].highestOrder(), t.buckets[i].versionFloor)
	}
	return highest
}

// highestOrder returns the highest order id given, or what an object handed out like one.
func (b *bucket) highestOrder() uint64 {
	highest := b.orderCounter
	for _, objects := range b.objects {
		for _, x := range objects { // the highest of all: their order does not matter
			highest = max(highest, x.state.highest())
		}
	}
	return highest
}

// Tier is the tier the shard's buckets belong to, and how many buckets the tier has; 0 before the
// first CmdBuckets.
func (t *bucketTable) Tier() (tier uint8, total uint32) { return t.tier, uint32(len(t.buckets)) }

// Bucket is the epoch of a bucket's copy here, and whether it is active here.
func (t *bucketTable) Bucket(b uint32) (epoch uint64, active bool) {
	if uint64(b) >= uint64(len(t.buckets)) {
		return 0, false
	}
	return t.buckets[b].epoch, t.buckets[b].state == bucketActive
}

// Owned is the epoch of a copy that serves the bucket, or served it until it was frozen for a move.
func (t *bucketTable) Owned(b uint32) (epoch uint64, ok bool) {
	epoch, active := t.Bucket(b)
	return epoch, active || uint64(b) < uint64(len(t.buckets)) && t.buckets[b].state == bucketFrozen
}

// ensure makes the table with the first command that names buckets. It is false for buckets of
// another tier.
func (t *bucketTable) ensure(x *BucketsBody) bool {
	if len(t.buckets) == 0 {
		t.tier = x.Tier
		t.buckets = make([]bucket, x.Total)
		for i := range t.buckets {
			t.buckets[i].number = uint32(i)
		}
	}
	return t.tier == x.Tier && uint32(len(t.buckets)) == x.Total
}

// activeBucket is the bucket a name belongs to, nil if it is not active here.
func (t *bucketTable) activeBucket(node uint64, name []byte) *bucket {
	if len(t.buckets) == 0 {
		return nil
	}
	b := &t.buckets[protocol.Bucket(node, name, uint32(len(t.buckets)))]
	if b.state != bucketActive {
		return nil
	}
	return b
}

// activeHomeBucket is the home bucket of a session id, nil if it is not active here.
func (t *bucketTable) activeHomeBucket(session uint64) *bucket {
	number := protocol.SessionBucket(session)
	if protocol.SessionTier(session) != t.tier || uint64(number) >= uint64(len(t.buckets)) ||
		t.buckets[number].state != bucketActive {
		return nil
	}
	return &t.buckets[number]
}

// homeBucketOf is the home bucket of a session, nil for an id that cannot be at home here.
func (t *bucketTable) homeBucketOf(s *homeSession) *bucket {
	if number := protocol.SessionBucket(s.id); protocol.SessionTier(s.id) == t.tier &&
		uint64(number) < uint64(len(t.buckets)) {
		return &t.buckets[number]
	}
	return nil
}

// objectBucket is the bucket of an object's name; the shard must know its tier.
func (t *bucketTable) objectBucket(kind kindNumber, node uint64, name []byte) *bucket {
	return &t.buckets[hostedKinds[kind].bucket(node, name, uint32(len(t.buckets)))]
}

// activeObjectBucket is the bucket of an object's name, or nil when it is not active here.
func (t *bucketTable) activeObjectBucket(kind kindNumber, node uint64, name []byte) *bucket {
	if len(t.buckets) == 0 {
		return nil
	}
	if b := t.objectBucket(kind, node, name); b.state == bucketActive {
		return b
	}
	return nil
}

// timersOf is the bucket whose timers a record's is among, nil for those of the machine.
func (t *bucketTable) timersOf(rec scheduled) *bucket {
	switch x := rec.(type) {
	case *entry:
		return x.semaphore.bucket
	case *homeSession:
		return t.homeBucketOf(x)
	case *hostedObject:
		return x.bucket
	}
	return nil
}

// countCopies counts the buckets of which this shard has a copy in any state.
func (t *bucketTable) countCopies() (n uint64) {
	for i := range t.buckets {
		if t.buckets[i].state != bucketAbsent {
			n++
		}
	}
	return n
}

// activeRuns lists the buckets that a snapshot or a list covers: the active ones. It uses the
// memory of runs again.
func (t *bucketTable) activeRuns(runs []protocol.BucketRun) []protocol.BucketRun {
	runs = runs[:0]
	for i := range t.buckets {
		epoch := uint64(0)
		if b := &t.buckets[i]; b.state == bucketActive {
			epoch = b.epoch
		}
		if n := len(runs); n > 0 && runs[n-1].Epoch == epoch {
			runs[n-1].Count++
		} else {
			runs = append(runs, protocol.BucketRun{Count: 1, Epoch: epoch})
		}
	}
	return runs
}

// homeIDsBelow is below every id of a session at home in the bucket.
func (t *bucketTable) homeIDsBelow(bucket uint32) uint64 {
	return protocol.MakeSessionID(t.tier, uint16(bucket), 0)
}

// lastHomeID is the highest id of a session at home in the bucket.
func (t *bucketTable) lastHomeID(bucket uint32) uint64 {
	return t.homeIDsBelow(bucket) + (protocol.MakeSessionID(0, 1, 0) - 1)
}

// homeIDs are the ids of sessions at home in a run of buckets, low excluded. There must be one.
func (t *bucketTable) homeIDs(first, count uint32) (low, high uint64) {
	return t.homeIDsBelow(first), t.lastHomeID(first + count - 1)
}

// idRange is the ids of the sessions at home in a range of buckets, low excluded.
type idRange struct{ low, high uint64 }

// homeIDRanges are the ids at home in buckets whose copies are in such a state.
func (t *bucketTable) homeIDRanges(is func(bucketState) bool) (out []idRange) {
	for i := range t.buckets {
		if !is(t.buckets[i].state) {
			continue
		}
		low, high := t.homeIDsBelow(uint32(i)), t.lastHomeID(uint32(i))
		if n := len(out); n > 0 && out[n-1].high+1 == low {
			out[n-1].high = high
		} else {
			out = append(out, idRange{low, high})
		}
	}
	return out
}

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
// order id, process epoch or token would fence nothing off, a repeated version would name other
// data, and a repeated session id would name two clients' sessions. A session that began after the
// backup counts as ended. It is not for a machine that a log is applied to.
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
