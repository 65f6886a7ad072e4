package main

import (
	"io"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
)

// usageTemplate is cobra's, with a verb's own flags apart from the settings that all verbs share.
const usageTemplate = `Usage:{{if not .HasAvailableSubCommands}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} COMMAND{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}

Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{flags .}}{{if .HasAvailableSubCommands}}

"{{.CommandPath}} COMMAND --help" tells more about one.{{end}}
`

const helpTemplate = `{{filled . | trimTrailingWhitespaces}}

{{.UsageString}}`

// addTemplateFuncs adds functions to cobra's, of which a process has one table.
var addTemplateFuncs = sync.OnceFunc(func() {
	cobra.AddTemplateFunc("filled", func(cmd *cobra.Command) string {
		width := helpWidth(cmd)
		if cmd.Long != "" {
			return fill(cmd.Long, width)
		}
		return fill(cmd.Short, width) + "."
	})
	cobra.AddTemplateFunc("flags", func(cmd *cobra.Command) string { return flagHelp(cmd, helpWidth(cmd)) })
})

// widthNote is the annotation of the root with the width of help.
const widthNote = "width"

func helpWidth(cmd *cobra.Command) int {
	width, _ := strconv.Atoi(cmd.Root().Annotations[widthNote])
	return width
}

func setHelp(root *cobra.Command, w io.Writer) {
	addTemplateFuncs()
	root.Annotations = map[string]string{widthNote: strconv.Itoa(lineWidth(w))}
	root.SetUsageTemplate(usageTemplate)
	root.SetHelpTemplate(helpTemplate)
}

// lineWidth is that of the terminal, within reason.
func lineWidth(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil {
			return min(max(n, 60), 120)
		}
	}
	return 100
}

func flagHelp(cmd *cobra.Command, width int) string {
	own, shared := pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if settings.InTable(f) {
			shared.AddFlag(f)
		} else {
			own.AddFlag(f)
		}
	})
	text := ""
	if own.HasAvailableFlags() {
		text += "\n\nFlags:\n" + strings.TrimRight(own.FlagUsagesWrapped(width), "\n")
	}
	if shared.HasAvailableFlags() {
		text += "\n\nSettings:\n" + strings.TrimRight(shared.FlagUsagesWrapped(width), "\n")
	}
	return text
}

// fill breaks paragraphs into lines of a width. Lines that begin with a blank stay as they are.
func fill(text string, width int) string {
	var out strings.Builder
	column := 0
	for line := range strings.SplitSeq(text, "\n") {
		if line == "" || line[0] == ' ' {
			if column > 0 {
				out.WriteByte('\n')
			}
			out.WriteString(line + "\n")
			column = 0
			continue
		}
		for word := range strings.FieldsSeq(line) {
			n := len([]rune(word))
			switch {
			case column == 0:
				column = n
			case column+1+n > width:
				out.WriteByte('\n')
				column = n
			default:
				out.WriteByte(' ')
				column += 1 + n
			}
			out.WriteString(word)
		}
	}
	return out.String()
}
