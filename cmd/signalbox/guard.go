package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// guardRule is the one rule for a verb that takes something from everybody who uses it: it is
// refused while that is in use, unless it is forced; force needs a reason; a dry run shows what
// would go. OPERATIONS has the same table; a test compares the two.
type guardRule struct {
	verb  string
	takes string // what goes, for whom
	inUse string // when it is refused without --force; empty: it needs no force but always a reason
	// dryRun says what --dry-run shows; empty: there is none, and why is in takes or in the page.
	dryRun string
}

// guards are those verbs. The instance that is asked enforces what inUse says, for the
// command line, the console and programs alike.
var guards = []guardRule{
	{"node delete", "a namespace: its sessions end, and all that they hold and that it keeps is gone",
		"it has sessions, semaphores, configurations, processes, rollouts or rate limits", "what it has, counted"},
	{"sem delete", "a semaphore: owners lose it, waiters are rejected", "it has owners or waiters",
		"its owners and waiters"},
	{"sem force-release", "units of owners, whose sessions stay", "", "the owners"},
	{"session kill", "a session with all that it holds", "", "what it holds"},
	{"limit create", "a resource from the programs that use it: with a child below it, their calls fail",
		"sessions use the resource that it is to be below", ""},
	{"limit delete", "a resource from the programs that use it: their calls fail", "sessions use it", ""},
	{"auth disable", "the protection of everything: every client may do everything", "authentication is on", ""},
	{"cluster expel", "an instance, for good", "it is up or leads shards", ""},
	{"cluster replication-factor", "copies of everything in a tier", "the factor is lower than before", ""},
	{"cluster recover", "what the lost majority had and the given folders have not", "", "the logs"},
}

// guard has the flags of such a verb.
type guard struct {
	rule          *guardRule
	force, dryRun bool
	reason        string
}

// addGuard adds the flags that the verb's rule asks for.
func addGuard(c *cobra.Command, verb string) *guard {
	g := &guard{rule: ruleOf(verb)}
	when := "Reason, for the audit log; required with --force."
	if g.rule.inUse == "" {
		when = "Reason, for those who lose something and for the records; required."
	} else {
		c.Flags().BoolVar(&g.force, "force", false, "Go ahead although "+g.rule.inUse+"; needs --reason.")
	}
	c.Flags().StringVar(&g.reason, "reason", "", when)
	if g.rule.dryRun != "" {
		c.Flags().BoolVar(&g.dryRun, "dry-run", false, "Show "+g.rule.dryRun+", and change nothing.")
	}
	return g
}

func ruleOf(verb string) *guardRule {
	for i := range guards {
		if guards[i].verb == verb {
			return &guards[i]
		}
	}
	panic("the table of guards has no verb " + verb)
}

// check refuses a run without a reason if it is forced or always takes something. A dry run needs
// none.
func (g *guard) check() error {
	if strings.TrimSpace(g.reason) != "" || g.dryRun || g.rule.inUse != "" && !g.force {
		return nil
	}
	if g.rule.inUse == "" {
		return usagef("--reason is missing: say why, for those who lose something and for the audit log")
	}
	return usagef("--reason is missing: --force needs one; say why, for the audit log")
}
