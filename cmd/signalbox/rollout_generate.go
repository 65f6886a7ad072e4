package main

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client/rollout"
	"github.com/spf13/cobra"
)

func rolloutGenerate(a *app) *cobra.Command {
	c := command("generate TRACK -- COMMAND [ARG...]", "Generate the versions of a rollout with a command, until Ctrl-C",
		`Generate the versions of a rollout whose source is external, until Ctrl-C. COMMAND runs whenever
the first location is ready for a version. SIGNALBOX_EXPECTED is the location's version (0: none).
The last line of output is the next version, a number above all earlier ones. If COMMAND fails or
takes longer than --command-timeout, it is retried later and "rollout status" shows why; locations keep
their versions. Several generators may run: the first answer counts.`)
	c.Args = cobra.MinimumNArgs(2)
	c.Example = `  signalbox rollout create geo/base --source external --location zone-a --location zone-b:5s
  signalbox rollout generate geo/base -- date +%s`
	var limit time.Duration
	durationVar(c.Flags(), &limit, "command-timeout", 5*time.Second, "Timeout of the command.")
	c.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		if limit == 0 {
			return usagef("--command-timeout 0s is not above 0; give a duration like 5s")
		}
		if err := lookUp(args[1:]); err != nil {
			return err
		}
		out, err := inv.reportStream()
		if err != nil {
			return err
		}
		return withTrack(inv, args[0], func(t *rollout.Track) error {
			s, err := t.Describe(inv.ctx, rollout.IncludeConfig())
			if err != nil {
				return err
			}
			if s.Config.Source != rollout.External {
				return fmt.Errorf("the source of %s is not external, so nobody asks for versions; "+
					"change it with: signalbox rollout alter %[1]s --source external", args[0])
			}
			g := rollout.Generator{
				Track: t, Timeout: limit,
				Next: func(ctx context.Context, expected uint64) (uint64, error) { return generate(ctx, args[1:], expected) },
				OnResult: func(expected, version uint64, err error) {
					event := "given"
					if err != nil {
						event = "refused"
					}
					r := row{{"time", "time", clockTime{time.Now()}}, {"event", "event", event},
						{"expected", "expected", labelled{"expected", expected}}}
					if version != 0 {
						r = append(r, field{"version", "version", labelled{"version", version}})
					}
					if err != nil {
						r = append(r, field{"error", "error", uncut(err.Error())})
					}
					_ = out.event(r)
				},
			}
			if err := g.Run(inv.longCtx); inv.longCtx.Err() == nil {
				return err
			}
			return nil
		})
	})
	return c
}

func generate(ctx context.Context, args []string, expected uint64) (uint64, error) {
	var out, errs tail
	c := &child{
		args: args, stdin: bytes.NewReader(nil), stdout: &out, stderr: &errs, grace: time.Second,
		env: []string{"SIGNALBOX_EXPECTED=" + strconv.FormatUint(expected, 10)},
	}
	if err := c.run(ctx); err != nil {
		if ctx.Err() != nil {
			return 0, fmt.Errorf("%s took too long", args[0])
		}
		return 0, fmt.Errorf("%s: %w  %s", args[0], err, errs.last())
	}
	text := strings.TrimSpace(out.last())
	v, err := strconv.ParseUint(text, 10, 63)
	if err != nil || v == 0 {
		return 0, fmt.Errorf("%s printed %q, which is not a version; print a number from 1 to 2^63-1", args[0], text)
	}
	return v, nil
}
