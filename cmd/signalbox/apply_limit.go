package main

import (
	"cmp"
	"context"
	"math"
	"strings"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/desired"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/spf13/cobra"
)

func readLimit(o *desired.Object, entries []desired.Entry) error {
	if err := protocol.ValidateLimitPath([]byte(o.Name)); err != nil {
		return err
	}
	c := new(cobra.Command)
	read := addLimitFlags(c)
	if err := readFlags(c, desired.Limit, entries); err != nil {
		return err
	}
	var config ratelimit.Config
	if err := read(&config); err != nil {
		return aboutKeys(o, entries, err)
	}
	root := !strings.Contains(o.Name, "/")
	switch {
	case root && config.Rate == nil:
		return o.At.Errorf("%s is a root and has no rate; give it one", o.Key)
	case !root && config.Lease != 0:
		return o.At.Errorf("%s is not a root and has no lease of its own; set it at %s", o.Key,
			protocol.LimitRoot(o.Name))
	}
	return showLimit(o, &config)
}

// thousandths is a rate on the wire.
func thousandths(rate float64) uint64 { return uint64(math.Round(rate * 1000)) }

func showLimit(o *desired.Object, c *ratelimit.Config) error {
	w := protocol.LimitConfig{Unlimited: c.Rate == nil, Min: thousandths(c.Min), Floor: thousandths(c.Floor),
		Weight: c.Weight,
		Shadow: c.Shadow, Burst: milliseconds(c.Burst), Lease: milliseconds(c.Lease)}
	rate := func(units uint64) desired.Value {
		return desired.Word(strings.TrimSuffix(protocol.LimitRate(units), "/s"))
	}
	most := desired.Word("none")
	if !w.Unlimited {
		w.Rate = thousandths(*c.Rate)
		most = rate(w.Rate)
	}
	if err := protocol.Validate(&w); err != nil {
		return err
	}
	o.Config, o.Min, o.Cap = c, w.Min, w.Min
	root := !strings.Contains(o.Name, "/")
	lease := uint64(0)
	if root {
		o.Min, o.Cap, lease = 0, w.Rate, protocol.DefaultLimitLease
	}
	burst, leased := cmp.Or(w.Burst, protocol.DefaultLimitBurst), cmp.Or(w.Lease, lease)
	weight := cmp.Or(uint64(w.Weight), 1)
	o.Settings = []desired.Setting{
		{Key: "rate", Value: most, Default: w.Unlimited},
		{Key: "min", Value: rate(w.Min), Default: w.Min == 0},
		{Key: "floor", Value: rate(w.Floor), Default: w.Floor == 0},
		{Key: "burst", Value: span(burst), Default: burst == protocol.DefaultLimitBurst},
		{Key: "weight", Value: number(weight), Default: weight == 1},
		{Key: "lease", Value: span(leased), Default: leased == lease},
		{Key: "shadow", Value: yes(w.Shadow), Default: !w.Shadow},
	}
	return nil
}

func showResource(o *desired.Object, r *ratelimit.Resource) error {
	o.Revision = r.Revision
	return showLimit(o, &r.Config)
}

func changeLimit(ctx context.Context, s *client.Session, c *desired.Change, reason string) (err error) {
	because := ratelimit.Reason(reason)
	switch c.Op {
	case desired.Create:
		_, err = ratelimit.Create(ctx, s, c.Name, *c.Want.Config.(*ratelimit.Config), because)
	case desired.Alter:
		config := *c.Want.Config.(*ratelimit.Config)
		config.Foreign = c.Have.Config.(*ratelimit.Config).Foreign
		_, err = ratelimit.Alter(ctx, s, c.Name, c.Have.Revision, config, because)
	case desired.Delete:
		err = ratelimit.Delete(ctx, s, c.Name, c.Have.Revision, because)
	}
	return err
}
