package request

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
)

// quotaCharge classifies a request for its node's quota of requests a second. The quota leaves room
// for the clients of other nodes; it must not cost a client its session, nor keep it from releasing
// units, for that would hurt the clients that wait for them.
type quotaCharge uint8

const (
	chargeNone quotaCharge = iota // not of one node, or an operator's: not counted
	// keeps, answers, releases or ends something: counted, so that others of the node come later,
	// and never refused
	chargeAlways
	chargeAsk // everything else: counted, and refused when there is nothing left
)

// Rate holds a node to its quota of requests a second on this instance: a bucket of one second's
// requests that fills evenly. All loops share it, by one atomic word.
//
// It is the generic cell rate algorithm: fullAt is when the bucket would be full again. Each
// request moves that by one interval, and is within the quota while it stays within a second from
// now. A request that is never refused may move it by one more second at most.
type Rate struct {
	Quota    uint64
	interval time.Duration // rounded up: the quota is never exceeded, and fallen short of by 1 % at most
	text     string
	fullAt   atomic.Int64   // by the server's clock
	refused  *atomic.Uint64 // of the node: see Routes.Refused
}

func newRate(quota uint64) *Rate {
	return &Rate{
		Quota: quota, interval: (time.Second + time.Duration(quota) - 1) / time.Duration(quota),
		text: fmt.Sprintf("node has made as many requests as its quota max_requests allows, "+
			"%d a second on each instance; retry later, or raise the quota", quota),
		refused: new(atomic.Uint64),
	}
}

// take counts a request at this time. It reports false if the request must be refused. A request
// that is never refused first draws on the next second; take is false once that is used up too.
func (r *Rate) take(now time.Duration, c quotaCharge) bool {
	room := int64(r.interval) * int64(r.Quota)
	if c == chargeAlways {
		room *= 2
	}
	for {
		was := r.fullAt.Load()
		next := max(was, int64(now)) + int64(r.interval)
		if next-int64(now) > room {
			if c != chargeAlways {
				r.refused.Add(1)
			}
			return false
		}
		if r.fullAt.CompareAndSwap(was, next) {
			return true
		}
	}
}

// chargeQuota counts a request against its node's quota. It returns false if the request was
// refused, and answered. While no node has such a quota it costs a look at the map.
func chargeQuota(c *Client, p *cycle, h protocol.Header, node uint64) bool {
	rates := c.server.Routes().Rates
	if len(rates) == 0 {
		return true
	}
	r, charge := rates[node], c.server.kinds[h.Kind].charge
	if r == nil || charge == chargeNone || r.take(p.now, charge) {
		return true
	}
	if charge == chargeAlways {
		// It is served; a connection that sends nothing else is paused. Attaches do not count: ten
		// thousand sessions that come back together must not wait.
		if h.Kind != protocol.KindSessionAttach {
			c.CountRejection()
		}
		return true
	}
	p.out.Fail(c, h.Kind, h.ID, protocol.StatusOverloaded, r.text)
	return false
}

// setRates makes the rates of the map's nodes. Those that stay as they are go on as they were. What
// was refused stays counted as long as there is the node, whatever becomes of its quota.
func (r *Routes) setRates(former *Routes) {
	for node, n := range former.Refused {
		if !r.State.NodeDropped(node) {
			r.countRefused(node, n)
		}
	}
	for n := range r.State.NodesWithQuota() {
		quota := n.Config.MaxRequests
		rate := former.Rates[n.ID]
		if rate == nil || rate.Quota != quota {
			rate = newRate(quota)
			if refused := r.Refused[n.ID]; refused != nil {
				rate.refused = refused
			}
		}
		if r.Rates == nil {
			r.Rates = make(map[uint64]*Rate)
		}
		r.Rates[n.ID] = rate
		r.countRefused(n.ID, rate.refused)
	}
}

func (r *Routes) countRefused(node uint64, n *atomic.Uint64) {
	if r.Refused == nil {
		r.Refused = make(map[uint64]*atomic.Uint64)
	}
	r.Refused[node] = n
}
