package ratelimit

// demand is the rate that a leaf wants: an average of what its callers attempt, and a fifth more.
type demand struct {
	attempted uint64 // when it was last looked at
	at        int64
	average   float64 // thousandths of a unit per second
	reported  uint64
}

// memory of the average, in seconds.
const demandMemory = 1.0

// look notes how much was attempted until now, and returns the demand.
func (d *demand) look(now int64, attempted uint64) uint64 {
	passed := float64(now-d.at) / 1e9
	if d.at == 0 {
		d.attempted, d.at = attempted, now
		return 0
	}
	if passed > 0.01 {
		rate := float64(attempted-d.attempted) / passed
		d.average += (rate - d.average) * min(passed/demandMemory, 1)
		if rate > d.average { // callers that begin are not to wait for the average
			d.average = rate
		}
		d.attempted, d.at = attempted, now
	}
	d.reported = uint64(min(d.average*1.2, 1e15))
	return d.reported
}
