package main

import (
	"context"
	"reflect"
	"slices"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/rollout"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/desired"
	"github.com/signalbox-dev/signalbox/protocol"
	track "github.com/signalbox-dev/signalbox/shard/rollout"
)

func readRollout(o *desired.Object, entries []desired.Entry) error {
	var f rolloutFile
	if err := readFields(entries, "a rollout", reflect.ValueOf(&f).Elem()); err != nil {
		return err
	}
	config, err := f.config()
	if err != nil {
		return aboutKeys(o, entries, err)
	}
	m := protocol.TrackCreate{Head: protocol.Head{Session: 1, Seq: 1}, Name: []byte(o.Name), Config: trackOf(&config)}
	if err := protocol.Validate(&m); err != nil {
		return err
	}
	return showRollout(o, &config)
}

// trackOf is a config on the wire.
func trackOf(c *rollout.Config) protocol.TrackConfig {
	w := protocol.TrackConfig{
		Source: c.Source, DelayFrom: c.DelayFrom, ExplicitCodes: c.ExplicitCodes,
		ImplicitAfter:    milliseconds(c.ImplicitAfter),
		ImplicitAttempts: c.ImplicitAttempts, StallTimeout: milliseconds(c.StallTimeout), AutoDemote: c.AutoDemote,
		SkipEmptyAfter: milliseconds(c.SkipEmptyAfter), ReelectMinInterval: milliseconds(c.ReelectMinInterval),
		MinAdvanceInterval: milliseconds(c.MinAdvanceInterval), Retention: milliseconds(c.Retention),
		KeepRemoved: c.KeepRemoved,
	}
	for _, l := range c.Locations {
		to := protocol.LocationConfig{Name: l.Name, Delay: milliseconds(l.Delay), Bake: milliseconds(l.Bake),
			Share:     l.Share,
			ShareBake: milliseconds(l.ShareBake)}
		for _, g := range l.Gates {
			to.Gates = append(to.Gates, protocol.GateConfig{Name: g.Name, Kind: g.Kind, Spec: g.Spec,
				Timeout: milliseconds(g.Timeout), Retry: milliseconds(g.Retry)})
		}
		w.Locations = append(w.Locations, to)
	}
	return w
}

func showRollout(o *desired.Object, c *rollout.Config) error {
	w, err := track.Normalize(trackOf(c))
	if err != nil {
		return err
	}
	o.Config = c
	add := func(v *desired.Value, key string, ms, def uint64) {
		if ms != def {
			v.Add(key, span(ms))
		}
	}
	locations := desired.List()
	for _, l := range w.Locations {
		v := desired.Map()
		v.Add("name", desired.Text(l.Name))
		add(&v, "delay", l.Delay, 0)
		add(&v, "bake", l.Bake, 0)
		if l.Share != 0 {
			v.Add("share", number(uint64(l.Share)))
		}
		add(&v, "share-bake", l.ShareBake, 0)
		gates := desired.List()
		for _, g := range l.Gates {
			x := desired.Map()
			x.Add("name", desired.Text(g.Name))
			if g.Kind == rollout.Webhook {
				x.Add("webhook", desired.Text(g.Spec))
			} else {
				x.Add("command", desired.Text(g.Spec))
			}
			add(&x, "timeout", g.Timeout, track.DefaultGateTimeout)
			add(&x, "retry", g.Retry, track.DefaultGateRetry)
			gates = desired.Append(gates, x)
		}
		if len(l.Gates) > 0 {
			v.Add("gates", gates)
		}
		locations = desired.Append(locations, v)
	}
	setting := func(key string, ms, def uint64) desired.Setting {
		return desired.Setting{Key: key, Value: span(ms), Default: ms == def}
	}
	o.Settings = []desired.Setting{
		{Key: "source", Value: desired.Word(sources.word(w.Source)), Default: w.Source == rollout.Published},
		{Key: "delay-from", Value: desired.Word(delaysFrom.word(w.DelayFrom)),
			Default: w.DelayFrom == rollout.Selected},
		{Key: "locations", Value: locations},
		{Key: "explicit-codes", Value: desired.Texts(w.ExplicitCodes),
			Default: slices.Equal(w.ExplicitCodes, []string{track.DefaultExplicitCode})},
		setting("implicit-after", w.ImplicitAfter, track.DefaultImplicitAfter),
		{Key: "implicit-attempts", Value: number(w.ImplicitAttempts),
			Default: w.ImplicitAttempts == track.DefaultImplicitAttempts},
		setting("stall-timeout", w.StallTimeout, track.DefaultStallTimeout),
		{Key: "auto-demote", Value: yes(w.AutoDemote), Default: !w.AutoDemote},
		setting("skip-empty-after", w.SkipEmptyAfter, 0),
		setting("reelect-min-interval", w.ReelectMinInterval, track.DefaultReelectMinInterval),
		setting("min-advance-interval", w.MinAdvanceInterval, 0),
		setting("retention", w.Retention, track.DefaultRetention),
		{Key: "keep-removed", Value: yes(w.KeepRemoved), Default: !w.KeepRemoved},
	}
	return nil
}

func changeRollout(ctx context.Context, s *client.Session, c *desired.Change) (err error) {
	t := rollout.NewTrack(s, c.Name)
	switch c.Op {
	case desired.Create:
		_, err = t.Create(ctx, *c.Want.Config.(*rollout.Config))
	case desired.Alter:
		_, err = t.Alter(ctx, c.Have.Revision, *c.Want.Config.(*rollout.Config))
	case desired.Delete:
		err = t.Delete(ctx, false)
	}
	return err
}
