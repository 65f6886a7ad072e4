package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/spf13/cobra"
)

func limitCmd(a *app) *cobra.Command {
	return group("limit", "Rate limits that a fleet shares",
		`A rate limit is a tree of resources, such as api with the children api/tenant-a and api/tenant-b.
Clients lease rates of the leaves and decide about each call by themselves. All together never
exceed the limit of any resource. What one does not use, others have; guarantees (--min) and
weights say who has how much when all want more.

  signalbox limit create api --rate 1000
  signalbox limit create api/tenant-a --weight 3 --min 100
  signalbox limit wait api/tenant-a -- curl https://api.example/
  signalbox limit describe api`,
		limitCreate(a), limitAlter(a), limitDelete(a), limitDescribe(a), limitList(a), limitWait(a))
}

// addLimitFlags adds the options of a resource. The result changes those that were given.
func addLimitFlags(c *cobra.Command) func(*ratelimit.Config) error {
	fs := c.Flags()
	var given ratelimit.Config
	rate := fs.String("rate", "", "Units per second, at most 10^12; 0 admits nothing. A root needs it. Below it none, as of a new one, leaves the parent's as the only limit.")
	least := fs.String("min", "", "Units per second that it gets before others share by weight; a new one has 0.")
	floor := fs.String("floor", "", "Units per second of each client without a lease, beyond the limit; a new one has 0, which denies.")
	durationVar(fs, &given.Burst, "burst", 0, "What can be used at once after a time without use, as a time of the rate; a new one has 1s.")
	fs.Uint32Var(&given.Weight, "weight", 0, "Share among the children of its parent, 1 to 10000; a new one has 1.")
	durationVar(fs, &given.Lease, "lease", 0, "How long clients use a rate without asking, 500ms to 1m; of a root only; a new one has 3s.")
	fs.BoolVar(&given.Shadow, "shadow", false, "Admit everything, and count what would be denied.")
	optional(fs, "burst", "weight", "lease")
	return func(to *ratelimit.Config) error {
		if *rate == "none" {
			to.Rate = nil
		}
		own := 0.
		for _, x := range []struct {
			flag, text string
			to         *float64
		}{{"rate", *rate, &own}, {"min", *least, &to.Min}, {"floor", *floor, &to.Floor}} {
			if !fs.Changed(x.flag) || x.flag == "rate" && x.text == "none" {
				continue
			}
			v, err := strconv.ParseFloat(x.text, 64)
			if err != nil || v != 0 && !(v >= 0.001 && v <= protocol.MaxLimitRate/1000) { // NaN is neither
				return usagef("--%s %q is not a rate; give units per second, 0 or 0.001 to 10^12", x.flag, x.text)
			}
			if *x.to = v; x.flag == "rate" {
				to.Rate = &own
			}
		}
		if fs.Changed("weight") && given.Weight == 0 {
			return usagef("--weight 0 is out of range; give 1 to %d", protocol.MaxLimitWeight)
		}
		for flag, set := range map[string]func(){
			"burst": func() { to.Burst = given.Burst }, "weight": func() { to.Weight = given.Weight },
			"lease": func() { to.Lease = given.Lease }, "shadow": func() { to.Shadow = given.Shadow },
		} {
			if fs.Changed(flag) {
				set()
			}
		}
		return nil
	}
}

func limitCreate(a *app) *cobra.Command {
	c := command("create NAME", "Create a resource of a rate limit", "Create a resource. Its parent must exist: create api before api/tenant-a.")
	c.Example = `  signalbox limit create api --rate 1000 --burst 500ms
  signalbox limit create api/tenant-a --min 100`
	read, g := addLimitFlags(c), addGuard(c, "limit create")
	c.RunE = a.sessionVerb(func(inv *invocation, s *client.Session, args []string) error {
		if err := g.check(); err != nil {
			return err
		}
		var config ratelimit.Config
		if err := read(&config); err != nil {
			return err
		}
		options := []ratelimit.ChangeOption{ratelimit.Reason(g.reason)}
		if g.force {
			options = append(options, ratelimit.Force())
		}
		revision, err := ratelimit.Create(inv.ctx, s, args[0], config, options...)
		return inv.report(err, row{{"name", "", args[0]}, {"revision", "", revision}}, "created %s", args[0])
	})
	return c
}

func limitAlter(a *app) *cobra.Command {
	c := command("alter NAME", "Change a resource; omitted options stay",
		"Change a resource. Omitted options stay. A lower limit is reached within a lease.")
	c.Example = "  signalbox limit alter api --rate 500"
	read, reason := addLimitFlags(c), addReason(c)
	revision := c.Flags().Uint64("revision", 0, "Only if the resource has this revision; 0: its current one.")
	c.RunE = a.sessionVerb(func(inv *invocation, s *client.Session, args []string) error {
		if !anyChanged(c, "reason", "revision") {
			return usagef("no option is given; the form is: %s", usageLine(c))
		}
		status, err := ratelimit.Describe(inv.ctx, s.Node(), args[0], 0)
		if err != nil {
			return err
		}
		r := status.Resources[0]
		if err := read(&r.Config); err != nil {
			return err
		}
		now, err := ratelimit.Alter(inv.ctx, s, args[0], cmp.Or(*revision, r.Revision), r.Config, ratelimit.Reason(*reason))
		return inv.report(err, row{{"name", "", args[0]}, {"revision", "", now}}, "%s has revision %d", args[0], now)
	})
	return c
}

func limitDelete(a *app) *cobra.Command {
	c := command("delete NAME", "Delete a resource that has no children",
		"Delete a resource that has no children. One that is created under the name before the old one's burst would be full again has no burst to begin with.")
	revision := c.Flags().Uint64("revision", 0, "Only if the resource has this revision; 0: any.")
	g := addGuard(c, "limit delete")
	c.RunE = a.sessionVerb(func(inv *invocation, s *client.Session, args []string) error {
		if err := g.check(); err != nil {
			return err
		}
		options := []ratelimit.ChangeOption{ratelimit.Reason(g.reason)}
		if g.force {
			options = append(options, ratelimit.Force())
		}
		err := ratelimit.Delete(inv.ctx, s, args[0], *revision, options...)
		return inv.report(err, row{{"name", "", args[0]}, {"deleted", "", true}}, "deleted %s", args[0])
	})
	return c
}

func limitList(a *app) *cobra.Command {
	c := command("ls [PREFIX]", "List the rate limits of the node", "")
	c.RunE = a.nodeVerb(func(inv *invocation, n *client.Node, args []string) error {
		return inv.list(each(ratelimit.List(inv.ctx, n, strings.Join(args, "")), func(i *ratelimit.Info) row {
			return row{{"name", "name", i.Name}, {"rate", "rate", *i.Config.Rate}, {"resources", "resources", i.Resources},
				{"sessions", "sessions", i.Participants}, {"revision", "revision", i.Revision}}
		}), "no rate limits")
	})
	return c
}

func limitDescribe(a *app) *cobra.Command {
	c := command("describe NAME", "Show a resource with all below it, and who has which rate and why",
		`Show a resource with all below it: the limit, what clients lease of it, what they used and were
denied since the shard's leader began, and what waits. A row has the sum of all below it. Below are the
sessions, first those whose calls wait or are denied, with since when that is (lacks) and what would
change it:

  demand     it has what its calls ask for
  weight     others share the resource that is named with it, by weight
  cap        it has all that the named resource may have
  burst      the burst of the named resource is too small for its calls; the one that would do
  waits for  its calls need another limit as well, which has too little
  silent     it has a lease, and was not heard of since: it is dead, or cut off
  learning   the leader is new, and does not know yet who uses what`)
	sessions := c.Flags().Int("sessions", 20, "Sessions that are shown, 0 to 10000.")
	c.RunE = a.nodeVerb(func(inv *invocation, n *client.Node, args []string) error {
		r, err := describeLimit(inv, n, args[0], *sessions)
		if err != nil {
			return err
		}
		return inv.printer().item(r)
	})
	return c
}

func describeLimit(inv *invocation, n *client.Node, name string, sessions int) (row, error) {
	if sessions < 0 || sessions > protocol.MaxLimitSessions {
		return nil, usagef("--sessions %d is out of range; choose 0 to %d", sessions, protocol.MaxLimitSessions)
	}
	s, err := ratelimit.Describe(inv.ctx, n, name, sessions)
	if err != nil {
		return nil, err
	}
	resources, uses := []row{}, []row{}
	for i := range s.Resources {
		x := &s.Resources[i]
		served := "leases"
		if x.ServedRemotely {
			served = "remote, leases"
		}
		if x.Config.Shadow {
			served += ", shadow"
		}
		resources = append(resources, row{
			{"name", "name", x.Path}, {"rate", "rate", x.Rate}, {"burst", "burst", x.Burst}, {"weight", "weight", max(x.Config.Weight, 1)},
			{"min", "min", x.Config.Min}, {"demand", "demand", x.Demand}, {"target", "share", x.Target}, {"leased", "leased", x.Leased}, {"level", "level", x.Level},
			{"unconfirmed", "", x.Unconfirmed}, {"sessions", "sessions", x.Sessions}, {"callers", "callers", x.Callers},
			{"waiting", "waiting", x.Waiting}, {"allowed", "allowed", x.Allowed}, {"denied", "denied", x.Denied},
			{"impossible", "impossible", x.Impossible}, {"waited", "", x.Waited},
			{"served", "served", served}, {"revision", "revision", x.Revision},
		})
	}
	for i := range s.Sessions {
		x := &s.Sessions[i]
		uses = append(uses, row{
			{"session_id", "session", sessionID(x.Session)}, {"name", "name", x.Path}, {"rate", "rate", x.Rate}, {"burst", "burst", x.Burst},
			{"demand", "demand", x.Demand}, {"used", "used", x.Used}, {"waiting", "waiting", x.Waiting},
			{"share", "share", x.Share}, {"lacks_ms", "", x.Lacks.Milliseconds()}, {"", "lacks", x.Lacks.Round(100 * time.Millisecond)},
			{"age_ms", "", x.Age.Milliseconds()}, {"", "age", x.Age.Round(time.Second)},
			{"heard_ms", "", x.Heard.Milliseconds()}, {"", "heard",
				x.Heard.Round(100 * time.Millisecond)}, {"why", "why", x.Reason()}, {"remedy", "remedy", x.Remedy()},
		})
	}
	return row{
		{"name", "name", name}, {"lease_ms", "", s.Lease.Milliseconds()}, {"", "lease", s.Lease}, {"learning", "learning", s.Learning},
		{"participants", "sessions", s.Participants}, {"resources", "resources", resources}, {"sessions", "used by", uses},
	}, nil
}

func limitWait(a *app) *cobra.Command {
	c := command("wait NAME [-- COMMAND [ARG...]]", "Wait for units, then run a command",
		`Wait until the limit admits the units, in the order in which calls come. Then run the command, if
one is given, and exit with its exit code.`)
	c.Example = `  signalbox limit wait api/tenant-a -- curl https://api.example/
  signalbox limit wait jobs --units 5 --wait 10s`
	units := c.Flags().Uint64("units", 1, "Units that the call costs.")
	wait := c.Flags().String("wait", "forever", "How long to wait at most. The exit code is 3 if that is not enough.")
	c.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		name, command, err := split(cmd, args)
		if err != nil {
			return err
		}
		most, err := parseWait(*wait)
		if err != nil {
			return usagef("--wait: %v", err)
		}
		err = inv.withSession(func(s *client.Session) error { return awaitUnits(inv, s, name, *units, most) })
		if err != nil || len(command) == 0 {
			return err
		}
		return execCommand(inv, command)
	})
	return c
}

// awaitUnits waits for units of a resource.
func awaitUnits(inv *invocation, s *client.Session, name string, units uint64, most time.Duration) error {
	l, err := ratelimit.JoinSession(inv.ctx, s, name)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close(inv.cleanup()) }()
	if most == client.Forever {
		if err := l.Wait(inv.longCtx, units); err != nil {
			return inv.waitError(name, err)
		}
		return nil
	}
	switch ok, err := l.WaitAtMost(inv.longCtx, units, most); {
	case err != nil:
		return inv.waitError(name, err)
	case !ok:
		return &codeError{code: exitNotAcquired, err: fmt.Errorf("%q did not admit %s within %s", name, count(units, "unit"), most)}
	}
	return nil
}
