package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestGuards: the verbs of the table have its flags and ask for a reason, the page has the same
// table, and no other verb can be forced or takes a reason that it must have.
func TestGuards(t *testing.T) {
	root := (&app{}).root()
	page, err := os.ReadFile("../../server/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	guarded := map[*cobra.Command]bool{}
	for _, g := range guards {
		c, _, err := root.Find(strings.Fields(g.verb))
		if err != nil || c.CommandPath() != "signalbox "+g.verb {
			t.Fatalf("there is no verb %q: %v", g.verb, err)
		}
		guarded[c] = true
		for flag, has := range map[string]bool{"reason": true, "force": g.inUse != "", "dry-run": g.dryRun != ""} {
			if got := c.Flags().Lookup(flag) != nil; got != has {
				t.Errorf("%s: flag --%s is there: %t, want %t", g.verb, flag, got, has)
			}
		}
		for _, x := range []struct {
			guard guard
			ok    bool
		}{
			{guard{rule: &g}, g.inUse != ""},
			{guard{rule: &g, force: true}, false},
			{guard{rule: &g, force: true, reason: " "}, false},
			{guard{rule: &g, force: true, reason: "broken"}, true},
			{guard{rule: &g, dryRun: true}, true},
		} {
			if err := x.guard.check(); (err == nil) != x.ok {
				t.Errorf("%s: force %t, reason %q, dry run %t: %v", g.verb, x.guard.force, x.guard.reason, x.guard.dryRun, err)
			}
		}
		row := fmt.Sprintf("| `%s` | %s | %s | %s |", g.verb, g.takes, or(g.inUse, "(always needs a reason)"), or(g.dryRun, "-"))
		if !strings.Contains(string(page), row) {
			t.Errorf("OPERATIONS.md lacks the row\n%s", row)
		}
	}
	// Deleting a rollout takes nothing from the users of other rollouts.
	others := map[string]bool{"signalbox rollout delete": true}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if f := c.Flags().Lookup("force"); f != nil && !guarded[c] && !others[c.CommandPath()] {
			t.Errorf("%s has --force and is not in the table of guards", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
}

func or(text, other string) string {
	if text == "" {
		return other
	}
	return text
}
