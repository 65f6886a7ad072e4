// Package recovery reads the data folders that are left of a cluster that has lost the majority of
// its disks for good, and writes their newest state as a backup.
//
// Open copies the logs and opens the copies; the folders are not changed, and stay locked until
// Close. A log of a replica that the newest map has removed is outdated, and is not read. Moves
// that were under way are aborted, or completed if the map had committed them.
package recovery

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/signalbox-dev/signalbox/server/backup"
	"github.com/signalbox-dev/signalbox/server/cluster"
	"github.com/signalbox-dev/signalbox/server/datafolder"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica"
	"github.com/signalbox-dev/signalbox/shard/replica/engine"
	"github.com/signalbox-dev/signalbox/shard/replica/logstore"
)

// Survivors are data folders of stopped instances of one cluster, opened for [Survivors.Write]. The
// folders are not changed, and stay locked until Close. Their logs are read from copies.
type Survivors struct {
	cluster string
	folders []*survivor
	state   *meta.Machine // the newest map, nil: it is in none of the folders

	acceptLoss bool
}

type survivor struct {
	dir  string
	id   cluster.Identity
	lock *os.File
	logs *replica.Recovery
}

// SurvivingLog is how far the log of a shard has come in one of the folders.
type SurvivingLog struct {
	replica.RecoveredLog
	Folder   string
	Instance uint64
	Outdated bool // the newest map has no such replica, or no such shard
	Newest   bool // this log is read: no folder has a newer one that is not outdated
}

// recoverAdvice is what an operator can do about a folder of which nothing can be read.
const recoverAdvice = "give the folder of another instance, or restore a backup"

// Name is the shard's number, or "meta".
func (l *SurvivingLog) Name() string {
	if l.Shard == replica.MetaShard {
		return "meta"
	}
	return fmt.Sprint(l.Shard)
}

// Open copies the logs of the folders into work, which the caller removes, and opens the copies. It
// refuses a folder of a running instance, of no instance, of another cluster, or of a restore that
// did not end. Without acceptLoss it refuses damaged logs, and logs that are behind their watermark
// or have none.
func Open(
	ctx context.Context, folders []string, work string, acceptLoss bool, logger *slog.Logger,
) (s *Survivors, err error) {
	if len(folders) == 0 {
		return nil, errors.New("no folder is given; give the data folder of each instance that is left")
	}
	s = &Survivors{acceptLoss: acceptLoss}
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	for i, dir := range folders {
		f := &survivor{dir: dir}
		s.folders = append(s.folders, f)
		if err := f.open(ctx, filepath.Join(work, fmt.Sprint(i)), acceptLoss, logger); err != nil {
			return s, fmt.Errorf("data folder %q: %w", dir, s.withRecoverAdvice(err))
		}
		s.cluster = cmp.Or(s.cluster, f.id.Cluster)
		if f.id.Cluster != s.cluster {
			return s, fmt.Errorf("data folder %q is of cluster %s, and %q of %s; give folders of one cluster",
				dir, f.id.Cluster, folders[0], s.cluster)
		}
	}
	if logs, l := s.newest(replica.MetaShard); logs != nil {
		if s.state, err = logs.Meta(ctx, l.RecoveredLog); err != nil {
			return s, fmt.Errorf("data folder %q: %w", l.Folder, s.withRecoverAdvice(err))
		}
	}
	return s, nil
}

// withRecoverAdvice adds the remedy to an error about a log that cannot be read.
func (s *Survivors) withRecoverAdvice(err error) error {
	switch {
	case errors.Is(err, logstore.ErrRolledBack), errors.Is(err, logstore.ErrNoWatermark):
		return fmt.Errorf("%w; %s; if there is neither, --accept-loss reads it as it is", err, recoverAdvice)
	case errors.Is(err, logstore.ErrDamaged) && s.acceptLoss:
		return fmt.Errorf("%w; %s", err, recoverAdvice)
	case errors.Is(err, logstore.ErrDamaged):
		return fmt.Errorf("%w; %s; if there is neither, --accept-loss reads what is whole", err, recoverAdvice)
	}
	return err
}

// open locks the folder, copies its log and opens the copy.
func (s *survivor) open(ctx context.Context, work string, acceptLoss bool, logger *slog.Logger) error {
	if err := datafolder.CheckIdentity(s.dir); err != nil {
		return err
	}
	id, found, err := cluster.LoadIdentity(cluster.FileStore(filepath.Join(s.dir, datafolder.IdentityFile)))
	switch {
	case err != nil:
		return err
	case !found || id.Cluster == "":
		return errors.New("no instance of a cluster has lived here; give the folder that is an instance's --data")
	case id.Expelled:
		return errors.New("its instance was expelled, so it has nothing of the cluster since then; give another one")
	}
	if err := datafolder.CheckUnfinished(s.dir); err != nil {
		return err
	}
	s.id = id
	// On a disk that is mounted read-only, as the last copy of something should be, nobody can run.
	if s.lock, err = datafolder.Lock(s.dir); err != nil && !errors.Is(err, syscall.EROFS) {
		return err
	}
	// The walk of copyTree does not follow a link, and the log may be on another disk.
	raft, err := filepath.EvalSymlinks(filepath.Join(s.dir, datafolder.RaftDir))
	if err == nil {
		err = copyTree(ctx, raft, work)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("its log is missing (%w); put the whole folder back, or give the folder of another instance", err)
	} else if err != nil {
		return fmt.Errorf("copy its log: %w", err)
	}
	if err := engine.AdoptHostname(work); err != nil { // it may come from another machine
		return err
	}
	s.logs, err = replica.OpenRecovery(work, id.RaftAddress, acceptLoss, logger)
	return err
}

func copyTree(ctx context.Context, from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if d.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		in, err := os.Open(path)
		if err != nil {
			return err
		}
		defer in.Close()
		out, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, in)
		return errors.Join(err, out.Close())
	})
}

// Close unlocks the folders.
func (s *Survivors) Close() error {
	var errs []error
	for _, f := range s.folders {
		if f.logs != nil {
			errs = append(errs, f.logs.Close())
		}
		if f.lock != nil {
			errs = append(errs, f.lock.Close())
		}
	}
	s.folders = nil
	return errors.Join(errs...)
}

// Logs are the logs of all folders, in order of shard, the meta shard first, and then of folder.
func (s *Survivors) Logs() []SurvivingLog {
	var list []SurvivingLog
	newest := make(map[uint64]int)
	for _, f := range s.folders {
		for _, l := range f.logs.Logs() {
			list = append(list, SurvivingLog{RecoveredLog: l, Folder: f.dir, Instance: f.id.Instance,
				Outdated: s.outdated(&l)})
			if list[len(list)-1].Outdated {
				continue
			}
			at, ok := newest[l.Shard]
			if !ok || l.Newer(&list[at].RecoveredLog) {
				newest[l.Shard] = len(list) - 1
			}
		}
	}
	for _, at := range newest {
		list[at].Newest = true
	}
	order := func(l *SurvivingLog) uint64 {
		if l.Shard == replica.MetaShard {
			return 0
		}
		return l.Shard
	}
	slices.SortStableFunc(list, func(a, b SurvivingLog) int { return int(order(&a)) - int(order(&b)) })
	return list
}

// outdated reports whether the map has removed a log's replica. A replica that the map does not
// know yet is newer than the map. The meta shard's logs decide which map is the newest, so the map
// says nothing about them.
func (s *Survivors) outdated(l *replica.RecoveredLog) bool {
	if s.state == nil || !s.state.Bootstrapped() || l.Shard == replica.MetaShard {
		return false
	}
	x, ok := s.state.Shard(l.Shard)
	if !ok {
		return true
	}
	_, has := x.Replica(l.Replica)
	return !has && l.Replica <= x.NextReplica
}

// newest is the log of a shard that is read; nil: there is none.
func (s *Survivors) newest(shard uint64) (*replica.Recovery, SurvivingLog) {
	for _, l := range s.Logs() {
		if !l.Newest || l.Shard != shard {
			continue
		}
		for _, f := range s.folders {
			if f.dir == l.Folder {
				return f.logs, l
			}
		}
	}
	return nil, SurvivingLog{}
}

// Losses says for each log that is read and may lack entries why that is so, in order of shard.
// There are none without acceptLoss, but for logs of shards that the map does not have.
func (s *Survivors) Losses() (list []string) {
	for _, l := range s.Logs() {
		if l.Newest && l.Loss != "" {
			list = append(list, fmt.Sprintf("%s, read from %q up to entry %d of term %d: %s",
				l.title(), l.Folder, l.LastIndex, l.LastTerm, l.Loss))
		}
	}
	if _, meta := s.newest(replica.MetaShard); s.state != nil {
		list = append(list, s.unknown(s.Logs(), &meta)...)
	}
	return list
}

// unknown are the logs of shards that the map does not have. Such a shard was removed, or the map is
// older than it: then all folders with a newer map are lost, and the shard's buckets with them.
func (s *Survivors) unknown(logs []SurvivingLog, newest *SurvivingLog) (list []string) {
	for _, l := range logs {
		if !l.Outdated {
			continue
		}
		if _, known := s.state.Shard(l.Shard); known {
			continue
		}
		list = append(list, fmt.Sprintf("%s in %q, up to entry %d of term %d, is not read: the newest map, entry %d in %q, "+
			"does not have it; if the shard was not removed, give a folder with a newer map",
			l.title(), l.Folder, l.LastIndex, l.LastTerm, newest.LastIndex, newest.Folder))
	}
	return list
}

// title names the shard in a sentence.
func (l *SurvivingLog) title() string {
	if l.Shard == replica.MetaShard {
		return "the meta shard"
	}
	return "shard " + l.Name()
}

// unread says why nothing of a shard's logs can be read; "" if there is no such log.
func (s *Survivors) unread(shard uint64) string {
	for _, f := range s.folders {
		for _, l := range f.logs.Unread() {
			if l.Shard == shard {
				return fmt.Sprintf("nothing of its log in %q can be read: %s", f.dir, l.Loss)
			}
		}
	}
	return ""
}

// noMap says why no folder has the cluster's map.
func (s *Survivors) noMap() error {
	why := s.unread(replica.MetaShard)
	if _, l := s.newest(replica.MetaShard); why == "" && s.state != nil {
		if l.Loss == "" {
			return errors.New("the cluster's map is empty: the cluster was never made")
		}
		why = fmt.Sprintf("the log in %q can be read up to entry %d of term %d only, before the cluster was made: %s",
			l.Folder, l.LastIndex, l.LastTerm, l.Loss)
	}
	if why == "" {
		return errors.New("the cluster's map is in none of the folders; give the folder of another instance: each has one")
	}
	return fmt.Errorf("the cluster's map cannot be read: %s; %s", why, recoverAdvice)
}

// describeMissing says why a shard cannot be read.
func (s *Survivors) describeMissing(x *meta.Shard) string {
	of := instancesOf(&s.state.State, x)
	for _, l := range s.Logs() {
		if l.Shard == x.ID && l.Outdated {
			return fmt.Sprintf("%d (of %s; the log in %q is that of a replica that was taken out of the shard, and may be long past)",
				x.ID, of, l.Folder)
		}
	}
	if why := s.unread(x.ID); why != "" {
		return fmt.Sprintf("%d (of %s; %s)", x.ID, of, why)
	}
	return fmt.Sprintf("%d (of %s)", x.ID, of)
}

// Write writes the state of the newest logs as a backup, from which server.Restore creates a new
// cluster. It aborts moves of buckets that were under way, and completes those that were committed.
// It refuses a set of folders in which a shard has no log, or only logs of removed replicas. It
// fills in Cluster, Name, Version and Shards of the head. It may be called once.
func (s *Survivors) Write(ctx context.Context, w io.Writer, h backup.Head) error {
	m := s.state
	if m == nil || !m.Bootstrapped() {
		return s.noMap()
	}
	machines := make(map[uint64]*shard.Machine)
	var missing []string
	for _, x := range m.Shards() {
		logs, l := s.newest(x.ID)
		if logs == nil {
			missing = append(missing, s.describeMissing(&x))
			continue
		}
		var err error
		if machines[x.ID], err = logs.Shard(ctx, l.RecoveredLog); err != nil {
			return fmt.Errorf("data folder %q: %w", l.Folder, s.withRecoverAdvice(err))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("these shards are in none of the folders: %v; give the folder of an instance that had a replica of each", missing)
	}
	if err := backup.EndMoves(m, machines); err != nil {
		return err
	}
	h.Cluster, h.Name, h.Version, h.Shards = m.Cluster(), m.ClusterName(), m.ClusterVersion().String(), len(machines)
	out, err := backup.NewWriter(w, h)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	section := func(id, index uint64) error {
		if err := out.Section(backup.Section{Shard: id, Size: uint64(b.Len()), Index: index}); err != nil {
			return err
		}
		_, err := out.Write(b.Bytes())
		b.Reset()
		return err
	}
	if _, err := m.BeginSnapshot().WriteTo(&b); err != nil {
		return err
	}
	if err := section(0, m.AppliedIndex()); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(machines)) {
		x := machines[id]
		snap := x.BeginSnapshot()
		err := snap.WriteTo(&b, new(sync.Mutex))
		snap.Close()
		if err == nil {
			err = section(id, x.AppliedIndex())
		}
		if err != nil {
			return fmt.Errorf("shard %d: %w", id, err)
		}
	}
	return out.Close()
}

func instancesOf(s *meta.State, x *meta.Shard) string {
	var names []string
	for _, r := range x.Replicas {
		name := fmt.Sprint(r.Instance)
		if i, ok := s.Instance(r.Instance); ok {
			name = i.Name
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}
