package main

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
)

func tree() *cobra.Command { return newApp(context.Background(), nil, io.Discard, io.Discard).root() }

func TestReferenceIsUpToDate(t *testing.T) {
	const page = "REFERENCE.md"
	want := reference(tree())
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(got), want); diff != "" {
		t.Errorf("%s is out of date; `make golden` rewrites it:\n%s", page, diff)
	}
}

// TestAdminVerbsExist: each verb that needs the right admin on its node is there by that name.
func TestAdminVerbsExist(t *testing.T) {
	for _, verb := range adminVerbs {
		cmd, rest, err := tree().Find(strings.Fields(verb))
		if err != nil || len(rest) > 0 || cmd.CommandPath() != "signalbox "+verb {
			t.Errorf("there is no verb %q: %v", verb, err)
		}
	}
}

// TestEveryVerbAndFlagSaysWhatItIs: one line for lists, sentences for flags, and a line to copy for
// what runs a command.
func TestEveryVerbAndFlagSaysWhatItIs(t *testing.T) {
	verbs := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Name() == "completion" || cmd.Name() == "help" {
			return // cobra's own
		}
		verbs++
		path := cmd.CommandPath()
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") || !upper(cmd.Short) {
			t.Errorf("%s: its short help %q is no title", path, cmd.Short)
		}
		if strings.Contains(cmd.Use, "COMMAND") && !strings.Contains(cmd.Example, " -- ") {
			t.Errorf("%s runs a command and has no example of it", path)
		}
		for line := range strings.Lines(cmd.Example) {
			if !strings.HasPrefix(line, "  ") || !strings.Contains(line, "signalbox ") {
				t.Errorf("%s: example %q is no command line", path, line)
			}
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			text, _, _ := strings.Cut(f.Usage, " [$")
			if f.Name != "help" && (!strings.HasSuffix(text, ".") || !upper(text) || strings.Count(text, " ") < 2) {
				t.Errorf("%s --%s: %q is no sentence", path, f.Name, f.Usage)
			}
		})
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(tree())
	if verbs < 30 {
		t.Errorf("found %d verbs", verbs)
	}
}

func upper(s string) bool { return s != "" && strings.ToUpper(s[:1]) == s[:1] }

// TestEnvironmentIsOneTable: each setting is in the table once. The names of environment variables
// follow from the flags', so a name means the same to servers and clients.
func TestEnvironmentIsOneTable(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range settings.All {
		if both := s.Flag == "cluster"; seen[s.Flag] && !both {
			t.Errorf("--%s stands twice in the table", s.Flag)
		}
		seen[s.Flag] = true
	}
}
