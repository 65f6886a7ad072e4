package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
	"github.com/signalbox-dev/signalbox/server/logging"
	"github.com/signalbox-dev/signalbox/server/release"
)

// app is one run of the command line.
type app struct {
	streams
	values    map[string]string // resolved client settings, once a verb runs
	verbPath  string            // of the verb that runs, for hints
	right     string            // that it needs on its node by what it has begun, read or use; see rightsHint
	warned    bool              // of unknown variables
	exitCodes map[int]int       // chosen by the user, by ours
	afterRead func()            // begins --timeout again, once a file or standard input was read; nil: no verb runs

	logging       *logging.Log // of an instance, once its settings are read
	rereadLogging func() error // reads its level and format again; nil: there is no file to read

	hangups chan os.Signal // SIGHUPs that an instance handles, from before its start; nil: SIGHUP stops it
}

// newApp returns a run of the command line, which is asked to end when ctx ends.
func newApp(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) *app {
	return &app{streams: streams{stdin: stdin, stdout: stdout, stderr: stderr, reports: newStream(stdout),
		notes: newStream(stderr), stopping: ctx.Done()}}
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use: "signalbox",

		SuggestionsMinimumDistance: 2,
		Short:                      "Locks, elections, discovery and small configuration for distributed services",
		Long: `signalbox coordinates distributed services: sessions and counting semaphores, and what is built on
them.

Start a server with "signalbox dev" (temporary) or "signalbox serve", then try
  signalbox lock backup -- sleep 5
  signalbox sem describe backup

Exit codes: 0 ok, 1 error, 2 usage, 3 not acquired in time, 4 lost while holding, 5 unreachable,
6 a difference that apply --dry-run found, else the code of the command that was run.`,
		SilenceUsage:      true,
		SilenceErrors:     true,
		DisableAutoGenTag: true,

		DisableFlagsInUseLine: true,
		Args:                  checkSubcommand,
	}
	showVersion := root.Flags().Bool("version", false, "Print the version; signalbox version prints more.")
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if *showVersion {
			_, err := fmt.Fprintln(a.output(), "signalbox", release.Current().Version)
			return err
		}
		return cmd.Help()
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		var invalid *pflag.InvalidValueError
		var number *strconv.NumError
		switch {
		case !errors.As(err, &invalid):
		case errors.As(err, &number): // of pflag's own types
			err = fmt.Errorf("--%s %q is %s", invalid.GetFlag().Name, invalid.GetValue(), notOfType(invalid.GetFlag()))
		default: // our own sentence, which begins with the value
			err = fmt.Errorf("--%s %w", invalid.GetFlag().Name, invalid.Unwrap())
		}
		return usagef("%v; see %s --help", err, cmd.CommandPath())
	})
	root.AddCommand(
		devCmd(a), serveCmd(a),
		lockCmd(a), onceCmd(a), semCmd(a), electCmd(a), serviceCmd(a), configCmd(a),
		rolloutCmd(a), processCmd(a), limitCmd(a), nodeCmd(a), sessionCmd(a), applyCmd(a), exportCmd(a), clusterCmd(a),
		authCmd(a), consoleCmd(a), httpCmd(a), topCmd(a), loadCmd(a),
		contextCmd(a), versionCmd(a),
	)
	initDefaults(root)
	wrapArgs(root)
	setHelp(root, a.stdout)
	setCompletion(a, root)
	return root
}

// notOfType describes the fault of a value of one of pflag's own types.
func notOfType(f *pflag.Flag) string {
	switch t := f.Value.Type(); {
	case t == "bool":
		return "neither true nor false"
	case strings.HasPrefix(t, "uint"):
		return "not a whole number from 0"
	case strings.HasPrefix(t, "float"):
		return "not a number"
	}
	return "not a whole number"
}

// initDefaults adds the verbs that cobra has, and has them refuse unknown words.
func initDefaults(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Args = func(_ *cobra.Command, args []string) error {
				about, rest, err := root.Find(args)
				if err == nil && about.HasSubCommands() {
					err = checkSubcommand(about, rest)
				}
				return err
			}
		case "completion":
			c.Args, c.RunE = checkSubcommand, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
}

// wrapArgs turns wrong numbers of arguments into usage errors that show the verb's form.
func wrapArgs(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			var ue *settings.Error
			if err != nil && !errors.As(err, &ue) {
				return usagef("%v; the form is: %s", err, usageLine(cmd))
			}
			return err
		}
	}
	for _, c := range cmd.Commands() {
		wrapArgs(c)
	}
}

// anyChanged reports whether one of a verb's own flags is given, beside those.
func anyChanged(c *cobra.Command, beside ...string) (given bool) {
	c.Flags().Visit(func(f *pflag.Flag) {
		given = given || !settings.InTable(f) && !slices.Contains(beside, f.Name)
	})
	return given
}

// usageLine is how a verb is written, without its flags.
func usageLine(cmd *cobra.Command) string { return strings.TrimSuffix(cmd.UseLine(), " [flags]") }

// command makes a verb of its form, a title, and a long help if the title is not enough. The check
// of arguments follows from the form: NAME is one, [NAME] may be left out, NAME... may be repeated.
// A verb whose form has -- checks the arguments itself.
func command(form, short, long string) *cobra.Command {
	c := &cobra.Command{Use: form, Short: short, Long: long}
	needed, optional, repeated := 0, 0, false
	for _, word := range strings.Fields(form)[1:] {
		switch {
		case word == "--" || word == "[--":
			return c
		case strings.HasPrefix(word, "--"): // of a flag, and its value follows
			needed--
		case word[0] == '[':
			optional++
		default:
			needed++
		}
		repeated = repeated || strings.Contains(word, "...")
	}
	switch {
	case repeated:
		c.Args = cobra.MinimumNArgs(needed)
	case optional == 0 && needed == 0:
		c.Args = cobra.NoArgs
	case optional == 0:
		c.Args = cobra.ExactArgs(needed)
	case needed == 0:
		c.Args = cobra.MaximumNArgs(optional)
	default:
		c.Args = cobra.RangeArgs(needed, needed+optional)
	}
	return c
}

// group is a verb that only has verbs below it, all with the settings of clients unless they have
// their own. Alone it prints its help, and an unknown verb is a usage error.
func group(use, short, long string, subs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Long: long,
		Args:                       checkSubcommand,
		SuggestionsMinimumDistance: 2,
		DisableFlagsInUseLine:      true,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, s := range subs {
		if s.Flags().Lookup("output") == nil {
			settings.AddFlags(s.Flags(), settings.Client)
		}
	}
	c.AddCommand(subs...)
	return c
}

func (a *app) resolveClient(cmd *cobra.Command) error {
	first, err := settings.Resolve(cmd, settings.Client, nil, false)
	if err != nil {
		return err
	}
	f, err := settings.ReadClientFile(first["client-config"])
	if err != nil {
		return err
	}
	own, err := f.Settings(first["context"])
	if err != nil {
		return err
	}
	values, err := settings.Resolve(cmd, settings.Client, own,
		own != nil && (given(cmd, "context") || given(cmd, "client-config")))
	if err != nil {
		return err
	}
	if values["context"] == "" && f.Current != "" {
		// a command under a lease uses it too, even if another is current then
		values["context"], values["client-config"] = f.Current, f.Path
	}
	return a.setValues(values)
}

// given reports whether a flag is on the command line with a value that is not empty.
func given(cmd *cobra.Command, flag string) bool {
	f := cmd.Flag(flag)
	return f != nil && f.Changed && f.Value.String() != ""
}

func (a *app) setValues(values map[string]string) error {
	a.values = values
	switch values["output"] {
	case "table", "json", "jsonl":
		return nil
	}
	return usagef("--output %q is unknown; choose table, json or jsonl", values["output"])
}

// checkSubcommand rejects arguments of a verb that only has verbs below it.
func checkSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return usagef("%s; did you mean %s?", text, strings.Join(near, " or "))
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" {
			names = append(names, c.Name())
		}
	}
	return usagef("%s; it has: %s", text, strings.Join(names, ", "))
}

func (a *app) printer() *printer {
	return &printer{w: a.output(), format: a.values["output"], color: a.color(a.stdout)}
}

// reporter is the printer for the reports of a verb whose main work takes long.
func (a *app) reporter() *printer {
	p := a.printer()
	p.w = a.reports
	return p
}

// stream gives the printer of verbs whose events have no end. One JSON document cannot hold them.
func (a *app) stream() (*printer, error) {
	if a.values["output"] == "json" {
		return nil, usagef(
			"--output json is one document, and this prints one for each event, without an end; choose jsonl, which is one a line")
	}
	return a.printer(), nil
}

// reportStream is stream for events that a verb reports while it does something else.
func (a *app) reportStream() (*printer, error) {
	p, err := a.stream()
	if err == nil {
		p.w = a.reports
	}
	return p, err
}

// color reports whether a writer of this process takes colors.
func (a *app) color(w any) bool {
	return a.values["no-color"] != "true" && os.Getenv("NO_COLOR") == "" && terminal.Is(w)
}
