package main

import (
	"fmt"

	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/spf13/cobra"
)

func upgradeCmd(a *app) *cobra.Command {
	c := command("upgrade", "Show an upgrade of the cluster, hold it, or finish it",
		`Show the cluster's version, the version of each instance, and the next step.

The cluster's version decides what instances write. It rises within seconds when all instances run
a newer minor version. From then on no instance can go back. Before that each instance, and all of
them, can: restart it with the former version.

With --hold the version stays as it is, though all instances are newer, until --finish. Hold it
before the first restart, and finish when the new version has proved itself.`)
	c.Example = `  signalbox cluster upgrade
  signalbox cluster upgrade --hold
  signalbox cluster upgrade --finish`
	hold := c.Flags().Bool("hold", false, "Keep the cluster's version, so that instances can go back.")
	finish := c.Flags().Bool("finish", false, "End the hold.")
	c.RunE = a.adminVerb(func(inv *invocation, c *admin.Client, _ []string) error {
		if *hold && *finish {
			return usagef("--hold and --finish exclude each other; give one")
		}
		if *hold || *finish {
			if err := c.HoldUpgrade(inv.ctx, *hold); err != nil {
				return err
			}
		}
		s, err := c.Status(inv.ctx)
		if err != nil {
			return err
		}
		return printUpgrade(inv.printer(), s)
	})
	return c
}

func printUpgrade(p *printer, s *protocol.ClusterStatus) error {
	type instance struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	}
	x := struct {
		Version   string     `json:"version"`
		Held      bool       `json:"held"`
		Instances []instance `json:"instances"`
		Next      string     `json:"next,omitempty"`
	}{Version: s.Version, Held: s.UpgradeHeld, Next: s.Health.Upgrade}
	for i := range s.Instances {
		if v := &s.Instances[i]; v.Current != "Expelled" {
			x.Instances = append(x.Instances, instance{v.Name, v.Version})
		}
	}
	if p.format != "table" {
		return p.document(x)
	}
	held := ""
	if x.Held {
		held = ", held"
	}
	_, err := fmt.Fprintf(p.w, "cluster %s%s\n", terminal.Sanitize(x.Version), held)
	for _, i := range x.Instances {
		if err == nil {
			_, err = fmt.Fprintf(p.w, "  %s %s\n", terminal.Sanitize(i.Name), terminal.Sanitize(i.Version))
		}
	}
	if err != nil {
		return err
	}
	next := x.Next
	if next == "" {
		next = "no upgrade is under way"
	}
	_, err = fmt.Fprintln(p.w, terminal.Sanitize(next))
	return err
}
