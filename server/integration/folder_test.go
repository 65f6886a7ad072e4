package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server"
	"github.com/signalbox-dev/signalbox/server/backup"
	"github.com/signalbox-dev/signalbox/server/cluster"
	"github.com/signalbox-dev/signalbox/server/datafolder"
	"github.com/signalbox-dev/signalbox/server/recovery"
	"github.com/signalbox-dev/signalbox/server/servertest/port"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

// folderRaft is the address in folders that another process opens.
const folderRaft = "folder.example:7071"

// folderConfig is an instance on a folder that may come from elsewhere: it listens somewhere, and
// goes by the folder's address.
func folderConfig(t *testing.T, dir string) server.Config {
	t.Helper()
	raft := port.ForTest(t)
	return server.Config{
		DataDir: dir, Listen: "127.0.0.1:0", Raft: raft, RaftAdvertise: folderRaft, Admin: server.Off, RTT: 5 * time.Millisecond, Name: "kept",
		Logger: slog.New(slog.DiscardHandler),
	}
}

func serveFolder(t *testing.T, cfg server.Config) *instance {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	s, err := startServer(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// digests are those of the logs in a folder, as they were when its instance stopped.
func digests(t *testing.T, dir string) map[string]string {
	t.Helper()
	out, err := tryDigests(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func tryDigests(t *testing.T, dir string) (map[string]string, error) {
	t.Helper()
	left, err := recovery.Open(t.Context(), []string{dir}, t.TempDir(), false, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	defer left.Close()
	var file bytes.Buffer
	if err := left.Write(t.Context(), &file, backup.Head{MadeMS: 1}); err != nil {
		return nil, err
	}
	x, err := backup.Verify(&file)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, s := range x.Shards {
		out[fmt.Sprint(s.Shard)] = fmt.Sprintf("%016x", s.Digest)
	}
	return out, nil
}

// furnish has something of everything, in snapshots and in the logs behind them.
func furnish(t *testing.T, s *instance) {
	t.Helper()
	c := connect(t, s)
	var node protocol.NodeInfo
	c.must(protocol.KindNodeCreate, 0, &protocol.NodeCreate{Path: "/teams/billing", Config: protocol.NodeConfig{
		Fields: protocol.FieldGracePeriod | protocol.FieldMaxSemaphores | protocol.FieldMaxBytes |
			protocol.FieldMaxWaiters | protocol.FieldMaxWatchers | protocol.FieldMaxRequests,
		GracePeriod: 7_000, MaxSemaphores: 500, MaxBytes: 1 << 24, MaxWaiters: 700, MaxWatchers: 300, MaxRequests: 90_000,
	}}, &node)
	for method, in := range map[string]string{
		protocol.MethodTokenCreate: tokenRequest("deploy", "deployer", "the secret of the deployer"),
		protocol.MethodGrant:       `{"path":"/teams","identity":"deployer","right":"use"}`,
	} {
		if err := c.ask(method, in, nil); err != nil {
			t.Fatal(err)
		}
	}
	session := func(n uint64) uint64 {
		id := make([]byte, 16)
		copy(id, fmt.Sprint("kept ", n))
		var r protocol.SessionReply
		c.must(protocol.KindSessionStart, c.homeBucket(id), &protocol.SessionStart{
			Node: node.ID, CreateID: id, Key: id, Timeout: 30 * 60_000, Description: fmt.Sprint("worker ", n), Nonce: n + 1,
		}, &r)
		return r.Session
	}
	works := func(round int) {
		for n := range uint64(4) {
			id := session(uint64(round)*10 + n)
			for i := range 5 {
				name := fmt.Sprintf("round-%d/lock-%d", round, i)
				m := &protocol.Acquire{Head: c.head(id), Name: []byte(name), Count: 1 + n%2, Timeout: 3_600_000,
					Data: fmt.Appendf(nil, "held by %d", n), Ephemeral: true}
				if i%2 == 0 {
					m.Count = protocol.Forever
				}
				c.must(protocol.KindAcquire, c.bucket(node.ID, name), m, new(protocol.AcquireReply))
			}
			name := fmt.Sprintf("round-%d/config-%d", round, n)
			c.must(protocol.KindCreate, c.bucket(node.ID, name),
				&protocol.Create{Head: c.head(id), Name: []byte(name), Limit: 3, Data: []byte("first")}, nil)
			c.must(protocol.KindUpdate, c.bucket(node.ID, name),
				&protocol.Update{Head: c.head(id), Name: []byte(name), Data: []byte(strings.Repeat(name, 100))}, nil)
		}
	}
	works(1)
	k := newTrackKit(t, s)
	k.publish("the first version")
	v := k.poll("sas-1", k.sas, 0, 0)
	k.poll("sas-1", k.sas, 1, v.Version)
	a, b := newMemberClient(t, s, "work-queue", 21), newMemberClient(t, s, "work-queue", 22)
	a.join("a")
	alone := completeRound(t, 0, "alone", a)
	b.join("b")
	completeRound(t, alone+1, "agreed", a, b)
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	for _, x := range s.Meta.State().Shards() {
		if _, err := s.Host.SnapshotNow(ctx, x.ID); err != nil && !errors.Is(err, replica.ErrNoSnapshot) {
			t.Fatal(err)
		}
	}
	if _, err := s.Host.SnapshotNow(ctx, replica.MetaShard); err != nil && !errors.Is(err, replica.ErrNoSnapshot) {
		t.Fatal(err)
	}
	works(2)
	k.publish("the second version")
	c.must(protocol.KindNodeCreate, 0, &protocol.NodeCreate{Path: "/late"}, &node)
	session(99)
	// Long enough for any machine that reads the folder: a session has its timeout and the grace
	// period from the moment an instance serves it.
	for _, x := range []struct {
		c          *raw
		session, n uint64
	}{{k.raw, k.session, 1}, {a.raw, a.session, a.n}, {b.raw, b.session, b.n}} {
		x.c.must(protocol.KindSessionAttach, uint64(protocol.SessionBucket(x.session)), &protocol.SessionAttach{
			Session: x.session, Node: c.node(), Epoch: 2, Key: id16(x.n), Timeout: 30 * 60_000, Description: "raw", Nonce: x.n + 1,
		}, new(protocol.SessionReply))
	}
}

// TestNewerDataIsRefused: what a newer version wrote is refused with a sentence that says so, and
// nothing of it is changed.
func TestNewerDataIsRefused(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	cfg := folderConfig(t, data)
	cfg.Shards, cfg.Buckets, cfg.Version = 1, 16, "0.4.0"
	if err := serveFolder(t, cfg).Close(); err != nil {
		t.Fatal(err)
	}
	identity := filepath.Join(data, datafolder.IdentityFile)
	was, err := os.ReadFile(identity)
	if err != nil {
		t.Fatal(err)
	}
	if _, found, err := cluster.LoadIdentity(cluster.FileStore(identity)); !found || err != nil {
		t.Fatal(found, err)
	}
	newer := bytes.Replace(was, []byte(`"format": 1`), []byte(`"format": 2`), 1)
	if err := os.WriteFile(identity, newer, 0o600); err != nil {
		t.Fatal(err)
	}
	refused := func(want string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		s, err := startServer(ctx, cfg)
		if err == nil {
			_ = s.Close()
			t.Fatal("it was started")
		}
		if !strings.Contains(err.Error(), want) {
			t.Fatalf("refused with %q, want %q", err, want)
		}
	}
	refused("newer binary; upgrade this one")
	if now, err := os.ReadFile(identity); err != nil || !bytes.Equal(now, newer) {
		t.Fatal("the identity was changed", err)
	}
	if err := os.WriteFile(identity, was, 0o600); err != nil {
		t.Fatal(err)
	}

	// The cluster's version, which the log has, is above the binary's.
	cfg.Version = "0.1.0"
	refused("version 0.1.0 is older than the cluster's version 0.4.0, which cannot go back")
}
