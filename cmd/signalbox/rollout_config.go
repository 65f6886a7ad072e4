package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client/rollout"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// fileDuration is a duration in a rollout's file: text like 5s.
type fileDuration time.Duration

func (d *fileDuration) UnmarshalYAML(n *yaml.Node) error {
	v, err := readDuration(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: %v", n.Line, err)
	}
	*d = fileDuration(v)
	return nil
}

// MarshalText writes a duration without units that are 0, in YAML and in JSON.
func (d fileDuration) MarshalText() ([]byte, error) {
	text := time.Duration(d).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return []byte(text), nil
}

// rolloutFile is a rollout's config as a file has it. What is left out is 0, false or the default.
type rolloutFile struct {
	Source             string         `yaml:"source" json:"source"`
	DelayFrom          string         `yaml:"delay-from" json:"delay-from"`
	Locations          []locationFile `yaml:"locations" json:"locations"`
	ExplicitCodes      []string       `yaml:"explicit-codes,omitempty" json:"explicit-codes,omitempty"`
	ImplicitAfter      fileDuration   `yaml:"implicit-after,omitempty" json:"implicit-after,omitempty"`
	ImplicitAttempts   uint64         `yaml:"implicit-attempts,omitempty" json:"implicit-attempts,omitempty"`
	StallTimeout       fileDuration   `yaml:"stall-timeout,omitempty" json:"stall-timeout,omitempty"`
	AutoDemote         bool           `yaml:"auto-demote,omitempty" json:"auto-demote,omitempty"`
	SkipEmptyAfter     fileDuration   `yaml:"skip-empty-after,omitempty" json:"skip-empty-after,omitempty"`
	ReelectMinInterval fileDuration   `yaml:"reelect-min-interval,omitempty" json:"reelect-min-interval,omitempty"`
	MinAdvanceInterval fileDuration   `yaml:"min-advance-interval,omitempty" json:"min-advance-interval,omitempty"`
	Retention          fileDuration   `yaml:"retention,omitempty" json:"retention,omitempty"`
	KeepRemoved        bool           `yaml:"keep-removed,omitempty" json:"keep-removed,omitempty"`
}

type locationFile struct {
	Name      string       `yaml:"name" json:"name"`
	Delay     fileDuration `yaml:"delay,omitempty" json:"delay,omitempty"`
	Bake      fileDuration `yaml:"bake,omitempty" json:"bake,omitempty"`
	Share     uint8        `yaml:"share,omitempty" json:"share,omitempty"`
	ShareBake fileDuration `yaml:"share-bake,omitempty" json:"share-bake,omitempty"`
	Gates     []gateFile   `yaml:"gates,omitempty" json:"gates,omitempty"`
}

type gateFile struct {
	Name    string       `yaml:"name" json:"name"`
	Command string       `yaml:"command,omitempty" json:"command,omitempty"`
	Webhook string       `yaml:"webhook,omitempty" json:"webhook,omitempty"`
	Timeout fileDuration `yaml:"timeout,omitempty" json:"timeout,omitempty"`
	Retry   fileDuration `yaml:"retry,omitempty" json:"retry,omitempty"`
}

// addRolloutFlags adds the flags of create and alter. read changes a config by the flags that were
// given.
func addRolloutFlags(a *app, cmd *cobra.Command) (read func(c *rollout.Config) error) {
	fs, given := cmd.Flags(), new(rollout.Config)
	file := fs.String("file", "", "YAML file with the whole config, instead of the other flags; - is standard input.")
	locations := fs.StringArray("location", nil,
		"A location, in order: NAME, or NAME:DELAY after the previous one. Repeat for each.")
	source := parsedVar(fs, "source", "", sources.parse,
		"Source of versions: published (rollout publish; as of a new rollout), tso (timestamps of the server) or external (rollout generate).")
	delayFrom := parsedVar(fs, "delay-from", "", delaysFrom.parse,
		"Start of a delay: selected (the previous location got the version; as of a new rollout) or converged (all its leaders have loaded it).")
	fs.StringArrayVar(&given.ExplicitCodes, "explicit-code", nil,
		"A reported code that means a version is bad for everyone; a new rollout has TimestampOutOfRange. Repeat for each.")
	durationVar(fs, &given.StallTimeout, "stall-timeout", 0,
		"A location is STALLED if not all its leaders have loaded the target after this time; 0: 10m.")
	fs.BoolVar(&given.AutoDemote, "auto-demote", false, "Treat leaders that stall without an error as followers.")
	durationVar(fs, &given.SkipEmptyAfter, "skip-empty-after", 0,
		"A location without instances is skipped after this time; 0: never.")
	optional(fs, "stall-timeout", "skip-empty-after")
	return func(c *rollout.Config) (err error) {
		changes := map[string]func(){
			"location":         func() { c.Locations, err = readLocations(*locations, c.Locations) },
			"source":           func() { c.Source = *source },
			"delay-from":       func() { c.DelayFrom = *delayFrom },
			"explicit-code":    func() { c.ExplicitCodes = given.ExplicitCodes },
			"stall-timeout":    func() { c.StallTimeout = given.StallTimeout },
			"auto-demote":      func() { c.AutoDemote = given.AutoDemote },
			"skip-empty-after": func() { c.SkipEmptyAfter = given.SkipEmptyAfter },
		}
		fs.Visit(func(f *pflag.Flag) {
			change, ok := changes[f.Name]
			switch {
			case !ok || err != nil:
			case fs.Changed("file"):
				err = usagef("--file and --%s are both given; the file has the whole config", f.Name)
			default:
				change()
			}
		})
		switch {
		case err != nil:
			return err
		case fs.Changed("file"):
			b, err := a.readFile(cmd.Context(), *file)
			if err == nil {
				*c, err = parseRollout(b)
			}
			return err
		case len(c.Locations) == 0:
			return usagef("no location is given; name them in order, as in --location zone-a --location zone-b:5s")
		}
		return nil
	}
}

// readLocations reads the values of --location. Existing locations keep their other options.
func readLocations(texts []string, old []rollout.Location) (list []rollout.Location, err error) {
	for _, text := range texts {
		l, err := parseLocation(text)
		if err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(old, func(o rollout.Location) bool { return o.Name == l.Name }); i >= 0 {
			delay := l.Delay
			l = old[i] // gates and shares stay
			if strings.Contains(text, ":") {
				l.Delay = delay
			}
		}
		list = append(list, l)
	}
	return list, nil
}

func parseLocation(text string) (l rollout.Location, err error) {
	name, delay, ok := strings.Cut(text, ":")
	l.Name = name
	if ok {
		if l.Delay, err = readDuration(delay); err != nil {
			err = usagef("--location %q: %v", text, err)
		}
	}
	if name == "" {
		err = usagef("--location %q has no name; write NAME or NAME:DELAY", text)
	}
	return l, err
}

var (
	sources    = choicesOf(rollout.Published, rollout.TSO, rollout.External)
	delaysFrom = choicesOf(rollout.Selected, rollout.Converged)
)

// parseRollout reads a file. Fields that are not known are refused: a typing error must not become
// a default.
func parseRollout(b []byte) (c rollout.Config, err error) {
	var f rolloutFile
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(&f); err != nil && err != io.EOF {
		return c, usagef("the config cannot be read: %v", err)
	}
	return f.config()
}

// config is the config that the file has.
func (f *rolloutFile) config() (c rollout.Config, err error) {
	c = rollout.Config{
		ExplicitCodes: f.ExplicitCodes, ImplicitAfter: time.Duration(f.ImplicitAfter),
		ImplicitAttempts: f.ImplicitAttempts, StallTimeout: time.Duration(f.StallTimeout),
		AutoDemote: f.AutoDemote, SkipEmptyAfter: time.Duration(f.SkipEmptyAfter),
		ReelectMinInterval: time.Duration(f.ReelectMinInterval),
		MinAdvanceInterval: time.Duration(f.MinAdvanceInterval),
		Retention:          time.Duration(f.Retention), KeepRemoved: f.KeepRemoved,
	}
	if c.Source, err = sources.parse(cmp.Or(f.Source, "published")); err != nil {
		return c, usagef("source %v", err)
	}
	if c.DelayFrom, err = delaysFrom.parse(cmp.Or(f.DelayFrom, "selected")); err != nil {
		return c, usagef("delay-from %v", err)
	}
	if len(f.Locations) == 0 {
		return c, usagef("the config names no location; list them in order under locations:")
	}
	for _, l := range f.Locations {
		to := rollout.Location{Name: l.Name, Delay: time.Duration(l.Delay), Bake: time.Duration(l.Bake),
			Share: l.Share, ShareBake: time.Duration(l.ShareBake)}
		for _, g := range l.Gates {
			gate := rollout.Gate{Name: g.Name, Kind: rollout.Command, Spec: g.Command,
				Timeout: time.Duration(g.Timeout), Retry: time.Duration(g.Retry)}
			if (g.Command == "") == (g.Webhook == "") {
				return c, usagef("gate %q of location %q: give it either a command or a webhook", g.Name, l.Name)
			}
			if g.Webhook != "" {
				gate.Kind, gate.Spec = rollout.Webhook, g.Webhook
			}
			to.Gates = append(to.Gates, gate)
		}
		c.Locations = append(c.Locations, to)
	}
	return c, nil
}

// rolloutFileOf is the file that parseRollout reads as this config.
func rolloutFileOf(c *rollout.Config) rolloutFile {
	f := rolloutFile{
		Source: sources.word(c.Source), DelayFrom: delaysFrom.word(c.DelayFrom),
		ExplicitCodes: c.ExplicitCodes, ImplicitAfter: fileDuration(c.ImplicitAfter),
		ImplicitAttempts: c.ImplicitAttempts, StallTimeout: fileDuration(c.StallTimeout),
		AutoDemote: c.AutoDemote, SkipEmptyAfter: fileDuration(c.SkipEmptyAfter),
		ReelectMinInterval: fileDuration(c.ReelectMinInterval),
		MinAdvanceInterval: fileDuration(c.MinAdvanceInterval), Retention: fileDuration(c.Retention),
		KeepRemoved: c.KeepRemoved,
	}
	for _, l := range c.Locations {
		to := locationFile{Name: l.Name, Delay: fileDuration(l.Delay), Bake: fileDuration(l.Bake),
			Share: l.Share, ShareBake: fileDuration(l.ShareBake)}
		for _, g := range l.Gates {
			gate := gateFile{Name: g.Name, Command: g.Spec, Timeout: fileDuration(g.Timeout), Retry: fileDuration(g.Retry)}
			if g.Kind == rollout.Webhook {
				gate.Command, gate.Webhook = "", g.Spec
			}
			to.Gates = append(to.Gates, gate)
		}
		f.Locations = append(f.Locations, to)
	}
	return f
}

// yaml is the file's text.
func (f *rolloutFile) yaml() (string, error) {
	var b strings.Builder
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(f); err != nil {
		return "", err
	}
	return b.String(), e.Close()
}

func parseVersion(text string) (uint64, error) {
	v, err := strconv.ParseUint(text, 10, 63)
	if err != nil || v == 0 {
		return 0, usagef("%q is not a version; give a number from 1 to 2^63-1", text)
	}
	return v, nil
}
