package main

import (
	"encoding/base64"
	"errors"
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/client/rollout"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/desired"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/file"
	track "github.com/signalbox-dev/signalbox/shard/rollout"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// documentForms read the settings of objects in documents with the flags of the verbs that make the
// same objects. So a document takes what these verbs take, and says the same about what is wrong.
var documentForms = desired.Forms{
	desired.Node: readNode, desired.Semaphore: readSemaphore, desired.Config: readConfigObject,
	desired.Limit: readLimit, desired.Rollout: readRollout,
}

// readFlags sets flags from the entries of an object. A repeated flag is a list, one of KEY=N a
// map.
func readFlags(c *cobra.Command, kind desired.Kind, entries []desired.Entry) error {
	for _, e := range entries {
		f := c.Flag(e.Key)
		if f == nil {
			return e.At.Errorf("unknown key %q; a %s has %s", e.Key, kind, strings.Join(keysOf(c, kind), ", "))
		}
		texts, err := flagTexts(f, e)
		if err != nil {
			return err
		}
		for _, text := range texts {
			if err := c.Flags().Set(e.Key, text); err != nil {
				var invalid *pflag.InvalidValueError
				var number *strconv.NumError
				switch {
				case !errors.As(err, &invalid):
				case errors.As(err, &number):
					return e.ValueAt().Errorf("%s %q is %s", e.Key, text, notOfType(f))
				default:
					err = invalid.Unwrap()
				}
				return e.ValueAt().Errorf("%s %v", e.Key, err)
			}
		}
	}
	return nil
}

// keysOf are the keys that objects of a kind have in documents.
func keysOf(c *cobra.Command, kind desired.Kind) (keys []string) {
	c.Flags().VisitAll(func(f *pflag.Flag) { keys = append(keys, f.Name) })
	if kind == desired.Semaphore || kind == desired.Config {
		keys = append(keys, dataKeys...)
	}
	slices.Sort(keys)
	return keys
}

// flagTexts are the texts that a flag is set to.
func flagTexts(f *pflag.Flag, e desired.Entry) (texts []string, err error) {
	repeated := f.Value.Type() == "stringArray"
	if repeated && e.IsMap() {
		parts, err := e.Entries(e.Key)
		for _, p := range parts {
			text, wrong := p.Text()
			if wrong != nil {
				return nil, wrong
			}
			texts = append(texts, p.Key+"="+text)
		}
		return texts, err
	}
	for _, x := range e.Items() {
		text, err := x.Text()
		if err != nil {
			return nil, err
		}
		if texts = append(texts, text); !repeated && len(texts) > 1 {
			return nil, e.ValueAt().Errorf("%s has a single value", e.Key)
		}
	}
	return texts, nil
}

var flagDashes = regexp.MustCompile(`--([a-z])`)

// aboutKeys is an error about flags as one about the keys of a document, at the key that it begins
// with.
func aboutKeys(o *desired.Object, entries []desired.Entry, err error) error {
	var placed *desired.Error
	if err == nil || errors.As(err, &placed) {
		return err
	}
	text := flagDashes.ReplaceAllString(err.Error(), "$1")
	first, _, _ := strings.Cut(text, " ")
	for _, e := range entries {
		if e.Key == first {
			return e.ValueAt().Errorf("%s", text)
		}
	}
	return o.At.Errorf("%s: %s", o.Key, text)
}

// dataKeys are the keys for data.
var dataKeys = []string{"data", "data-file", "data-base64"}

// readData takes the data of an object out of its entries. A file is beside the document that names
// it.
func readData(o *desired.Object, entries []desired.Entry) (rest []desired.Entry, err error) {
	for _, e := range entries {
		if !slices.Contains(dataKeys, e.Key) {
			rest = append(rest, e)
			continue
		}
		if o.HasData {
			return nil, e.At.Errorf("%s is given beside another key for data; keep one", e.Key)
		}
		text, err := e.Text()
		if err != nil {
			return nil, err
		}
		switch o.HasData, o.Data = true, []byte(text); e.Key {
		case "data-file":
			if !filepath.IsAbs(text) && e.At.File != standardInput {
				text = filepath.Join(filepath.Dir(e.At.File), text)
			}
			if o.Data, err = file.Read(text, maxRead); err != nil {
				return nil, e.ValueAt().Errorf("cannot read the data: %v", err)
			}
		case "data-base64":
			if o.Data, err = base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), "")); err != nil {
				return nil, e.ValueAt().Errorf("data-base64 is not base64")
			}
		}
	}
	return rest, nil
}

func yes(on bool) desired.Value { return desired.Word(strconv.FormatBool(on)) }

// span is a duration of ms.
func span(ms uint64) desired.Value { return shortSpan(time.Duration(ms) * time.Millisecond) }

func shortSpan(d time.Duration) desired.Value {
	text, _ := fileDuration(d).MarshalText()
	return desired.Word(string(text))
}

func number(n uint64) desired.Value { return desired.Word(cell(amount(n))) }

// Nodes.

// nodeObject is what a document and a cluster have of a node.
type nodeObject struct {
	config admin.NodeConfig // effective
	tier   string           // of a new node; empty: the default
}

func readNode(o *desired.Object, entries []desired.Entry) error {
	c := new(cobra.Command)
	var x nodeObject
	c.Flags().StringVar(&x.tier, "tier", "", "")
	given := nodeFlags(c.Flags(), "")
	if err := readFlags(c, desired.Node, entries); err != nil {
		return err
	}
	var err error
	if x.config, err = given.Effective(); err != nil {
		return err
	}
	showNode(o, &x)
	return nil
}

var defaultNode, _ = admin.NodeConfig{}.Effective()

func showNode(o *desired.Object, x *nodeObject) {
	x.config.Foreign = nil // it stays
	o.Config = x
	o.Settings = []desired.Setting{{Key: "tier", Value: desired.Text(x.tier), Default: x.tier == ""}}
	for _, f := range nodeFields {
		v, def := nodeValue(f.value(&x.config)), nodeValue(f.value(&defaultNode))
		o.Settings = append(o.Settings, desired.Setting{Key: f.flag, Value: v, Default: v.String() == def.String()})
	}
}

func nodeValue(v any) desired.Value {
	if d, ok := v.(time.Duration); ok {
		return shortSpan(d)
	}
	return desired.Word(cell(v))
}

// Semaphores.

// semaphoreObject is what a document and a cluster have of a semaphore.
type semaphoreObject struct {
	limit   uint64
	options protocol.SemaphoreOptions
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
	units, options, err := flags.semaphore(c, *limit, named)
	if err != nil {
		return aboutKeys(o, entries, err)
	}
	x := semaphoreObject{units, optionsOnWire(&options)}
	m := protocol.Create{Head: protocol.Head{Session: 1, Seq: 1}, Name: []byte(o.Name), Limit: x.limit,
		Data: o.Data, Options: &x.options}
	if err := m.Validate(); err != nil {
		return err
	}
	showSemaphore(o, &x)
	return nil
}

// optionsOnWire are the options as requests have them. Slots that leave are none of them.
func optionsOnWire(o *client.SemaphoreOptions) protocol.SemaphoreOptions {
	w := protocol.SemaphoreOptions{
		Policy: protocol.QueuePolicy(o.Policy), Aging: milliseconds(o.Aging), Numbered: o.Numbered, History: uint64(o.History),
		MaxHold: milliseconds(o.MaxHold), Extend: o.Extend, Preempt: protocol.PreemptMode(o.Preempt), Grace: milliseconds(o.Grace),
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

// Configurations.

func readConfigObject(o *desired.Object, entries []desired.Entry) error {
	rest, err := readData(o, entries)
	if err == nil {
		err = readFlags(new(cobra.Command), desired.Config, rest)
	}
	switch {
	case err != nil:
		return err
	case !o.HasData:
		return o.At.Errorf("%s has no data; give it data, data-file or data-base64", o.Key)
	case o.Name == "" || len(client.ConfigPrefix+o.Name) > protocol.MaxNameLen:
		return o.At.Errorf("name of a config is %d bytes long; it must be 1 to %d", len(o.Name),
			protocol.MaxNameLen-len(client.ConfigPrefix))
	case len(o.Data) > client.MaxConfigLen:
		return o.At.Errorf("%s has %d bytes of data; at most %d are allowed", o.Key, len(o.Data), client.MaxConfigLen)
	}
	return nil
}

// Rate limits.

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
	if err := w.Validate(); err != nil {
		return err
	}
	o.Config, o.Min, o.Cap = c, w.Min, w.Min
	root := !strings.Contains(o.Name, "/")
	lease := uint64(0)
	if root {
		o.Min, o.Cap, lease = 0, w.Rate, protocol.DefaultLimitLease
	}
	orDefault := func(v, def uint64) uint64 {
		if v == 0 {
			return def
		}
		return v
	}
	burst, weight := orDefault(w.Burst, protocol.DefaultLimitBurst), orDefault(uint64(w.Weight), 1)
	leased := orDefault(w.Lease, lease)
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

// milliseconds is a duration on the wire, which rounds it up.
func milliseconds(d time.Duration) uint64 {
	return uint64((d + time.Millisecond - 1) / time.Millisecond)
}

// Rollouts.

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
	if err := m.Validate(); err != nil {
		return err
	}
	return showRollout(o, &config)
}

// readStruct reads a mapping into a struct whose fields have its keys as the tags of YAML.
func readStruct(e desired.Entry, what string, to reflect.Value) error {
	entries, err := e.Entries(what)
	if err != nil {
		return err
	}
	return readFields(entries, what, to)
}

func readFields(entries []desired.Entry, what string, to reflect.Value) error {
	fields, keys := map[string]reflect.Value{}, []string{}
	for i := range to.NumField() {
		key, _, _ := strings.Cut(to.Type().Field(i).Tag.Get("yaml"), ",")
		fields[key], keys = to.Field(i), append(keys, key)
	}
	for _, e := range entries {
		field, ok := fields[e.Key]
		if !ok {
			return e.At.Errorf("unknown key %q; %s has %s", e.Key, what, strings.Join(keys, ", "))
		}
		if err := readField(e, field); err != nil {
			return err
		}
	}
	return nil
}

func readField(e desired.Entry, to reflect.Value) error {
	if to.Kind() == reflect.Slice {
		for _, item := range e.Items() {
			x := reflect.New(to.Type().Elem()).Elem()
			if err := readItem(item, x); err != nil {
				return err
			}
			to.Set(reflect.Append(to, x))
		}
		return nil
	}
	return readItem(e, to)
}

// readItem reads a value that is no list.
func readItem(e desired.Entry, to reflect.Value) error {
	if to.Kind() == reflect.Struct {
		return readStruct(e, "one of "+e.Key, to)
	}
	text, err := e.Text()
	if err != nil {
		return err
	}
	switch {
	case to.Type() == reflect.TypeFor[fileDuration]():
		var d time.Duration
		d, err = readDuration(text)
		to.SetInt(int64(d))
	case to.Kind() == reflect.Bool:
		on, wrong := strconv.ParseBool(text)
		if wrong != nil {
			return e.ValueAt().Errorf("%s %q is neither true nor false", e.Key, text)
		}
		to.SetBool(on)
	case to.CanUint():
		n, wrong := strconv.ParseUint(text, 10, to.Type().Bits())
		if wrong != nil {
			return e.ValueAt().Errorf("%s %q is not a whole number from 0", e.Key, text)
		}
		to.SetUint(n)
	default:
		to.SetString(text)
	}
	if err != nil {
		return e.ValueAt().Errorf("%s %v", e.Key, err)
	}
	return nil
}

// trackOf is a config on the wire.
func trackOf(c *rollout.Config) protocol.TrackConfig {
	w := protocol.TrackConfig{
		Source: c.Source, DelayFrom: c.DelayFrom, ExplicitCodes: c.ExplicitCodes, ImplicitAfter: milliseconds(c.ImplicitAfter),
		ImplicitAttempts: c.ImplicitAttempts, StallTimeout: milliseconds(c.StallTimeout), AutoDemote: c.AutoDemote,
		SkipEmptyAfter: milliseconds(c.SkipEmptyAfter), ReelectMinInterval: milliseconds(c.ReelectMinInterval),
		MinAdvanceInterval: milliseconds(c.MinAdvanceInterval), Retention: milliseconds(c.Retention), KeepRemoved: c.KeepRemoved,
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
