package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/backup"
	"github.com/signalbox-dev/signalbox/server/datafolder"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func restoreCmd(a *app) *cobra.Command {
	c := command("restore FILE", "Create a new cluster of one instance from a backup, or restore one more tier of it",
		`Create a new cluster of one instance, in a new data folder, from a backup. No server is asked. The
file, or standard input with -, is checked first as with backup --verify; it is read into memory
completely. It takes every flag
of serve, and prints the command that starts the instance. It does not listen: another server may
use the addresses meanwhile. Only with --peer does the instance take its raft address.

If it fails, remove the folder and repeat it. A start refuses the incomplete folder, and
with --existing also a missing one.

Coordination nodes, rights, tokens, sessions, semaphores, owners and waiters are as in the backup.
Clients attach their sessions again, as after a leader change: a session has its timeout and the
grace period for that, and its time stands still until the instance serves. Writes acknowledged
after the backup are missing. Stop the old cluster for good first, or two clients may hold one
lock. Fencing tokens continue far above those of the old cluster, so none is given out twice.

Tokens are those of the backup, which are listed with its time: one that was revoked later is valid
again, until it is revoked once more. With --drop-tokens none of them is taken. If authentication is on, the cluster then has
a new administrator's token in the file admin-token of the folder, or the one of --admin-token-file.

The new cluster has its own id and keys, so instances of the old one cannot join it. A client that
is connected to the old cluster does not switch to the new one: restart the client's process, and
it takes over its saved session.

With --keep-clients they go on by themselves: they know the new cluster by the old one's id. All
sessions of the backup have ended then, so clients lose their leases, start new sessions and acquire
again, and no client relies on changes after the backup. An address that they know must lead to the
new cluster. It is unsafe while any instance of the old cluster may still serve or come back with
its folder: clients would take both for one cluster, and two may hold one lock.

A cluster with data in several tiers gets the tiers that it had, unless --tiers says otherwise; name
those with data as in the backup. This instance restores its own tier, and the new cluster serves
that one at once. Then restore each other tier from the same file: with its --tier, --peer and the
join token, to a data folder of its own, while the cluster runs. Until that is done the tier serves
nothing. If it is interrupted, run it again with the same folder. Start the instance with serve as
soon as it ends: the cluster counts on its vote.

Only --peer on the command line means one more tier. Peers in the environment or the --config file
are for serve; without --peer, a new cluster is created. It begins with one copy of everything,
even with --replication-factor or --tiers: raise the factor before others join.`)
	c.Example = `  signalbox cluster restore cluster.backup --data ./restored
  signalbox serve --existing --data ./restored
  signalbox cluster restore cluster.backup --data ./cold --tier cold --peer 10.0.0.1:7071 --join-token-file ./restored/join-token`
	c.Annotations = map[string]string{offline: ""}
	dropTokens := c.Flags().Bool("drop-tokens", false, "Drop all tokens of the backup.")
	keepClients := c.Flags().Bool("keep-clients", false,
		"Have running clients of the old cluster go on with this one. Only where the old cluster is gone for good.")
	c.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		if args[0] == "" {
			return errNoFile
		}
		_, cfg, err := readServer(a, cmd)
		if err != nil {
			return err
		}
		if !cmd.Flags().Changed("peer") { // the instance's own settings do not say that it joins
			cfg.Peers = nil
		} else {
			a.note("signalbox: --peer is given, so this restores one more tier to the cluster there; " +
				"without it, a new cluster is made\n")
		}
		from, err := readBackup(inv.longCtx, args[0], a.stdin, backup.Load)
		if err != nil {
			return fmt.Errorf("%s: %w", inputName(args[0]), err)
		}
		datafolder.Private()
		done, err := server.Restore(inv.longCtx, cfg, from,
			server.RestoreOptions{DropTokens: *dropTokens, KeepClients: *keepClients})
		if err != nil {
			return err
		}
		return printRestored(inv.printer(), args[0], cfg.DataDir, serveLine(cmd.Flags(), cfg.DataDir), from, &done)
	})
	settings.AddFlags(c.Flags(), settings.Serve)
	settings.AddFlags(c.Flags(), settings.Client, "output", "no-color")
	return c
}

// serveLine starts the instance that was restored: serve with the flags that restore had.
func serveLine(flags *pflag.FlagSet, dir string) string {
	words := []string{"signalbox", "serve", "--existing", "--data", shellWord(dir)}
	flags.Visit(func(f *pflag.Flag) {
		if f.Name == "data" || f.Name == "existing" || !slices.ContainsFunc(settings.All, func(s settings.Setting) bool {
			return s.Scope == settings.Serve && s.Flag == f.Name
		}) {
			return
		}
		switch {
		case f.Name == "join-token":
			words = append(words, "--join-token", "...") // a secret: it stays out of logs
		case f.Value.Type() == "bool":
			words = append(words, "--"+f.Name+"="+f.Value.String())
		default:
			words = append(words, "--"+f.Name, shellWord(f.Value.String()))
		}
	})
	return strings.Join(words, " ")
}

// shellWord is a word of a command line for a shell.
func shellWord(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("/.:,=@%+-_", r) && (r > 'z' || !unicode.IsLetter(r) && !unicode.IsDigit(r))
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func printRestored(p *printer, path, dir, start string, from *backup.Source, done *server.Restored) error {
	tokens := make([]string, 0, len(done.Tokens))
	for _, t := range done.Tokens {
		tokens = append(tokens, t.ID)
	}
	r := row{{"file", "", path}, {"data", "", dir}, {"sessions", "", done.Sessions},
		{"semaphores", "", done.Semaphores}, {"start", "", start}, {"tokens", "", tokens}}
	what := inputName(path)
	if len(from.DataTiers) > 1 || len(done.Left) > 0 {
		r = append(r, field{"tier", "", done.Tier})
		what = fmt.Sprintf("tier %s of %s", done.Tier, what)
	}
	text := "%s is restored to %s: %s, %s; start it with:\n  %s" // a line of its own, to copy
	args := []any{what, dir, count(uint64(done.Sessions), "session"), count(uint64(done.Semaphores), "semaphore"), start}
	line := func(format string, words ...any) { text, args = text+"\n"+format, append(args, words...) }
	if len(done.Left) > 0 {
		r = append(r, field{"to_be_restored", "", done.Left})
		line("then restore %s from the same file, each with --tier and --peer", strings.Join(done.Left, ", "))
	}
	if len(done.OneCopy) > 0 {
		factors := map[string]uint32{}
		for _, t := range done.OneCopy {
			factors[t.Name] = t.ReplicationFactor
			line("it has one copy of everything; when it runs, and before others join, make it %d: signalbox cluster replication-factor %s %d",
				t.ReplicationFactor, t.Name, t.ReplicationFactor)
		}
		r = append(r, field{"one_copy", "", factors})
	}
	if done.AdminToken != "" {
		r = append(r, field{"admin_token", "", done.AdminToken})
		line("the tokens of the backup are dropped, and the administrator's token is %s", done.AdminToken)
	} else if len(tokens) > 0 {
		line("tokens are as they were when the backup was made, %s: %s; one that was revoked later is valid again",
			time.UnixMilli(from.MadeMS).UTC().Format(time.RFC3339), strings.Join(tokens, ", "))
	}
	return p.message(r, text, args...)
}
