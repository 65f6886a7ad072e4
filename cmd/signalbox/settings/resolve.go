package settings

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// AddFlags declares the flags of a scope. Values are read with Resolve, never from the flag set
// alone.
func AddFlags(fs *pflag.FlagSet, sc Scope, only ...string) {
	for _, s := range All {
		if s.Scope != sc || (len(only) > 0 && !slices.Contains(only, s.Flag)) {
			continue
		}
		help := s.Help
		if !s.FlagOnly {
			help += " [$" + s.Env() + "]"
		}
		if s.Bool {
			fs.BoolP(s.Flag, s.Short, false, help)
		} else if s.List {
			fs.VarP(new(listValue), s.Flag, s.Short, help)
		} else {
			fs.StringP(s.Flag, s.Short, s.Default, help)
		}
	}
}

// Resolve gives the values of a scope's settings for a command whose flags are parsed. file is the
// content of the configuration file by key, or nil. The order is flags, then environment, then
// file, then default.
//
// named: a flag names where file is from, a context. What a flag names goes before what was
// inherited: the file comes before the environment then. And a context is a whole connection: the
// settings of it that the file leaves out have their defaults, whatever the environment says.
//
// An empty variable is one that is not set, but for what a command under a lease inherits: there it
// says that the context's own value does not count.
func Resolve(cmd *cobra.Command, sc Scope, file map[string]string, named bool) (map[string]string, error) {
	out := map[string]string{}
	underLease := os.Getenv("SIGNALBOX_SESSION") != ""
	for _, s := range All {
		if s.Scope != sc {
			continue
		}
		f := cmd.Flag(s.Flag)
		if f == nil {
			out[s.Flag] = s.Default
			continue
		}
		from, v := "--"+s.Flag, f.DefValue
		env := os.Getenv(s.Env())
		inEnv := env != "" || underLease && slices.Contains(held, s.Flag)
		x, inFile := file[s.Flag]
		if named && (inFile || slices.Contains(connection, s.Flag)) {
			inEnv = false
		}
		switch {
		case f.Changed:
			v = f.Value.String()
		case inEnv:
			from, v = "$"+s.Env(), env
		case inFile:
			from, v = "key "+s.Flag, x
		}
		if s.Bool {
			on, err := strconv.ParseBool(v)
			if err != nil {
				return nil, Errorf("%s %q is neither true nor false", from, v)
			}
			v = strconv.FormatBool(on)
		}
		out[s.Flag] = v
	}
	return out, nil
}

// InTable reports whether a flag is a setting. Its name is not enough: serve's --data is a setting,
// and others are not.
func InTable(f *pflag.Flag) bool {
	return slices.ContainsFunc(All, func(s Setting) bool {
		return s.Flag == f.Name && strings.HasPrefix(f.Usage, s.Help)
	})
}

// listValue joins the values of a flag that is given several times.
type listValue struct{ text string }

func (l *listValue) String() string { return l.text }
func (l *listValue) Type() string   { return "list" }
func (l *listValue) Set(text string) error {
	if l.text != "" {
		l.text += ","
	}
	l.text += text
	return nil
}

// Split splits at commas. It ignores blanks around items, and empty items.
func Split(text string) (list []string) {
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list
}

// Error is an error of the command line itself, the environment or a file of settings.
type Error struct{ Text string }

func (e *Error) Error() string { return e.Text }

// Errorf makes an Error.
func Errorf(format string, args ...any) error { return &Error{fmt.Sprintf(format, args...)} }
