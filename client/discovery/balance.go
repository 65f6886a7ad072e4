package discovery

import (
	"math"
	"slices"
	"time"
)

// Rules of the balancer over HTTP.
const (
	latencyFade   = 10 * time.Second // in which an average forgets
	leastLatency  = 100 * time.Microsecond
	failureRest   = time.Second
	failuresEject = 5 // in a row
	ejectMin      = 10 * time.Second
	ejectMax      = time.Minute
	retryShare    = 0.1 // of requests
	retriesInHand = 20
	pickWindow    = 64 // endpoints in a row that a request chooses from
)

// balance is what a caller knows of a service's endpoints. It is pure: times and random numbers are
// arguments.
type balance struct {
	backends []*load
	retries  float64 // in hand
}

// load is one endpoint, as the caller's own requests see it.
type load struct {
	backend  *backend // whose load it is; nil in tests
	weight   int
	inFlight int
	latency  time.Duration // average; 0: unknown
	measured time.Time

	failures int       // in a row
	failed   time.Time // the last of them
	ejected  bool
	until    time.Time // ejected: when one request tries it
	pause    time.Duration
	probing  bool // that request is in flight
}

func newBalance() *balance { return &balance{retries: retriesInHand} }

// pick chooses the better of two random ones of those that may be used, by the numbers in [0, 1). It
// looks at pickWindow endpoints in a row, from a random one on: a request costs no more with
// thousands of endpoints. It chooses none of failed, which have just failed; if these are all in the
// window, it looks at the next one. It is nil if there is no other one.
func (b *balance) pick(now time.Time, start, first, second float64, failed []*load) *load {
	n := len(b.backends)
	from := int(start * float64(n))
	for seen := 0; seen < n; seen += pickWindow {
		if l := b.pickWithin(now, from+seen, min(pickWindow, n-seen), first, second, failed); l != nil {
			return l
		}
	}
	return nil
}

// pickWithin is pick among count endpoints in a row; behind the last one comes the first.
func (b *balance) pickWithin(now time.Time, from, count int, first, second float64, failed []*load) *load {
	var may [pickWindow]*load // those of the best rank that is there
	best, found := notAgain, 0
	for i := range count {
		l := b.backends[(from+i)%len(b.backends)]
		switch rank := l.rank(now, failed); {
		case rank < best:
			best, found = rank, 1
			may[0] = l
		case rank == best && rank != notAgain:
			may[found] = l
			found++
		}
	}
	return choosePair(now, may[:found], first, second)
}

// notAgain is the rank of an endpoint that has just failed.
const notAgain = 3

// rank is the lower, the better it is to send a request to an endpoint. One that is ejected is better
// than none: an answer is likelier than without a try.
func (l *load) rank(now time.Time, failed []*load) int {
	switch {
	case slices.Contains(failed, l):
		return notAgain
	case !l.mayTry(now):
		return 2
	case l.failures == 0, len(failed) == 0 && l.rested(now):
		return 0
	}
	return 1
}

// choosePair chooses the better of two random ones, nil if there is none.
func choosePair(now time.Time, may []*load, first, second float64) *load {
	if len(may) == 0 {
		return nil
	}
	i := int(first * float64(len(may)))
	x := may[i]
	if len(may) > 1 {
		if y := may[(i+1+int(second*float64(len(may)-1)))%len(may)]; y.cost(now) < x.cost(now) {
			x = y
		}
	}
	x.choose()
	return x
}

// choose notes a request that is sent to an endpoint.
func (l *load) choose() {
	l.inFlight++
	l.probing = l.ejected
}

func (l *load) mayTry(now time.Time) bool { return !l.ejected || !l.probing && !now.Before(l.until) }

// rested says that an endpoint may be tried after its failures in a row, if there are others: 1 s for
// each. A connection that is refused takes no time, and would make an endpoint that is gone look
// like a fast one.
func (l *load) rested(now time.Time) bool {
	return now.Sub(l.failed) >= time.Duration(l.failures)*failureRest
}

// cost grows with what a request would wait for. A latency that was not measured for a while counts
// less and less, so that one slow answer does not keep an endpoint out of use for good. One that is
// not known yet is tried soon.
func (l *load) cost(now time.Time) float64 {
	latency := float64(l.latency) * math.Exp(-float64(now.Sub(l.measured))/float64(latencyFade))
	return float64(l.inFlight+1) * max(latency, float64(leastLatency)) / float64(l.weight)
}

// answered takes in how long an answer took.
func (l *load) answered(now time.Time, took time.Duration) {
	share := 1.0
	if l.latency > 0 {
		share = 1 - math.Exp(-float64(now.Sub(l.measured))/float64(latencyFade))
	}
	l.latency += time.Duration(share * float64(took-l.latency))
	l.measured = now
}

// result takes in whether a request failed. Never more than half of the endpoints are ejected: the
// one that is to be tried first makes room for another, because it may have come back meanwhile.
func (b *balance) result(now time.Time, l *load, failed bool) {
	l.probing = false
	if !failed {
		l.failures, l.ejected, l.pause = 0, false, 0
		return
	}
	l.failures++
	l.failed = now
	if l.failures < failuresEject || l.ejected && now.Before(l.until) {
		return
	}
	if !l.ejected {
		ejected := 1
		var first *load
		for _, x := range b.backends {
			if x.ejected {
				ejected++
				if first == nil || x.until.Before(first.until) {
					first = x
				}
			}
		}
		if 2*ejected > len(b.backends) {
			if first == nil {
				return
			}
			first.ejected = false
		}
	}
	l.pause = min(max(2*l.pause, ejectMin), ejectMax)
	l.ejected, l.until = true, now.Add(l.pause)
}

// request counts a request, which allows a share of a retry.
func (b *balance) request() { b.retries = min(b.retries+retryShare, retriesInHand) }

// retry takes a retry, if there is one in hand.
func (b *balance) retry() bool {
	if b.retries < 1 {
		return false
	}
	b.retries--
	return true
}
