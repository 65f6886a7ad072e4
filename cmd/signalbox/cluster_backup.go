package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/terminal"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/backup"
	"github.com/signalbox-dev/signalbox/server/file"
)

// backupAttempts is how often a backup is begun again when something changes under it.
const backupAttempts = 5

func backupCmd(a *app) *cobra.Command {
	c := command("backup FILE|DIR/", "Write a backup of the whole cluster, or check one",
		`Write the state of the whole cluster into a file, while clients work. Each shard is as of its own
moment. The file is checked as with --verify and then replaces a regular file of that name. A
device, a pipe or a symbolic link is refused. A backup that does not end, killed or not, leaves no
file. Needs the right admin on /.

With a folder, written with / at its end, the file is named by the cluster's id and the time. --keep
then removes the oldest of the cluster's backups there, once the new one is checked.

With - as the file the backup goes to standard output, for a pipe, and its description to standard
error. It is checked on its way. If the cluster changes meanwhile, the backup fails and its output
is of no use: check the exit code (set -o pipefail).

The file holds secrets, such as the keys that sign session tickets. Protect it accordingly.

With --verify no server is asked: the file is read completely, and each shard's state is rebuilt
and compared with its digest. With - as the file standard input is read.`)
	c.Example = `  signalbox cluster backup cluster.backup
  signalbox cluster backup /var/backups/signalbox/ --keep 14
  signalbox cluster backup - | gzip >cluster.backup.gz
  signalbox cluster backup --verify cluster.backup`
	verify := c.Flags().Bool("verify", false, "Check the file, offline.")
	keep := c.Flags().Int("keep", 0, "With DIR/: how many of the cluster's backups stay there (default: all).")
	optional(c.Flags(), "keep")
	c.Annotations = map[string]string{offline: "verify"}
	c.RunE = a.verb(func(inv *invocation, cmd *cobra.Command, args []string) error {
		if args[0] == "" {
			return errNoFile
		}
		switch folder := isFolder(args[0]); {
		case cmd.Flags().Changed("keep") && (!folder || *verify):
			return usagef("--keep goes with a folder, written with / at its end")
		case cmd.Flags().Changed("keep") && *keep < 1:
			return usagef("--keep is %d; keep at least 1 backup", *keep)
		}
		if *verify {
			x, err := readBackup(inv.longCtx, args[0], a.stdin, backup.Verify)
			if err != nil {
				return fmt.Errorf("%s: %w", inputName(args[0]), err)
			}
			return printBackup(inv.printer(), args[0], inputName(args[0]), x)
		}
		if args[0] == stdio && terminal.Is(inv.stdout) {
			return usagef("a backup is not for a terminal; give a file, or a pipe behind -")
		}
		if args[0] == stdio {
			x, err := streamBackup(inv)
			if err != nil {
				return err
			}
			return printBackup(&printer{w: a.stderr, format: inv.values["output"]}, args[0], "what was written", x)
		}
		for try := 1; ; try++ {
			path, x, err := takeBackup(inv, args[0])
			var bad *badBackup
			switch {
			case err == nil:
				err := printBackup(inv.printer(), path, path, x)
				if *keep > 0 && err == nil {
					err = keepBackups(a, args[0], x.Cluster, filepath.Base(path), *keep)
				}
				return err
			case !errors.As(err, &bad) || try == backupAttempts || inv.ctx.Err() != nil:
				return err
			}
			a.note("%v; starting again\n", err)
		}
	})
	return c
}

// badBackup is a backup that is not complete, because something changed while it was made.
type badBackup struct{ error }

// backedUp is the cluster that a backup is made of.
func backedUp(inv *invocation) (*protocol.ClusterStatus, error) {
	s, err := readStatus(inv.ctx, inv)
	if err != nil {
		return nil, err
	}
	for _, t := range s.Tiers {
		if t.ToBeRestored != "" {
			return nil, fmt.Errorf("tier %s of the cluster is still to be restored from the backup with digest %s; "+
				"restore it first, and keep that backup until then", t.Name, t.ToBeRestored)
		}
	}
	return s, nil
}

// streamBackup writes a backup to standard output, and checks it on its way.
func streamBackup(inv *invocation) (x *backup.Contents, err error) {
	s, err := backedUp(inv)
	if err != nil {
		return nil, err
	}
	r, w := io.Pipe()
	checked := make(chan error, 1)
	go func() {
		var err error
		x, err = backup.Verify(r)
		r.CloseWithError(err) // the writer goes no further
		checked <- err
	}()
	err = writeBackup(inv, io.MultiWriter(w, inv.output()), s)
	_ = w.CloseWithError(err)
	if bad := <-checked; err == nil {
		err = bad
	}
	if err != nil {
		return nil, fmt.Errorf("what was written is no backup: %w", err)
	}
	return x, nil
}

// keepBackups removes the oldest backups of a folder, and notes which.
func keepBackups(a *app, dir, cluster, newest string, keep int) error {
	removed, err := removeOldBackups(dir, cluster, newest, keep)
	for _, name := range removed {
		a.note("removed %s%s\n", dir, name)
	}
	if err != nil {
		return fmt.Errorf("the backup is written, but an older one could not be removed: %w", err)
	}
	return nil
}

// takeBackup writes a backup to a file, or under a name of its own into a folder, and returns its
// path.
func takeBackup(inv *invocation, path string) (_ string, x *backup.Contents, err error) {
	if !isFolder(path) { // else it is checked once the name is known
		if err := file.CheckRegular(path); err != nil {
			return "", nil, err
		}
	}
	s, err := backedUp(inv)
	if err != nil {
		return "", nil, err
	}
	if isFolder(path) {
		path += backupName(s.ID, time.Now())
	}
	err = file.Replace(path, func(f *os.File) error { return writeBackup(inv, f, s) }, func(next string) error {
		if x, err = readBackup(inv.longCtx, next, nil, backup.Verify); err != nil {
			return &badBackup{err}
		}
		return nil
	})
	return path, x, err
}

func writeBackup(inv *invocation, f io.Writer, s *protocol.ClusterStatus) error {
	w, err := backup.NewWriter(f,
		backup.Head{Cluster: s.ID, Name: s.Name, Version: s.Version, MadeMS: time.Now().UnixMilli(), Shards: len(s.Shards)})
	if err != nil {
		return err
	}
	shards := []uint64{0} // the map first
	for i := range s.Shards {
		shards = append(shards, s.Shards[i].ID)
	}
	for _, shard := range shards {
		if err := backupShard(inv, w, shard); err != nil {
			if shard == 0 {
				return fmt.Errorf("meta shard: %w", err)
			}
			return fmt.Errorf("shard %d: %w", shard, err)
		}
	}
	return w.Close()
}

func backupShard(inv *invocation, w *backup.Writer, shard uint64) error {
	c, err := inv.admin()
	if err != nil {
		return err
	}
	err = c.Backup(inv.ctx, shard, func(s admin.Snapshot) (io.Writer, error) {
		return w, w.Section(backup.Section{Shard: shard, Size: s.Size, Index: s.Index})
	})
	if errors.Is(err, admin.ErrSnapshotLost) || errors.Is(err, client.ErrNotFound) { // the shard was removed meanwhile
		return &badBackup{err}
	}
	return err
}

// stdio stands for standard input or output where a file's name is.
const stdio = "-"

var errNoFile = usagef("FILE is empty; name a file, or - for a pipe")

// inputName is how messages call the file that a backup is read from.
func inputName(path string) string {
	if path == stdio {
		return "standard input"
	}
	return path
}

// readBackup reads a backup with one of the functions of package backup, until ctx ends. stdin is
// read for -; nil: - is the name of a file.
func readBackup[T any](
	ctx context.Context, path string, stdin io.Reader, read func(io.Reader) (T, error),
) (T, error) {
	return interruptible(ctx, path, func() (x T, err error) {
		if path == stdio && stdin != nil {
			return read(stdin)
		}
		f, err := os.Open(path)
		if err != nil {
			return x, err
		}
		defer f.Close()
		return read(f)
	})
}

func printBackup(p *printer, path, name string, x *backup.Contents) error {
	sessions, semaphores := x.Sizes()
	digest := fmt.Sprintf("%016x", x.Digest())
	made := time.UnixMilli(x.MadeMS).UTC().Format(time.RFC3339)
	recovered := ""
	if x.Recovered != nil {
		recovered = fmt.Sprintf("; it was recovered from %s by %s, because: %s",
			count(uint64(len(x.Recovered.Folders)), "folder"), x.Recovered.User, x.Recovered.Reason)
		if n := len(x.Recovered.Losses); n > 0 {
			recovered += fmt.Sprintf("; %s may lack entries: %s", count(uint64(n), "log"),
				strings.Join(x.Recovered.Losses, "; "))
		}
	}
	r := row{
		{"file", "", path}, {"cluster", "", x.Cluster}, {"made", "", made}, {"version", "", x.Version},
		{"shards", "", x.Head.Shards}, {"sessions", "", sessions},
		{"semaphores", "", semaphores}, {"bytes", "", x.Bytes}, {"digest", "", digest},
	}
	tiers := ""
	if len(x.DataTiers) > 1 {
		r = append(r, field{"data_tiers", "", x.DataTiers})
		tiers = fmt.Sprintf("; it has data in the tiers %s, which are restored one by one",
			strings.Join(x.DataTiers, ", "))
	}
	if x.Recovered != nil {
		r = append(r, field{"recovered", "", x.Recovered})
	}
	return p.message(r, "%s is whole: cluster %s, made %s, %s, %s, %s, %s, digest %s%s%s",
		name, x.Cluster, made, count(uint64(x.Head.Shards), "shard"), count(uint64(sessions), "session"),
		count(uint64(semaphores), "semaphore"),
		count(uint64(x.Bytes), "byte"), digest, recovered, tiers)
}

// A folder of backups has a file for each, named by the cluster's id and the time at which it was
// begun, such as signalbox-7f3a-20260102T030405Z.backup. So their names sort by time.

const backupTime = "20060102T150405Z"

// backupName is the name of a cluster's backup that is begun at now.
func backupName(cluster string, now time.Time) string {
	return fmt.Sprintf("signalbox-%s-%s.backup", cluster, now.UTC().Format(backupTime))
}

// isFolder reports whether a backup goes into a folder, under a name of its own.
func isFolder(path string) bool { return strings.HasSuffix(path, "/") }

// removeOldBackups removes the oldest backups of a cluster from a folder, so that keep of them are
// left, and returns their names. It never removes the new one, however the clock is set, nor
// anything else in the folder.
func removeOldBackups(dir, cluster, newest string, keep int) (removed []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	form := regexp.MustCompile(`^signalbox-` + regexp.QuoteMeta(cluster) + `-\d{8}T\d{6}Z\.backup$`)
	var older []string
	for _, e := range entries {
		if e.Type().IsRegular() && form.MatchString(e.Name()) && e.Name() != newest {
			older = append(older, e.Name())
		}
	}
	slices.Sort(older)
	for _, name := range older[:max(0, len(older)-(keep-1))] {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			return removed, err
		}
		removed = append(removed, name)
	}
	return removed, nil
}
