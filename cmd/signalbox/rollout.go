package main

import (
	"cmp"
	"context"
	"io"
	"strings"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/rollout"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
	"github.com/spf13/cobra"
)

func rolloutCmd(a *app) *cobra.Command {
	return group("rollout", "Staged rollouts: versions reach one location after another",
		`A rollout (track) distributes versions to the instances of ordered locations. A location gets a
version after the location before it, with a delay. It takes the next one when all its leaders
have loaded its version. The name of a track is SERVICE/CLUSTER.

  signalbox rollout create geo/base --location zone-a --location zone-b:5s --location zone-c:5s
  signalbox rollout follow geo/base --location zone-a -- ./load.sh
  signalbox rollout publish geo/base data.bin
  signalbox rollout status geo/base`,
		rolloutCreate(a), rolloutAlter(a), rolloutDelete(a), rolloutPublish(a), rolloutWithdraw(a),
		rolloutList(a), rolloutStatus(a), rolloutDescribe(a), rolloutWatch(a), rolloutHistory(a),
		rolloutFollow(a), rolloutGate(a), rolloutGenerate(a),
		rolloutPause(a), rolloutRollback(a), rolloutEvict(a),
		rolloutOperate(a, "resume", "End a pause of locations, or of the whole rollout", false, (*rollout.Track).Resume),
		rolloutOperate(a, "promote", "Give locations the newest version now, ignoring delay, bake time and gates",
			true, (*rollout.Track).Promote),
		rolloutOperate(a, "reelect", "Replace locations' targets as soon as there is a newer version",
			true, (*rollout.Track).Reelect),
		rolloutOperate(a, "exclude", "Exclude locations: later locations no longer wait for them",
			true, (*rollout.Track).Exclude),
		rolloutOperate(a, "include", "Include excluded locations again", true, (*rollout.Track).Include))
}

// trackVerb is verb for what changes a track, which needs a session.
func trackVerb(a *app, fn func(inv *invocation, t *rollout.Track, args []string) error) runE {
	return a.sessionVerb(func(inv *invocation, s *client.Session, args []string) error {
		return fn(inv, rollout.NewTrack(s, args[0]), args)
	})
}

// withTrack runs fn with the track of a session that is closed afterwards.
func withTrack(inv *invocation, name string, fn func(t *rollout.Track) error) error {
	return inv.withSession(func(s *client.Session) error { return fn(rollout.NewTrack(s, name)) })
}

func rolloutCreate(a *app) *cobra.Command {
	c := command("create TRACK", "Create a rollout",
		`Create a rollout from flags, or from a YAML file with all options:

  source: published
  locations:
    - name: zone-a
      bake: 1m              # how long all leaders have a version before it goes on
    - name: zone-b
      delay: 5s
      share: 20             # per cent of the leaders that get a version first
      share-bake: 30s
      gates:                # run by "signalbox rollout gate" before the location takes a version
        - {name: smoke, command: ./smoke.sh, timeout: 1m}
        - {name: alerts, webhook: "http://alerts/quiet"}`)
	c.Example = `  signalbox rollout create geo/base --location zone-a --location zone-b:5s --location zone-c:5s
  signalbox rollout create geo/base --file rollout.yaml`
	readFlags := addRolloutFlags(a, c)
	c.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		config := rollout.Config{Source: rollout.Published}
		if err := readFlags(&config); err != nil {
			return err
		}
		return withTrack(inv, args[0], func(t *rollout.Track) error {
			revision, err := t.Create(inv.ctx, config)
			return inv.report(err, row{{"track", "", args[0]}, {"revision", "", revision}},
				"created %s with %s", args[0], count(uint64(len(config.Locations)), "location"))
		})
	})
	return c
}

func rolloutAlter(a *app) *cobra.Command {
	c := command("alter TRACK", "Change a rollout's config; omitted options stay",
		`Change a rollout's config. Omitted options stay. With --location, give all locations: they keep
their gates, targets and histories by name. The change is refused if the config was changed in the
meantime.`)
	c.Example = "  signalbox rollout alter geo/base --location zone-a --location zone-b:10s --location zone-c:10s"
	readFlags := addRolloutFlags(a, c)
	revision := c.Flags().Uint64("revision", 0, "Only if the config has this revision; 0: its current one.")
	c.RunE = trackVerb(a, func(inv *invocation, t *rollout.Track, args []string) error {
		if !anyChanged(c, "revision") {
			return usagef("no option is given; the form is: %s", usageLine(c))
		}
		s, err := t.Describe(inv.ctx, rollout.IncludeConfig())
		if err != nil {
			return err
		}
		config := *s.Config
		if err := readFlags(&config); err != nil {
			return err
		}
		now, err := t.Alter(inv.ctx, cmp.Or(*revision, s.ConfigRevision), config)
		return inv.report(err, row{{"track", "", args[0]}, {"revision", "", now}}, "%s has config revision %d", args[0],
			now)
	})
	return c
}

func rolloutDelete(a *app) *cobra.Command {
	c := command("delete TRACK", "Delete a rollout", "")
	force := c.Flags().Bool("force", false, "Delete it even if it has instances; they keep their versions.")
	c.RunE = trackVerb(a, func(inv *invocation, t *rollout.Track, args []string) error {
		err := t.Delete(inv.ctx, *force)
		return inv.report(err, row{{"track", "", args[0]}, {"deleted", "", true}}, "deleted %s", args[0])
	})
	return c
}

func rolloutPublish(a *app) *cobra.Command {
	c := command("publish TRACK [FILE]", "Publish a version, with a file's content as its payload",
		`Publish a version for the first location. Its payload is a file's content or text, at most 64 KiB;
- is standard input. For larger data publish its location.`)
	c.Example = `  signalbox rollout publish geo/base data.bin
  signalbox rollout publish geo/base --data s3://base/2024-11-20 --version 20241120`
	addDataFlags(c, "Payload as text", "64 KiB")
	version := parsedVar(c.Flags(), "version", "", parseVersion,
		"The version, higher than all earlier ones (default: the highest plus one).")
	c.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		payload, given, err := inv.readData(cmd)
		switch {
		case err != nil:
			return err
		case given && len(args) == 2:
			return usagef("FILE and --data or --data-file are both given; keep one")
		case len(args) == 2:
			if payload, err = inv.readFile(inv.longCtx, args[1]); err != nil {
				return err
			}
		}
		return withTrack(inv, args[0], func(t *rollout.Track) error {
			v, err := t.Publish(inv.ctx, *version, payload)
			return inv.report(err, row{{"track", "", args[0]}, {"version", "", v}, {"bytes", "", len(payload)}},
				"published version %d of %s, %s", v, args[0], count(uint64(len(payload)), "byte"))
		})
	})
	return c
}

func rolloutWithdraw(a *app) *cobra.Command {
	c := command("withdraw TRACK VERSION", "Withdraw a published version",
		`Withdraw a published version: no location chooses it any more. Locations that have it keep it; "signalbox rollout rollback" replaces it.`)
	c.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		v, err := parseVersion(args[1])
		if err != nil {
			return err
		}
		return withTrack(inv, args[0], func(t *rollout.Track) error {
			err := t.Withdraw(inv.ctx, v)
			return inv.report(err, row{{"track", "", args[0]}, {"version", "", v}, {"withdrawn", "", true}},
				"withdrew version %d of %s", v, args[0])
		})
	})
	return c
}

func rolloutList(a *app) *cobra.Command {
	c := command("ls [PREFIX]", "List rollouts by prefix, with how many locations are in each state", "")
	c.RunE = a.nodeVerb(func(inv *invocation, n *client.Node, args []string) error {
		return inv.list(each(rollout.List(inv.ctx, n, strings.Join(args, "")), rolloutRow), "no rollouts")
	})
	return c
}

func rolloutStatus(a *app) *cobra.Command {
	c := command("status TRACK",
		"Show each location: state, what it waits for, which instances block it, and when it goes on", "")
	instances := c.Flags().Bool("instances", false, "Also show each instance.")
	c.RunE = a.nodeVerb(func(inv *invocation, n *client.Node, args []string) error {
		var opts []rollout.DescribeOption
		if *instances {
			opts = append(opts, rollout.IncludeInstances())
		}
		s, err := rollout.NewReader(n, args[0]).Describe(inv.ctx, opts...)
		if err != nil {
			return err
		}
		return printRollout(inv.printer(), s, *instances)
	})
	return c
}

func rolloutDescribe(a *app) *cobra.Command {
	c := command("describe TRACK", "Show a rollout's config, as a file that create and alter take",
		`Show a rollout's config, defaults included, as a file that create and alter take with --file: YAML,
or JSON with -o json. What is not shown is 0, off or none. "signalbox rollout status" shows where
the rollout stands, and the config's revision.`)
	c.Example = `  signalbox rollout describe geo/base >rollout.yaml
  signalbox rollout describe geo/base | sed 's/delay: 5s/delay: 10s/' | signalbox rollout alter geo/base --file -`
	c.RunE = a.nodeVerb(func(inv *invocation, n *client.Node, args []string) error {
		s, err := rollout.NewReader(n, args[0]).Describe(inv.ctx, rollout.IncludeConfig())
		if err != nil {
			return err
		}
		f := rolloutFileOf(s.Config)
		if inv.values["output"] != "table" {
			return inv.printer().document(f)
		}
		text, err := f.yaml()
		if err != nil {
			return err
		}
		if terminal.Is(inv.stdout) { // a pipe gets the text as it is
			var shown strings.Builder
			for line := range strings.Lines(text) {
				shown.WriteString(terminal.Sanitize(strings.TrimSuffix(line, "\n")) + "\n")
			}
			text = shown.String()
		}
		_, err = io.WriteString(inv.output(), text)
		return err
	})
	return c
}

func rolloutWatch(a *app) *cobra.Command {
	c := command("watch TRACK", "Print the events of a rollout, with reasons, until Ctrl-C",
		`Print the events of a rollout, with reasons, until Ctrl-C. It starts with the state of each location.`)
	location := c.Flags().String("location", "", "Only events of this location.")
	count := c.Flags().Uint("stop-after", 0, "Stop after this many events; 0: never.")
	c.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		out, err := inv.stream()
		if err != nil {
			return err
		}
		n, err := inv.openNode()
		if err != nil {
			return err
		}
		printed := uint(0)
		for update, err := range rollout.NewReader(n, args[0]).Watch(inv.longCtx, *location) {
			switch {
			case err != nil && inv.longCtx.Err() != nil:
				return nil
			case err != nil:
				return err
			case update.Status == nil:
				if err := out.event(rolloutEventRow(update.Event)); err != nil {
					return err
				}
				if printed++; printed == *count {
					return nil
				}
				continue
			}
			for i := range update.Status.Locations {
				if l := &update.Status.Locations[i]; *location == "" || l.Name == *location {
					if err := out.event(locationStateRow(l)); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
	return c
}

func rolloutHistory(a *app) *cobra.Command {
	c := command("history TRACK LOCATION", "List the versions of a location, oldest first", "")
	c.RunE = a.nodeVerb(func(inv *invocation, n *client.Node, args []string) error {
		rows, err := rollout.NewReader(n, args[0]).History(inv.ctx, args[1])
		if err != nil {
			return err
		}
		return inv.printer().list(rowsOf(rows, historyRow), "no version yet")
	})
	return c
}

func rolloutPause(a *app) *cobra.Command {
	var hard bool
	pause := func(t *rollout.Track, ctx context.Context, locations ...string) error {
		return t.Pause(ctx, hard, locations...)
	}
	c := rolloutOperate(a, "pause", "Pause locations, or the whole rollout", false, pause)
	c.Long = `Pause locations, or the whole rollout: their targets stay. A version that an instance reports as
bad for everyone is still replaced, because a bad version during a pause would be an outage.
--hard keeps even that.`
	c.Flags().BoolVar(&hard, "hard", false, "Keep even a version that is reported as bad for everyone.")
	return c
}

func rolloutRollback(a *app) *cobra.Command {
	c := command("rollback TRACK VERSION LOCATION...", "Return locations to an earlier version at once",
		`Return locations to an earlier version from their histories, at once: all named locations, or
none. The version they leave is not chosen again; if it was good, publish it under a new version.`)
	c.Example = "  signalbox rollout rollback geo/base 41 zone-a zone-b zone-c"
	c.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		v, err := parseVersion(args[1])
		if err != nil {
			return err
		}
		return withTrack(inv, args[0], func(t *rollout.Track) error {
			return operateTrack(inv, t.Rollback(inv.ctx, v, args[2:]...), "rollback", args[0], args[2:])
		})
	})
	return c
}

func rolloutEvict(a *app) *cobra.Command {
	c := command("evict TRACK INSTANCE", "Remove an instance from a rollout",
		`Remove an instance: its location does not wait for it any more. An instance that is alive registers again, as a follower.`)
	c.RunE = trackVerb(a, func(inv *invocation, t *rollout.Track, args []string) error {
		err := t.Evict(inv.ctx, args[1])
		return inv.report(err, row{{"track", "", args[0]}, {"instance", "", args[1]}, {"evicted", "", true}},
			"evicted %s from %s", args[1], args[0])
	})
	return c
}

// rolloutOperate is a verb of an operator on locations.
func rolloutOperate(
	a *app, verb, short string, needed bool, do func(*rollout.Track, context.Context, ...string) error,
) *cobra.Command {
	form := verb + " TRACK LOCATION..."
	if !needed {
		form = verb + " TRACK [LOCATION...]"
	}
	c := command(form, short, "")
	c.RunE = trackVerb(a, func(inv *invocation, t *rollout.Track, args []string) error {
		return operateTrack(inv, do(t, inv.ctx, args[1:]...), verb, args[0], args[1:])
	})
	return c
}

// operateTrack reports a change of locations of a track; none: of all.
func operateTrack(inv *invocation, err error, verb, track string, locations []string) error {
	of := cmp.Or(strings.Join(locations, ", "), "the whole rollout")
	return inv.report(err, row{{"track", "", track}, {"verb", "", verb}, {"locations", "", orEmpty(locations)}},
		"%s: %s of %s", verb, of, track)
}
