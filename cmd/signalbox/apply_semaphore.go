package main

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/desired"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/spf13/cobra"
)

// semaphoreObject describes a semaphore, of a document or a cluster.
type semaphoreObject struct {
	limit   uint64
	config  client.SemaphoreConfig
	options protocol.SemaphoreOptions // config as requests have it
}

func readSemaphore(o *desired.Object, entries []desired.Entry) error {
	if strings.HasPrefix(o.Name, client.ConfigPrefix) {
		return o.At.Errorf("semaphore %q is a configuration; write %q under configs", o.Name,
			strings.TrimPrefix(o.Name, client.ConfigPrefix))
	}
	rest, err := readData(o, entries)
	if err != nil {
		return err
	}
	c := new(cobra.Command)
	limit, flags := addLimitFlag(c), addQueueFlags(c)
	rest, named, err := namedSlots(rest)
	if err == nil {
		err = readFlags(c, desired.Semaphore, rest)
	}
	if err != nil {
		return err
	}
	if named != nil && c.Flag("slots").Changed {
		return o.At.Errorf("%s: slots and slot are both given; keep one", o.Key)
	}
	units, config, err := flags.semaphore(c, *limit, named)
	if err != nil {
		return aboutKeys(o, entries, err)
	}
	x := semaphoreObject{units, config, optionsOnWire(&config)}
	m := protocol.Create{Head: protocol.Head{Session: 1, Seq: 1}, Name: []byte(o.Name), Limit: x.limit,
		Data: o.Data, Options: &x.options}
	if err := protocol.Validate(&m); err != nil {
		return err
	}
	showSemaphore(o, &x)
	return nil
}

// optionsOnWire are the options as requests have them. Slots that leave are none of them.
func optionsOnWire(o *client.SemaphoreConfig) protocol.SemaphoreOptions {
	w := protocol.SemaphoreOptions{
		Policy: protocol.QueuePolicy(o.Policy), Aging: milliseconds(o.Aging), Numbered: o.Numbered,
		History: uint64(o.History),
		MaxHold: milliseconds(o.MaxHold), Extend: o.Extend, Preempt: protocol.PreemptMode(o.Preempt),
		Grace:   milliseconds(o.Grace),
		MinHold: milliseconds(o.MinHold),
	}
	for _, key := range slices.Sorted(maps.Keys(o.Weights)) {
		w.Weights = append(w.Weights, protocol.Weight{Key: []byte(key), Weight: o.Weights[key]})
	}
	for _, s := range o.Slots {
		if !o.Numbered && s.State != client.SlotLeaving {
			w.Slots = append(w.Slots, protocol.Slot{Name: s.Name, Labels: s.Labels})
		}
	}
	return w
}

// namedSlots takes slots that are mappings of name and labels out of the entries: a name with a
// colon cannot be told from its labels in the form of the flag. nil: there is none of them.
func namedSlots(entries []desired.Entry) (rest []desired.Entry, slots []client.Slot, err error) {
	for _, e := range entries {
		items := e.Items()
		if e.Key != "slot" || !slices.ContainsFunc(items, desired.Entry.IsMap) {
			rest = append(rest, e)
			continue
		}
		for _, item := range items {
			if !item.IsMap() {
				text, err := item.Text()
				if err != nil {
					return nil, nil, err
				}
				slots = append(slots, parseSlots([]string{text})...)
				continue
			}
			var s slotFile
			if err := readStruct(item, "a slot", reflect.ValueOf(&s).Elem()); err != nil {
				return nil, nil, err
			}
			slots = append(slots, client.Slot{Name: s.Name, Labels: s.Labels})
		}
	}
	return rest, slots, nil
}

type slotFile struct {
	Name   string   `yaml:"name"`
	Labels []string `yaml:"labels"`
}

func showSemaphore(o *desired.Object, x *semaphoreObject) {
	o.Config = x
	p, plain := &x.options, x.options
	plain.History = 0
	history := uint64(0)
	if !plain.Plain() {
		history = protocol.MaxHistory
	}
	aging := p.Policy == protocol.PolicyPriority
	limit := uint64(1)
	slots, weights := desired.List(), desired.Map()
	for _, s := range p.Slots {
		slots = desired.Append(slots, slotValue(s))
	}
	for _, w := range p.Weights {
		weights.Add(string(w.Key), number(w.Weight))
	}
	if n := len(p.Slots); n > 0 {
		limit = uint64(n)
	}
	numbered := uint64(0)
	if p.Numbered {
		numbered, limit = x.limit, x.limit
	}
	o.Settings = []desired.Setting{
		{Key: "limit", Value: number(x.limit), Default: x.limit == limit},
		{Key: "policy", Value: desired.Word(policies.word(client.Policy(p.Policy))),
			Default: p.Policy == protocol.PolicyFIFO},
		{Key: "aging", Value: span(p.Aging),
			Default: !aging || p.Aging == uint64(client.DefaultAging/time.Millisecond)},
		{Key: "weight", Value: weights, Default: len(p.Weights) == 0},
		{Key: "slots", Value: number(numbered), Default: !p.Numbered},
		{Key: "slot", Value: slots, Default: len(p.Slots) == 0},
		{Key: "preempt", Value: desired.Word(client.PreemptMode(p.Preempt).String()),
			Default: p.Preempt == protocol.PreemptOff},
		{Key: "grace", Value: span(p.Grace), Default: p.Grace == 0},
		{Key: "min-hold", Value: span(p.MinHold), Default: p.MinHold == 0},
		{Key: "max-hold", Value: span(p.MaxHold), Default: p.MaxHold == 0},
		{Key: "extend", Value: yes(p.Extend), Default: !p.Extend},
		{Key: "history", Value: number(p.History), Default: p.History == history},
	}
}

// slotValue is a slot as a document has it.
func slotValue(s protocol.Slot) desired.Value {
	if strings.Contains(s.Name, ":") {
		v := desired.Map()
		v.Add("name", desired.Text(s.Name))
		if len(s.Labels) > 0 {
			v.Add("labels", desired.Texts(s.Labels))
		}
		return v
	}
	if len(s.Labels) > 0 {
		return desired.Text(s.Name + ":" + strings.Join(s.Labels, ","))
	}
	return desired.Text(s.Name)
}

func changeSemaphore(ctx context.Context, s *client.Session, c *desired.Change, reason string) error {
	because := client.Reason(reason)
	if c.Op == desired.Delete {
		return s.Delete(ctx, c.Name, false, because)
	}
	want := c.Want.Config.(*semaphoreObject)
	config := want.config
	if config.History == 0 {
		config.History = client.NoHistory
	}
	if c.Op == desired.Create {
		return s.Create(ctx, c.Name, want.limit, c.Want.Data, config, because)
	}
	have := c.Have.Config.(*semaphoreObject)
	steps := []func() error{
		func() error {
			if slices.IndexFunc(c.Fields, func(f desired.Field) bool { return f.Name != "limit" && f.Name != "data" }) < 0 {
				return nil
			}
			return s.Alter(ctx, c.Name, func(now *client.SemaphoreConfig) { *now = config }, because)
		},
		func() error {
			if want.limit == have.limit || len(want.options.Slots) > 0 { // the limit is that of the slots
				return nil
			}
			return s.Resize(ctx, c.Name, want.limit, because)
		},
	}
	if len(want.options.Slots) == 0 && want.options.Fit(have.limit) != "" { // only with the new limit
		slices.Reverse(steps)
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	if c.Want.HasData && string(c.Want.Data) != string(c.Have.Data) {
		_, err := s.Update(ctx, c.Name, c.Want.Data, because)
		return err
	}
	return nil
}
