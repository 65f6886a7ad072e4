package main

import (
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/spf13/cobra"
)

func valueRow(name string, v *client.Value) row {
	return row{{"name", "", name}, {"version", "", v.Version}, {"data", "", v.Data}}
}

func (a *app) configCmd() *cobra.Command {
	get := &cobra.Command{
		Use: "get NAME", Short: "Print a configuration's data", Args: cobra.ExactArgs(1),
		Long: `Print a configuration's data exactly as it was set; on a terminal, followed by a newline. -o json includes its version.`,
	}
	get.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		n, err := inv.openNode()
		if err != nil {
			return err
		}
		v, err := n.Config(args[0]).Get(inv.ctx)
		if err != nil {
			return err
		}
		if inv.values["output"] != "table" {
			return inv.printer().item(valueRow(args[0], &v))
		}
		data := v.Data
		if isTerminal(inv.stdout) {
			data = []byte(sanitize(string(data)) + "\n")
		}
		_, err = inv.stdout.Write(data)
		return err
	})

	set := &cobra.Command{
		Use: "set NAME [DATA]", Short: "Set a configuration's data, from an argument, a file or standard input", Args: cobra.RangeArgs(1, 2),
		Example: `  signalbox config set flags '{"dark":true}'
  echo on | signalbox config set flags --data-file -
  signalbox config set flags off --if-version 1`,
	}
	set.Flags().String("data-file", "", "File with the data; - is standard input.")
	ifVersion := set.Flags().Uint64("if-version", 0, "Only if the configuration has this version; 0: only if it is not set.")
	set.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		var data []byte
		file := cmd.Flag("data-file")
		switch {
		case len(args) == 2 && file.Changed:
			return usagef("DATA and --data-file are both given; keep one")
		case len(args) == 2:
			data = []byte(args[1])
		case file.Changed:
			var err error
			if data, err = inv.readFile(file.Value.String()); err != nil {
				return err
			}
		default:
			return usagef("the data is missing; the form is: %s", usageLine(cmd))
		}
		var opts []client.WriteOption
		if cmd.Flag("if-version").Changed {
			opts = append(opts, client.IfVersion(*ifVersion))
		}
		return inv.withSession("config set", func(s *client.Session) error {
			v, err := s.Config(args[0]).Set(inv.ctx, data, opts...)
			if err != nil {
				return err
			}
			return inv.printer().message(row{{"name", "", args[0]}, {"version", "", v}}, "%s has version %d", sanitize(args[0]), v)
		})
	})

	ls := &cobra.Command{Use: "ls [PREFIX]", Short: "List configurations by prefix, in order of name", Args: cobra.MaximumNArgs(1)}
	ls.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		n, err := inv.openNode()
		if err != nil {
			return err
		}
		var rows []row
		for c, err := range n.Configs(inv.ctx, strings.Join(args, ""), client.ReadConsistency(client.Strict)) {
			if err != nil {
				return err
			}
			rows = append(rows, row{{"name", "name", c.Name}, {"version", "version", c.Version}})
		}
		return inv.printer().list(rows, "no configurations")
	})

	remove := &cobra.Command{Use: "delete NAME", Short: "Delete a configuration and its history", Args: cobra.ExactArgs(1)}
	remove.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		return inv.withSession("config delete", func(s *client.Session) error {
			if err := s.Config(args[0]).Delete(inv.ctx); err != nil {
				return err
			}
			return inv.printer().message(row{{"name", "", args[0]}, {"deleted", "", true}}, "deleted %s", sanitize(args[0]))
		})
	})

	history := &cobra.Command{
		Use: "history NAME", Short: "Show a configuration's last values, newest first", Args: cobra.ExactArgs(1),
		Long: `Show the value of a configuration and up to 10 earlier ones, at most 64 KiB together, newest
first. Times are from the clock of the client that set the value. To return to an old value, set
it again.`,
	}
	history.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		n, err := inv.openNode()
		if err != nil {
			return err
		}
		values, err := n.Config(args[0]).History(inv.ctx)
		if err != nil {
			return err
		}
		var rows []row
		for _, v := range values {
			rows = append(rows, row{{"version", "version", v.Version}, {"set_at", "set", timestamp{v.Time}}, {"data", "data", v.Data}})
		}
		return inv.printer().list(rows, "no values")
	})

	watch := &cobra.Command{Use: "watch NAME", Short: "Print a configuration's data and each change, until Ctrl-C", Args: cobra.ExactArgs(1)}
	count := watch.Flags().Uint("count", 0, "Stop after this many values; 0: never.")
	watch.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		out, err := inv.stream()
		if err != nil {
			return err
		}
		n, err := inv.openNode()
		if err != nil {
			return err
		}
		return printEach(inv.longCtx, *count, n.Config(args[0]).Watch(inv.longCtx), func(v client.Value) error {
			r := append(row{{"time", "time", clockTime{time.Now()}}, {"exists", "", v.Exists}}, valueRow(args[0], &v)...)
			if !v.Exists {
				return out.event(append(r, field{"", "data", "not set"}))
			}
			return out.event(append(r, field{"", "version", labelled{"version", v.Version}}, field{"", "data", v.Data}))
		})
	})

	c := group("config", "Small configuration: get, set, list, watch, history", `Small pieces of configuration, up to 1 MiB each, with a version, the last values and watches. Each
is stored in a semaphore of its own; "signalbox sem ls --all" lists them.`, get, set, ls, remove, history, watch)
	for _, s := range c.Commands() {
		addFlags(s.Flags(), scopeClient)
	}
	return c
}
