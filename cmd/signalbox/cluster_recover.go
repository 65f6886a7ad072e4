package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"time"

	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
	"github.com/signalbox-dev/signalbox/server/audit"
	"github.com/signalbox-dev/signalbox/server/backup"
	"github.com/signalbox-dev/signalbox/server/file"
	"github.com/signalbox-dev/signalbox/server/recovery"
	"github.com/spf13/cobra"
)

// recoverWarning is printed before anything is written.
const recoverWarning = `WARNING: this is for a cluster whose majority is gone for good. Writes that only the lost
instances acknowledged are lost, and it cannot be known which. No instance of the old cluster may
ever run again: two clients could hold one lock.
`

func recoverCmd(a *app) *cobra.Command {
	c := command("recover FILE", "Rebuild a backup from the data folders of a cluster that lost its majority",
		`Use this when the disks of a majority are gone for good. It reads the data folders of stopped
instances and writes the newest state into FILE, a backup. No server is asked, and the folders are
not changed. Then create the new cluster with "signalbox cluster restore". server/RECOVERY.md
describes the procedure.

It is the last resort. While a majority of the disks exists, start those instances: nothing is
lost then. A backup made in time is complete. This one is not:

  - A write that only lost instances acknowledged is lost. It cannot be known which writes
    those are.
  - A write that was never acknowledged may take effect, as after any lost answer.
  - Each shard is read from its newest log, so each is as of its own moment.

Give every folder that is left. For each shard, the log whose last entry has the highest term is
read, and among those the longest. The log of a replica that was removed from its shard is not
read. --dry-run shows all logs and their last entries, and writes nothing. A folder is refused if
an instance uses it, or if it belongs to another cluster. A set of folders that lacks a shard is
refused too. So is a log that is damaged, is behind its watermark, or has none: acknowledged writes
may be missing. If nothing else is left, --accept-loss reads the intact part of such a log, and
prints the known losses, as --dry-run does.

Fencing tokens, session ids and epochs continue in the new cluster far above those of the old one,
so none is given out twice. Sessions have their timeout and the grace period to attach again. The
new cluster has its own id: instances of the old one cannot join it.

User, time, reason, folders and known losses are stored in the file ("cluster backup --verify" shows
them) and written to the audit log: FILE.audit unless --audit names another.`)
	c.Example = `  signalbox cluster recover saved.backup --survivor /var/lib/signalbox --dry-run
  signalbox cluster recover saved.backup --survivor /var/lib/signalbox --reason 'racks 1 and 2 burnt'
  signalbox cluster restore saved.backup --data /var/lib/signalbox-new`
	folders := c.Flags().StringArray("survivor", nil, "Data folder of a surviving instance; may be given several times.")
	g := addGuard(c, "cluster recover")
	dest := c.Flags().String("audit", "", "Audit log to add a line to: a file, or stderr. Default: FILE.audit.")
	work := c.Flags().String("work", "", "Folder for copies of the logs while they are read. Default: beside FILE.")
	accept := c.Flags().Bool("accept-loss", false,
		"Also read logs that are damaged, are behind their watermark, or have none; missing entries are lost.")
	c.Annotations = map[string]string{offline: ""}
	c.RunE = a.verb(func(inv *invocation, _ *cobra.Command, args []string) error {
		if len(*folders) == 0 {
			return usagef("--survivor is missing: give the data folder of each surviving instance")
		}
		if err := g.check(); err != nil {
			return err
		}
		path := filepath.Clean(args[0])
		if !g.dryRun {
			if _, err := os.Lstat(path); err == nil {
				return fmt.Errorf("%s exists; choose another file", path)
			}
		}
		parent := cmp.Or(*work, filepath.Dir(path))
		copies, err := os.MkdirTemp(parent, ".recover-*")
		if err != nil {
			return fmt.Errorf("folder for copies of the logs: %w", err)
		}
		defer os.RemoveAll(copies)
		a.note("%s", recoverWarning)
		left, err := recovery.Open(inv.longCtx, *folders, copies, *accept, slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		defer left.Close()
		if g.dryRun {
			return printSurvivors(inv.printer(), left.Logs())
		}
		from := &backup.Recovered{Reason: g.reason, Folders: *folders, Losses: left.Losses()}
		for _, loss := range from.Losses {
			fmt.Fprintf(a.stderr, "LOSS: %s\n", loss)
		}
		if u, err := user.Current(); err == nil {
			from.User = u.Username
		}
		from.Host, _ = os.Hostname()
		x, err := writeRecovered(inv.longCtx, left, path, from)
		if err != nil {
			return err
		}
		*dest = cmp.Or(*dest, path+".audit")
		if err := auditRecovery(*dest, path, x, left.Logs()); err != nil {
			return err
		}
		return printBackup(inv.printer(), path, path, x)
	})
	settings.AddFlags(c.Flags(), settings.Client, "output", "no-color")
	return c
}

// writeRecovered writes a file, and checks it before it gets its name.
func writeRecovered(
	ctx context.Context, left *recovery.Survivors, path string, from *backup.Recovered,
) (x *backup.Contents, err error) {
	err = file.Replace(path, func(f *os.File) error {
		return left.Write(ctx, f, backup.Head{MadeMS: time.Now().UnixMilli(), Recovered: from})
	}, func(next string) error {
		if x, err = readBackup(ctx, next, nil, backup.Verify); err != nil {
			return fmt.Errorf("the surviving logs do not fit together: %w", err)
		}
		return nil
	})
	return x, err
}

func auditRecovery(dest, path string, x *backup.Contents, logs []recovery.SurvivingLog) error {
	// No instance counts the starts of this. The time keeps the ids of two recoveries apart.
	l, err := audit.Open(audit.Config{Destination: dest, Generation: uint64(time.Now().UnixMilli())})
	if err != nil {
		return err
	}
	var read []string
	for _, s := range logs {
		if s.Newest {
			line := fmt.Sprintf("%s: entry %d of term %d in %s", s.Name(), s.LastIndex, s.LastTerm, s.Folder)
			if s.Loss != "" {
				line += "; " + s.Loss
			}
			read = append(read, line)
		}
	}
	l.Write(audit.Event{Title: "recover_cluster", Severity: audit.High, Initiator: x.Recovered.User,
		Message: "what is left of a cluster without a majority was written to a backup",
		Fields: []audit.Field{{Key: "cluster", Value: x.Cluster}, {Key: "file", Value: path},
			{Key: "host", Value: x.Recovered.Host}, {Key: "reason", Value: x.Recovered.Reason},
			{Key: "folders", Value: x.Recovered.Folders}, {Key: "logs", Value: read}}})
	return l.Close()
}

func printSurvivors(p *printer, logs []recovery.SurvivingLog) error {
	rows := make([]row, len(logs))
	for i, l := range logs {
		shown := ""
		switch {
		case l.Newest:
			shown = "is read"
			if l.Loss != "" {
				shown += "; " + l.Loss
			}
		case l.Outdated:
			shown = "its replica was taken out of the shard"
		}
		rows[i] = row{
			{"shard", "shard", l.Name()}, {"folder", "folder", l.Folder}, {"instance", "instance", l.Instance},
			{"last_term", "last term", l.LastTerm},
			{"last_index", "last index", l.LastIndex}, {"committed", "committed", l.Committed},
			{"snapshot", "snapshot", l.Snapshot}, {"newest", "", l.Newest}, {"outdated", "", l.Outdated},
			{"loss", "", l.Loss}, {"", "which", shown},
		}
	}
	return p.list(rows, "no logs")
}
