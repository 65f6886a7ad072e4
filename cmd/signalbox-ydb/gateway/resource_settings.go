package gateway

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_RateLimiter"

	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/protocol"
)

// resourceSettings are the settings of a resource as a client gave them; 0 is not set. The
// prefetching of YDB's hosts has the length of leases as its counterpart: how much of the rate is
// taken in advance.
type resourceSettings struct{ rate, burst, prefetch, watermark float64 }

// settingsIn are those of a request.
func settingsIn(r *Ydb_RateLimiter.Resource) (s resourceSettings, err error) {
	d := r.GetHierarchicalDrr()
	if d == nil {
		return s, protocol.Errorf(protocol.StatusBadRequest,
			"resource %q has no settings of its algorithm; set hierarchical_drr",
			r.GetResourcePath())
	}
	s = resourceSettings{d.GetMaxUnitsPerSecond(), d.GetMaxBurstSizeCoefficient(), d.GetPrefetchCoefficient(),
		d.GetPrefetchWatermark()}
	for _, x := range []struct {
		name        string
		value       float64
		least, most float64
	}{
		{"max_units_per_second", s.rate, 0, protocol.MaxLimitRate / 1000},
		{"max_burst_size_coefficient", s.burst, 0, protocol.MaxLimitBurst / 1000},
		{"prefetch_coefficient", s.prefetch, -math.MaxFloat64, math.MaxFloat64},
		{"prefetch_watermark", s.watermark, 0, 1},
	} {
		if !(x.value >= x.least && x.value <= x.most) {
			return s, protocol.Errorf(protocol.StatusBadRequest, "%s is %v; it must be %v to %v", x.name, x.value, x.least,
				x.most)
		}
	}
	return s, nil
}

// in is a configuration with these settings in place of its own. Only a root has a lease.
func (s resourceSettings) in(c ratelimit.Config, root bool) ratelimit.Config {
	c.Rate, c.Burst, c.Lease, c.Foreign = nil, s.burstTime(), 0, s.text()
	if s.rate > 0 {
		c.Rate = ratelimit.PerSecond(s.rate)
	}
	if root {
		c.Lease = s.lease()
	}
	return c
}

// burstTime is the burst as a time of the rate; 0: the default, which is YDB's.
func (s resourceSettings) burstTime() time.Duration {
	if s.burst == 0 {
		return 0
	}
	return max(time.Duration(math.Round(s.burst*1000))*time.Millisecond, time.Millisecond)
}

// lease is the length of leases: a coefficient of 2 is two seconds of the rate.
func (s resourceSettings) lease() time.Duration {
	const least, most = protocol.MinLimitLease * time.Millisecond, protocol.MaxLimitLease * time.Millisecond
	switch {
	case s.prefetch == 0:
		return 0
	case s.prefetch >= most.Seconds():
		return most
	}
	return max(time.Duration(s.prefetch*1000)*time.Millisecond, least)
}

// settingsFormat is the form in which the cluster keeps the settings.
const settingsFormat = "ydb %g %g %g %g"

func (s resourceSettings) text() string {
	return fmt.Sprintf(settingsFormat, s.rate, s.burst, s.prefetch, s.watermark)
}

// settingsOf are the settings of a resource. What signalbox's own clients have changed since is as
// it is, and so is all of a resource that was not made by a gateway.
func settingsOf(c *ratelimit.Config, root bool) (s resourceSettings) {
	n, err := fmt.Sscanf(c.Foreign, settingsFormat, &s.rate, &s.burst, &s.prefetch, &s.watermark)
	if err != nil || n != 4 {
		s = resourceSettings{}
	}
	e := s.in(ratelimit.Config{}, root)
	rate := 0.
	if c.Rate != nil {
		rate = *c.Rate
	}
	if math.Abs(rate-s.rate) >= 0.001 { // the cluster's are thousandths
		s.rate = rate
	}
	if def := time.Second; cmp.Or(c.Burst, def) != cmp.Or(e.Burst, def) {
		s.burst = c.Burst.Seconds()
	}
	if def := protocol.DefaultLimitLease * time.Millisecond; root && cmp.Or(c.Lease, def) != cmp.Or(e.Lease, def) {
		s.prefetch = c.Lease.Seconds()
	}
	return s
}

func (s resourceSettings) message(path string) *Ydb_RateLimiter.Resource {
	return &Ydb_RateLimiter.Resource{ResourcePath: path, Type: &Ydb_RateLimiter.Resource_HierarchicalDrr{
		HierarchicalDrr: &Ydb_RateLimiter.HierarchicalDrrSettings{MaxUnitsPerSecond: s.rate,
			MaxBurstSizeCoefficient: s.burst,
			PrefetchCoefficient:     s.prefetch, PrefetchWatermark: s.watermark}}}
}
