package ratelimit

// demand is the rate that a leaf wants: an average of what its callers attempt, and a fifth more.
type demand struct {
	attempted uint64  // when the average was taken
	at        int64   // that time
	average   float64 // thousandths of a unit per second
	largest   uint64  // call since then

	// What the last refresh said.
	reported, need uint64
	waiting        bool

	waited bool // calls waited before the last look
}

// demandMemory is the memory of the average, in ns, and idleAfter the time without a call after
// which there is no demand.
const (
	demandMemory = 1e9
	idleAfter    = int64(5e8)
)

// rush is how many calls show that more of them come, not only sooner. With fewer the average of ten
// calls a second would go up and down, and with it the shares of all. Of sure times as many nobody
// doubts the rate.
const rush, sure = 16, 4

// rushOf is the amount of a rush. need is 0 if nobody has called yet; no call has less than a unit.
func rushOf(need uint64) uint64 { return rush * max(need, 1000) }

// next is the average, with the attempts until now. need is the largest call since the last
// refresh.
func (d *demand) next(now int64, attempted, need uint64) float64 {
	passed := float64(now - d.at)
	if d.at == 0 || passed < 1e7 {
		return d.average
	}
	need = max(need, d.largest)
	rate := float64(attempted-d.attempted) / passed * 1e9
	weight := passed / demandMemory
	if d.fell(passed, attempted, need) {
		weight *= 2
	}
	if rate > d.average && d.enough(attempted, need) { // the more calls show it, the sooner it is believed
		weight = max(weight, float64(attempted-d.attempted)/float64(sure*rushOf(need)))
		if rate > 2*d.average {
			weight = 1 // callers that begin are not to wait for the average
		}
	}
	if d.average == 0 && rate > 0 {
		weight = 1
		if passed < demandMemory && !d.enough(attempted, need) {
			rate *= passed / demandMemory // a first call says that there is one, and not how soon the next one comes
		}
	}
	return d.average + (rate-d.average)*min(weight, 1)
}

func demandOf(average float64) uint64 { return uint64(min(average*1.2, 1e15)) }

// enough reports whether there were calls enough for an average.
func (d *demand) enough(attempted, need uint64) bool {
	return attempted-d.attempted >= rushOf(need)
}

// fell reports whether many calls did not come: half of what the average says, or of very many a
// quarter. That is believed after half of the memory.
func (d *demand) fell(passed float64, attempted, need uint64) bool {
	expected, came := d.average*passed/1e9, float64(attempted-d.attempted)
	return expected >= float64(rushOf(need)) && came < expected/2 ||
		expected >= float64(sure*rushOf(need)) && came < expected*3/4
}

// look returns the demand, and takes the average if there was enough for it: calls, or time.
func (d *demand) look(now int64, attempted, need uint64) uint64 {
	average := d.next(now, attempted, need)
	d.largest = max(d.largest, need)
	passed := now - d.at
	if d.at == 0 || passed >= demandMemory || passed >= 1e7 && d.enough(attempted, d.largest) ||
		passed >= demandMemory/2 && d.fell(float64(passed), attempted, d.largest) {
		d.average, d.attempted, d.at, d.largest = average, attempted, now, 0
	}
	return demandOf(average)
}

// changed reports whether the server is to hear at once of what callers want now: a quarter more than
// it knows of, or less for the length of the memory; calls that wait, or do not any more; a call
// that is too large for the lease; that there are no calls any more. Without it a client at its
// limit would refresh with each call that is denied.
func (d *demand) changed(now int64, l *leaf) bool {
	l.sees(now)
	need := l.largest()
	wants := demandOf(d.next(now, l.attempted(), need))
	d.waited, l.lately = l.lately, l.lacking()
	passed := now - d.at
	return byQuarter(wants, d.reported) ||
		byQuarter(d.reported, wants) && (passed >= demandMemory ||
			passed >= demandMemory/2 && d.fell(float64(passed), l.attempted(), max(need, d.largest))) ||
		d.waited != d.waiting || need > l.burst && need > d.need && l.rate > 0 ||
		d.reported > 0 && l.idle(now)
}

// byQuarter reports whether a rate is more than a quarter above another.
func byQuarter(rate, than uint64) bool { return rate > than && rate-than > than/4 }

// patience is for how long nobody has to look whether it changed, in ns, unless a call says so. 0:
// for ever.
func (d *demand) patience() int64 {
	switch {
	case d.waiting:
		return demandGap
	case d.reported > 0:
		return idleAfter
	}
	return 0
}
