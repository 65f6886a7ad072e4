package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
)

// reference writes the page of all verbs and settings from the command tree and the table of
// settings.
func reference(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("# signalbox: reference of the command line\n\nWritten from the tables in `cmd/signalbox`; `make golden` rewrites it.\n\n## Settings\n\n")
	b.WriteString(settingsOrder)
	for _, s := range []struct {
		title string
		scope settings.Scope
	}{{"Verbs that talk to a server (file: a context of the client's configuration file)", settings.Client},
		{"serve (file: --config)", settings.Serve}} {
		fmt.Fprintf(&b, "\n### %s\n\n", s.title)
		for _, x := range settings.All {
			if x.Scope != s.scope {
				continue
			}
			b.WriteString(flagItem(x.Short, x.Flag, x.Env(), x.Default, x.Help))
		}
	}
	b.WriteString("\nThe client's configuration file holds named contexts, one of them current. `signalbox context` makes\nand chooses them:\n\n```yaml\ncurrent: production\ncontexts:\n  production:\n    endpoints: 10.0.0.1:7070,10.0.0.2:7070\n    node: /billing\n  local:\n    endpoints: 127.0.0.1:7070\n```\n\n## Verbs\n")
	verbs(&b, root, map[string]string{})
	b.WriteString("\n## Exit codes\n\n| code | |\n|---|---|\n| 0 | ok |\n| 1 | error: the server refused, an instance that was reached did not answer in time, a file could not be written |\n| 2 | the command line, a variable or a file of settings is wrong |\n| 3 | not acquired: the wait ended, or was interrupted, or the place in the queue was lost |\n| 4 | lost while holding |\n| 5 | no instance could be reached, or none can serve the request now |\n| 6 | a dry run found a difference |\n| 141 | the output is not read any more |\n| other | of the command that was run: its own, 128 + n when signal n ended it, 126 when it cannot be run, 127 when it is not found |\n")
	return b.String()
}

// settingsOrder says where a setting's value comes from.
const settingsOrder = `A setting has the value of the first of these sources that gives one. Files hold the flags' names as
keys.

| order | source | |
|---|---|---|
| 1 | flag | |
| 2 | a context that a flag names | Of --context, or of a file that --client-config names. The context is a whole connection: an endpoint, node, token or TLS setting that it leaves out has its default, whatever the environment says. |
| 3 | environment | Also what a command under signalbox lock inherits. An empty variable counts only there. |
| 4 | file | The context that SIGNALBOX_CONTEXT names, else the current one; for serve the file of --config. |
| 5 | default | |
`

// flagItem is a flag as an item of a list, with its variable and its default if it has them.
func flagItem(short, name, variable, def, help string) string {
	item := "- `"
	if short != "" {
		item += "-" + short + ", "
	}
	item += "--" + name + "`"
	if variable != "" {
		item += ", `" + variable + "`"
	}
	if def != "" {
		item += " (default `" + def + "`)"
	}
	return item + ": " + help + "\n"
}

// verbs writes the verbs below a command. A flag that means the same as one of a verb before is only named: first has
// the verb that explains it.
func verbs(b *strings.Builder, cmd *cobra.Command, first map[string]string) {
	for _, c := range cmd.Commands() {
		if c.Name() == "help" || c.Name() == "completion" || c.Hidden {
			continue
		}
		if !c.HasSubCommands() {
			fmt.Fprintf(b, "\n### `%s`\n\n", strings.TrimSuffix(c.UseLine(), " [flags]"))
			if c.Long != "" {
				fmt.Fprintf(b, "%s\n", pageText(c.Long))
			} else {
				fmt.Fprintf(b, "%s.\n", c.Short)
			}
			var own, before []string // flags that are explained here; verbs that explained others
			again := map[string][]string{}
			c.LocalFlags().VisitAll(func(f *pflag.Flag) {
				if f.Name == "help" || settings.InTable(f) && !ownDefault(f) {
					return
				}
				def := f.DefValue
				if def == "false" || def == "[]" || def == "0" && strings.Contains(f.Usage, "default") {
					def = "" // none, or the text says which
				}
				help := f.Usage
				if settings.InTable(f) {
					help = "As in [the settings](#settings)."
				}
				item := flagItem(f.Shorthand, f.Name, "", def, help)
				switch verb := first[item]; {
				case verb == "" || len(strings.Fields(item)) < 12:
					own = append(own, item)
					first[item] = c.CommandPath()
				default:
					if again[verb] == nil {
						before = append(before, verb)
					}
					again[verb] = append(again[verb], "`--"+f.Name+"`")
				}
			})
			for _, verb := range before {
				own = append(own, fmt.Sprintf("- %s: as of `%s`.\n", strings.Join(again[verb], ", "), verb))
			}
			if len(own) > 0 {
				fmt.Fprintf(b, "\n%s", strings.Join(own, ""))
			}
		}
		verbs(b, c, first)
	}
}

// ownDefault reports whether a verb's default of a setting is not the table's.
func ownDefault(f *pflag.Flag) bool {
	return !slices.ContainsFunc(settings.All, func(s settings.Setting) bool {
		return s.Flag == f.Name && (s.Default == f.DefValue || s.Bool && f.DefValue == "false")
	})
}

// pageText is a verb's long help for the page: indented lines that are no list become an example.
func pageText(long string) string {
	var b strings.Builder
	example, blank := false, ""
	for line := range strings.SplitSeq(strings.TrimRight(fill(long, 100), "\n"), "\n") {
		if example && line == "" { // it is of the example if that goes on
			blank = "\n"
			continue
		}
		indented := strings.HasPrefix(line, "  ") && !strings.HasPrefix(line, "  - ") && !strings.HasPrefix(line, "    ")
		if indented != example && !strings.HasPrefix(line, "    ") {
			b.WriteString("```\n")
			example = indented
		}
		b.WriteString(blank + line + "\n")
		blank = ""
	}
	if example {
		b.WriteString("```\n")
	}
	return strings.TrimRight(b.String(), "\n")
}
