package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/backup"
	"github.com/signalbox-dev/signalbox/shard"
)

// fetchBackup makes a backup of a cluster through one instance, as the verb does.
func fetchBackup(t *testing.T, s *instance) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var out bytes.Buffer
	state := s.Meta.State()
	w, err := backup.NewWriter(&out, backup.Head{Cluster: state.Cluster(), Version: state.ClusterVersion().String(),
		MadeMS: 1, Shards: len(state.Shards())})
	if err != nil {
		t.Fatal(err)
	}
	ids := []uint64{0}
	for _, x := range state.Shards() {
		ids = append(ids, x.ID)
	}
	for _, id := range ids {
		err := admin.New(c).Backup(ctx, id, func(x admin.Snapshot) (io.Writer, error) {
			return w, w.Section(backup.Section{Shard: id, Size: x.Size, Index: x.Index})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestBackupOfACluster: a backup through any instance has every shard as its leader had it, by
// digest, and any damage to it is found.
func TestBackupOfACluster(t *testing.T) {
	t.Parallel()
	k := newClusterKit(t, 3)
	k.startAll("a", "b", "c")
	k.await("three instances that work", stable(3, 3))
	ctx, cancel := context.WithTimeout(t.Context(), eventLimit)
	defer cancel()
	c, err := client.Dial(ctx, k.run["a"].Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.Session(ctx, "/default", client.Timeout(20*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		if _, err := s.Acquire(ctx, fmt.Sprintf("held-%d", i), client.Exclusive(),
			client.Data(bytes.Repeat([]byte("x"), 40<<10))); err != nil {
			t.Fatal(err)
		}
	}
	for name, x := range k.run {
		file := fetchBackup(t, x)
		got, err := backup.Verify(bytes.NewReader(file))
		if err != nil {
			t.Fatalf("through %s: %v", name, err)
		}
		sessions, semaphores := 0, 0
		for _, y := range got.Shards {
			sessions, semaphores = sessions+y.Sessions, semaphores+y.Semaphores
			if y.Shard == 0 {
				continue
			}
			for _, z := range k.run {
				d := z.Serving.Shards.Get(y.Shard)
				if d == nil || !d.Leading() {
					continue
				}
				var digest, index uint64
				d.Replica().View(func(m *shard.Machine) { digest, index = m.Digest(), m.AppliedIndex() })
				if index == y.Index && digest != y.Digest {
					t.Errorf("shard %d has digest %x in the backup, and %x at entry %d", y.Shard, y.Digest, digest, index)
				}
			}
		}
		if sessions != 1 || semaphores != 30 || got.Bytes < 30*40<<10 {
			t.Errorf("through %s: %d sessions, %d semaphores, %d bytes", name, sessions, semaphores, got.Bytes)
		}
		if name != "a" {
			continue
		}
		for at := 0; at < len(file); at += len(file)/7 + 1 {
			bad := bytes.Clone(file)
			bad[at] ^= 0x10
			if _, err := backup.Verify(bytes.NewReader(bad)); err == nil {
				t.Errorf("a flipped bit at byte %d of %d is not found", at, len(file))
			}
			if _, err := backup.Verify(bytes.NewReader(file[:at])); err == nil {
				t.Errorf("the first %d of %d bytes are taken for whole", at, len(file))
			}
		}
		if _, err := backup.Verify(bytes.NewReader(append(bytes.Clone(file), 0))); err == nil {
			t.Error("a byte behind the end is not found")
		}
	}
}

// TestBackupRequests: what is asked for and is not here is refused.
func TestBackupRequests(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	ask := func(req protocol.BackupRequest) (part protocol.BackupPart, err error) {
		text, err := json.Marshal(req)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := s.Hosting.Backups.Serve(t.Context(), text)
		if err == nil {
			err = json.Unmarshal(answer, &part)
		}
		return part, err
	}
	if _, err := ask(protocol.BackupRequest{Snapshot: "none"}); !errors.Is(err, protocol.StatusNotFound) {
		t.Errorf("one that there is not: %v", err)
	}
	if _, err := ask(protocol.BackupRequest{Shard: 99}); !errors.Is(err, protocol.StatusWrongShard) {
		t.Errorf("a shard that there is not: %v", err)
	}
	part, err := ask(protocol.BackupRequest{})
	if err != nil {
		t.Fatalf("the first part: %v", err)
	}
	if _, err := ask(protocol.BackupRequest{Snapshot: part.Snapshot, Offset: 1 << 40}); part.Ready &&
		!errors.Is(err, protocol.StatusBadRequest) {
		t.Errorf("an offset behind the end: %v", err)
	}
}
