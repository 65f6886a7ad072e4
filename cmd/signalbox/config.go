package main

import (
	"context"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
	"github.com/spf13/cobra"
)

func valueRow(name string, v *client.Value) row {
	return row{{"name", "", name}, {"version", "", v.Version}, {"data", "", v.Data}}
}

func configCmd(a *app) *cobra.Command {
	ls := command("ls [PREFIX]", "List configurations by prefix, in order of name", "")
	ls.RunE = a.nodeVerb(func(inv *invocation, n *client.Node, args []string) error {
		configs := n.Configs(inv.ctx, strings.Join(args, ""), client.ReadConsistency(client.Strict))
		return inv.list(each(configs, func(c *client.ConfigInfo) row {
			return row{{"name", "name", c.Name}, {"version", "version", c.Version}}
		}), "no configurations")
	})

	remove := command("delete NAME", "Delete a configuration and its history", "")
	reason := addReason(remove)
	remove.RunE = a.sessionVerb(func(inv *invocation, s *client.Session, args []string) error {
		err := s.Config(args[0]).Delete(inv.ctx, client.Reason(*reason))
		return inv.report(err, row{{"name", "", args[0]}, {"deleted", "", true}}, "deleted %s", args[0])
	})

	watch := command("watch NAME", "Print a configuration's data and each change, until Ctrl-C", "")
	a.streamVerb(watch, func(ctx context.Context, n *client.Node, name string) iter.Seq2[row, error] {
		return each(n.Config(name).Watch(ctx), func(v *client.Value) row {
			r := append(row{{"time", "time", clockTime{time.Now()}}, {"exists", "", v.Exists}}, valueRow(name, v)...)
			if !v.Exists {
				return append(r, field{"", "data", "not set"})
			}
			return append(r, field{"", "version", labelled{"version", v.Version}}, field{"", "data", v.Data})
		})
	})

	return group("config", "Small configuration: get, set, list, watch, history, rollback",
		`Small pieces of configuration, up to 1 MiB each, with a version, the last values and watches. Each
is stored in a semaphore of its own; "signalbox sem ls --all" lists them.`, configGet(a), configSet(a), ls, remove,
		configHistory(a), configRollback(a), watch)
}

func configGet(a *app) *cobra.Command {
	c := command("get NAME", "Print a configuration's data",
		`Print a configuration's data exactly as it was set; on a terminal, followed by a newline. -o json includes its version.`)
	c.RunE = a.nodeVerb(func(inv *invocation, n *client.Node, args []string) error {
		v, err := n.Config(args[0]).Get(inv.ctx)
		if err != nil {
			return err
		}
		if inv.values["output"] != "table" {
			return inv.printer().item(valueRow(args[0], &v))
		}
		data := v.Data
		if terminal.Is(inv.stdout) {
			data = []byte(terminal.Sanitize(string(data)) + "\n")
		}
		_, err = inv.output().Write(data)
		return err
	})
	return c
}

func configSet(a *app) *cobra.Command {
	c := command("set NAME [DATA]", "Set a configuration's data, from an argument, a file or standard input", "")
	c.Example = `  signalbox config set flags '{"dark":true}'
  echo on | signalbox config set flags --data-file -
  signalbox config set flags off --if-version 1`
	c.Flags().String("data-file", "", "File with the data; - is standard input.")
	ifVersion := c.Flags().Uint64("if-version", 0,
		"Only if the configuration has this version; 0: only if it is not set (default: any version).")
	optional(c.Flags(), "if-version")
	reason := addReason(c)
	c.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		var data []byte
		file := cmd.Flag("data-file")
		switch {
		case len(args) == 2 && file.Changed:
			return usagef("DATA and --data-file are both given; keep one")
		case len(args) == 2:
			data = []byte(args[1])
		case file.Changed:
			var err error
			if data, err = inv.readFile(inv.longCtx, file.Value.String()); err != nil {
				return err
			}
		default:
			return usagef("the data is missing; the form is: %s", usageLine(cmd))
		}
		opts := []client.WriteOption{client.Reason(*reason)}
		if cmd.Flag("if-version").Changed {
			opts = append(opts, client.IfVersion(*ifVersion))
		}
		return inv.withSession(func(s *client.Session) error {
			v, err := s.Config(args[0]).Set(inv.ctx, data, opts...)
			return inv.report(err, row{{"name", "", args[0]}, {"version", "", v}}, "%s has version %d", args[0], v)
		})
	})
	return c
}

func configHistory(a *app) *cobra.Command {
	c := command("history NAME", "Show a configuration's last values, newest first",
		`Show the value of a configuration and up to 10 earlier ones, at most 64 KiB together, newest
first. Times and authors are from the client that set the value: its identity, or without
authentication the description of its session. "config rollback" returns to an old value.`)
	c.RunE = a.nodeVerb(func(inv *invocation, n *client.Node, args []string) error {
		values, err := n.Config(args[0]).History(inv.ctx)
		if err != nil {
			return err
		}
		return inv.printer().list(rowsOf(values, func(v *client.Value) row {
			return row{{"version", "version", v.Version}, {"set_at", "set", timestamp{v.Time}}, {"author", "author", v.Author},
				{"reason", "reason", v.Reason},
				{"data", "data", v.Data}}
		}), "no values")
	})
	return c
}

func configRollback(a *app) *cobra.Command {
	c := command("rollback NAME VERSION", "Set a configuration to a value of its history",
		`Set a configuration to the value that it had at a version that "config history" shows. The value
gets a new version. If another client changes the configuration at the same moment, nothing is set.`)
	reason := addReason(c)
	c.RunE = a.sessionVerb(func(inv *invocation, s *client.Session, args []string) error {
		to, err := strconv.ParseUint(args[1], 10, 64)
		if err != nil {
			return usagef("%q is no version; see signalbox config history %s", args[1], args[0])
		}
		v, err := s.Config(args[0]).Rollback(inv.ctx, to, client.Reason(*reason))
		return inv.report(err, row{{"name", "", args[0]}, {"version", "", v}, {"from", "", to}},
			"%s has the value of version %[3]d, as version %[2]d", args[0], v, to)
	})
	return c
}
