package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client/rollout"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

// span of time in a rollout's file: text like 5s.
type fileDuration time.Duration

// UnmarshalYAML reads a duration with its unit.
func (d *fileDuration) UnmarshalYAML(n *yaml.Node) error {
	v, err := readDuration(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: %v", n.Line, err)
	}
	*d = fileDuration(v)
	return nil
}

// rolloutFile is a rollout's config as a file has it.
type rolloutFile struct {
	Source             string         `yaml:"source"`
	DelayFrom          string         `yaml:"delay-from"`
	Locations          []locationFile `yaml:"locations"`
	ExplicitCodes      []string       `yaml:"explicit-codes"`
	ImplicitAfter      fileDuration   `yaml:"implicit-after"`
	ImplicitAttempts   uint64         `yaml:"implicit-attempts"`
	StallTimeout       fileDuration   `yaml:"stall-timeout"`
	AutoDemote         bool           `yaml:"auto-demote"`
	SkipEmptyAfter     fileDuration   `yaml:"skip-empty-after"`
	ReelectMinInterval fileDuration   `yaml:"reelect-min-interval"`
	MinAdvanceInterval fileDuration   `yaml:"min-advance-interval"`
	Retention          fileDuration   `yaml:"retention"`
	KeepRemoved        bool           `yaml:"keep-removed"`
}

type locationFile struct {
	Name      string       `yaml:"name"`
	Delay     fileDuration `yaml:"delay"`
	Bake      fileDuration `yaml:"bake"`
	Share     uint8        `yaml:"share"`
	ShareBake fileDuration `yaml:"share-bake"`
	Gates     []gateFile   `yaml:"gates"`
}

type gateFile struct {
	Name    string       `yaml:"name"`
	Command string       `yaml:"command"`
	Webhook string       `yaml:"webhook"`
	Timeout fileDuration `yaml:"timeout"`
	Retry   fileDuration `yaml:"retry"`
}

// addRolloutFlags are the flags of create and alter.
func addRolloutFlags(c *cobra.Command) {
	c.Flags().String("file", "", "YAML file with the whole config, instead of the other flags; - is standard input.")
	c.Flags().StringArray("location", nil, "A location, in order: NAME, or NAME:DELAY after the previous one. Repeat for each.")
	c.Flags().String("source", "", "Source of versions: published (rollout publish; the default), tso (timestamps of the server) or external (rollout generate).")
	c.Flags().String("delay-from", "", "Start of a delay: selected (the previous location got the version; the default) or converged (all its leaders have loaded it).")
	c.Flags().StringArray("explicit-code", nil, "A reported code that means a version is bad for everyone (default TimestampOutOfRange). Repeat for each.")
	durationVar(c.Flags(), new(time.Duration), "stall-timeout", 0, "A location is STALLED if not all its leaders have loaded the target after this time (default 10m).")
	c.Flags().Bool("auto-demote", false, "Treat leaders that stall without an error as followers.")
	durationVar(c.Flags(), new(time.Duration), "skip-empty-after", 0, "A location without instances is skipped after this time (default: never).")
}

// rolloutConfig changes a config by the flags that were given.
func (a *app) rolloutConfig(cmd *cobra.Command, c *rollout.Config) error {
	flags := cmd.Flags()
	if f := flags.Lookup("file"); f.Changed {
		for _, other := range []string{"location", "source", "delay-from", "explicit-code", "stall-timeout", "auto-demote", "skip-empty-after"} {
			if flags.Changed(other) {
				return usagef("--file and --%s are both given; the file has the whole config", other)
			}
		}
		b, err := a.readFile(f.Value.String())
		if err != nil {
			return err
		}
		*c, err = parseRollout(b)
		return err
	}
	if flags.Changed("location") {
		list, _ := flags.GetStringArray("location")
		old := c.Locations
		c.Locations = nil
		for _, text := range list {
			l, err := parseLocation(text)
			if err != nil {
				return err
			}
			if i := slices.IndexFunc(old, func(o rollout.Location) bool { return o.Name == l.Name }); i >= 0 {
				delay := l.Delay
				l = old[i] // gates and shares stay
				if strings.Contains(text, ":") {
					l.Delay = delay
				}
			}
			c.Locations = append(c.Locations, l)
		}
	}
	var err error
	if flags.Changed("source") {
		text, _ := flags.GetString("source")
		if c.Source, err = parseSource(text); err != nil {
			return err
		}
	}
	if flags.Changed("delay-from") {
		text, _ := flags.GetString("delay-from")
		if c.DelayFrom, err = parseDelayFrom(text); err != nil {
			return err
		}
	}
	if flags.Changed("explicit-code") {
		c.ExplicitCodes, _ = flags.GetStringArray("explicit-code")
	}
	if flags.Changed("stall-timeout") {
		c.StallTimeout, _ = flags.GetDuration("stall-timeout")
	}
	if flags.Changed("auto-demote") {
		c.AutoDemote, _ = flags.GetBool("auto-demote")
	}
	if flags.Changed("skip-empty-after") {
		c.SkipEmptyAfter, _ = flags.GetDuration("skip-empty-after")
	}
	if len(c.Locations) == 0 {
		return usagef("no location is given; name them in order, as in --location SAS --location MAN:5s")
	}
	return nil
}

// parseLocation reads NAME or NAME:DELAY.
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

func parseSource(text string) (rollout.Source, error) {
	switch text {
	case "", "published":
		return rollout.Published, nil
	case "tso":
		return rollout.TSO, nil
	case "external":
		return rollout.External, nil
	}
	return 0, usagef("source %q is unknown; choose published, tso or external", text)
}

func parseDelayFrom(text string) (rollout.DelayFrom, error) {
	switch text {
	case "", "selected":
		return rollout.Selected, nil
	case "converged":
		return rollout.Converged, nil
	}
	return 0, usagef("delay-from %q is unknown; choose selected or converged", text)
}

// parseRollout reads a file. Fields that are not known are refused: a typing error must not become
// a default.
func parseRollout(b []byte) (c rollout.Config, err error) {
	var f rolloutFile
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(&f); err != nil && err != io.EOF {
		return c, usagef("the config cannot be read: %v", err)
	}
	c = rollout.Config{
		ExplicitCodes: f.ExplicitCodes, ImplicitAfter: time.Duration(f.ImplicitAfter), ImplicitAttempts: f.ImplicitAttempts, StallTimeout: time.Duration(f.StallTimeout),
		AutoDemote: f.AutoDemote, SkipEmptyAfter: time.Duration(f.SkipEmptyAfter), ReelectMinInterval: time.Duration(f.ReelectMinInterval),
		MinAdvanceInterval: time.Duration(f.MinAdvanceInterval), Retention: time.Duration(f.Retention), KeepRemoved: f.KeepRemoved,
	}
	if c.Source, err = parseSource(f.Source); err != nil {
		return c, err
	}
	if c.DelayFrom, err = parseDelayFrom(f.DelayFrom); err != nil {
		return c, err
	}
	if len(f.Locations) == 0 {
		return c, usagef("the config names no location; list them in order under locations:")
	}
	for _, l := range f.Locations {
		to := rollout.Location{Name: l.Name, Delay: time.Duration(l.Delay), Bake: time.Duration(l.Bake), Share: l.Share, ShareBake: time.Duration(l.ShareBake)}
		for _, g := range l.Gates {
			gate := rollout.Gate{Name: g.Name, Kind: rollout.Command, Spec: g.Command, Timeout: time.Duration(g.Timeout), Retry: time.Duration(g.Retry)}
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

// parseVersion reads a version.
func parseVersion(text string) (uint64, error) {
	v, err := strconv.ParseUint(text, 10, 63)
	if err != nil || v == 0 {
		return 0, usagef("version %q is not a number from 1 to 2^63-1", text)
	}
	return v, nil
}
