package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

func contextCmd(a *app) *cobra.Command {
	return group("context", "Contexts: settings of a connection under a name",
		`Contexts are settings of connections under names, in the client's configuration file. --context
NAME uses one, else the current one counts. Flags come before it, and environment variables unless
--context names it: then none of them decides where to connect, or with which credentials.

  signalbox context set production --endpoints 10.0.0.1:7070,10.0.0.2:7070 --node /billing
  signalbox context use production
  signalbox sem ls`,
		contextLs(a), contextUse(a), contextSet(a), contextDelete(a))
}

// contextVerb is a verb about the client's configuration file, asked. The settings of its contexts
// do not count: the current one may be missing, or wrong.
func contextVerb(
	a *app, c *cobra.Command, fn func(cmd *cobra.Command, asked string, args []string) error, flags ...string,
) *cobra.Command {
	settings.AddFlags(c.Flags(), settings.Client, append(flags, "output", "no-color", "client-config")...)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		warnEnvironment(a, os.Environ())
		a.verbPath = strings.TrimPrefix(cmd.CommandPath(), "signalbox ")
		values, err := settings.Resolve(cmd, settings.Client, nil, false)
		if err != nil {
			return err
		}
		if err := a.setValues(values); err != nil {
			return err
		}
		return fn(cmd, values["client-config"], args)
	}
	return c
}

func contextLs(a *app) *cobra.Command {
	c := command("ls", "List the contexts, by name", "")
	return contextVerb(a, c, func(_ *cobra.Command, asked string, _ []string) error {
		f, err := settings.ReadClientFile(asked)
		if err != nil {
			return err
		}
		var rows []row
		for _, name := range f.Names() {
			own, err := f.Settings(name)
			if err != nil {
				return err
			}
			var stored row
			for _, s := range settings.OfClient {
				if v, ok := own[s.Flag]; ok {
					stored = append(stored, field{s.Flag, "", v})
				}
			}
			all := withDefaults(own)
			rows = append(rows, row{{"name", "name", name}, {"current", "current", name == f.Current},
				{"", "endpoints", all["endpoints"]}, {"", "node", all["node"]}, {"settings", "", stored}})
		}
		return a.printer().list(rows, "no contexts; `signalbox context set NAME --endpoints HOST:PORT` makes one")
	})
}

func contextUse(a *app) *cobra.Command {
	c := command("use NAME", "Make a context the current one", "")
	return contextVerb(a, c, func(_ *cobra.Command, asked string, args []string) error {
		f, err := settings.ReadClientFile(asked)
		if err != nil {
			return err
		}
		if args[0] == "" {
			return usagef("the name is empty; `signalbox context ls` lists the names")
		}
		if _, err := f.Settings(args[0]); err != nil {
			return err
		}
		err = settings.EditClientFile(asked, func(_ string, root *yaml.Node) error {
			settings.MapValue(root, "current", true).SetString(args[0])
			return nil
		})
		return a.printer().report(err, row{{"name", "", args[0]}, {"current", "", true}}, "%s is the current context",
			args[0])
	})
}

func contextSet(a *app) *cobra.Command {
	c := command("set NAME", "Make a context, or change settings of one",
		`Make a context of the settings that are given as flags, or change these settings of a context. An
empty value removes a setting. Names of files are stored as absolute paths, and the files are not
read. The configuration file is made with mode 0600 if it does not exist.`)
	c.Example = `  signalbox context set production --endpoints 10.0.0.1:7070,10.0.0.2:7070 --node /billing
  signalbox context set production --token-file ~/.signalbox-token --tls`
	return contextVerb(a, c, func(cmd *cobra.Command, asked string, args []string) error {
		name := args[0]
		if name == "" || terminal.Sanitize(name) != name {
			return usagef("%q is not a name for a context; give one of printable characters", name)
		}
		if !slices.ContainsFunc(settings.OfContext, cmd.Flags().Changed) {
			return usagef("no setting is given; give at least one, such as --endpoints HOST:PORT")
		}
		err := settings.EditClientFile(asked, func(path string, root *yaml.Node) error {
			contexts := settings.MapValue(root, "contexts", true)
			if !settings.MakeMapping(contexts) {
				return usagef("%s: the contexts are no mapping; edit it by hand", path)
			}
			context := settings.MapValue(contexts, name, true)
			if settings.MakeMapping(context) {
				if err := storeSettings(cmd, context); err != nil {
					return err
				}
			}
			own, err := settings.ReadKeys(path, context, settings.Client)
			if err != nil {
				return err
			}
			return new(invocation).readValues(withDefaults(own))
		})
		return a.printer().report(err, row{{"name", "", name}, {"set", "", true}},
			"set %s; use it with --context, or make it the current one with `signalbox context use`", name)
	}, settings.OfContext...)
}

// storeSettings writes the settings that were given as flags to a context.
func storeSettings(cmd *cobra.Command, context *yaml.Node) error {
	for _, s := range settings.OfClient {
		f := cmd.Flag(s.Flag)
		if !slices.Contains(settings.OfContext, s.Flag) || !f.Changed {
			continue
		}
		text := f.Value.String()
		if text == "" {
			settings.DeleteKey(context, s.Flag)
			continue
		}
		if slices.Contains(settings.Paths, s.Flag) {
			var err error
			if text, err = filepath.Abs(text); err != nil {
				return err
			}
		}
		v := settings.MapValue(context, s.Flag, true)
		v.Content = nil
		v.SetString(text)
		if s.Bool {
			v.Tag = "!!bool" // without quotes
		}
	}
	return nil
}

func contextDelete(a *app) *cobra.Command {
	c := command("delete NAME", "Delete a context",
		"Delete a context. If it is the current one, none is afterwards, and the flags' defaults hold.")
	return contextVerb(a, c, func(_ *cobra.Command, asked string, args []string) error {
		f, err := settings.ReadClientFile(asked)
		if err != nil {
			return err
		}
		if _, ok := f.Contexts[args[0]]; !ok {
			return usagef("%s has no context %q; `signalbox context ls` lists the names", f.Path, args[0])
		}
		current := f.Current == args[0]
		err = settings.EditClientFile(asked, func(path string, root *yaml.Node) error {
			if !settings.DeleteKey(settings.MapValue(root, "contexts", false), args[0]) {
				return usagef("%s has the context %q elsewhere; edit it by hand", path, args[0])
			}
			if current {
				settings.DeleteKey(root, "current")
			}
			return nil
		})
		if err != nil {
			return err
		}
		text := "deleted context %s"
		if current {
			text += ", which was the current one; none is now"
		}
		return a.printer().message(row{{"name", "", args[0]}, {"deleted", "", true}}, text, args[0])
	})
}

// withDefaults adds the defaults of the settings that a context leaves out.
func withDefaults(own map[string]string) map[string]string {
	all := map[string]string{}
	for _, s := range settings.OfClient {
		all[s.Flag] = s.Default
		if v, ok := own[s.Flag]; ok {
			all[s.Flag] = v
		}
	}
	return all
}

// contextNames completes the names of contexts.
func contextNames(cmd *cobra.Command, args []string, typed string) (names []string, _ cobra.ShellCompDirective) {
	values, err := settings.Resolve(cmd, settings.Client, nil, false)
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	f, _ := settings.ReadClientFile(values["client-config"])
	for _, name := range f.Names() {
		if strings.HasPrefix(name, typed) && name == terminal.Sanitize(name) && !strings.ContainsAny(name, " \t") {
			names = append(names, name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
