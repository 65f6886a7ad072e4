package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/signalbox-dev/signalbox/cmd/signalbox/desired"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/spf13/cobra"
)

func exportCmd(a *app) *cobra.Command {
	c := command("export [PATH]", "Write what the cluster has as a document for apply",
		`Write what the cluster has as a document for "signalbox apply", which finds no difference then: nodes
with their settings, semaphores with their data, configurations, rate limits, rollouts and rights.
With PATH only the node there and those below it, without rights. What is not shown is the default.
It has no services, elections, ephemeral semaphores, processes, sessions, tokens or versions of
rollouts, and nothing about instances.`)
	c.Example = `  signalbox export >cluster.yaml
  signalbox export /billing >billing.yaml`
	settings.AddFlags(c.Flags(), settings.Client)
	c.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		if inv.values["output"] != "table" {
			return usagef("--output %s is given, and a document is YAML; leave it out", inv.values["output"])
		}
		path := strings.TrimSuffix(strings.Join(args, ""), "/") // the root is everything
		if path != "" {
			if err := protocol.ValidatePath(path); err != nil {
				return usagef("%v", err)
			}
		}
		l, err := newLiveCluster(inv, "")
		if err != nil {
			return err
		}
		s, err := l.All(inv.longCtx, path)
		if errors.Is(err, protocol.StatusForbidden) && path == "" {
			err = fmt.Errorf("%w; the whole cluster has rights, which need the right admin on /: give the PATH of a node", err)
		}
		if err != nil {
			return err
		}
		text, err := desired.Write(slices.Collect(maps.Values(s.Objects)))
		switch {
		case err != nil:
			return err
		case len(s.Objects) > desired.MaxObjects, len(text) > desired.MaxBytes:
			return fmt.Errorf("the document would have %s and %d bytes, more than apply takes, %d and %d; export paths one by one",
				count(uint64(len(s.Objects)), "object"), len(text), desired.MaxObjects, desired.MaxBytes)
		}
		_, err = inv.output().Write(text)
		return err
	})
	return c
}
