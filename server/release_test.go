package server

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/server/backup"
	"github.com/signalbox-dev/signalbox/server/cluster"
	"github.com/signalbox-dev/signalbox/server/datafolder"
	"github.com/signalbox-dev/signalbox/server/recovery"
	"github.com/signalbox-dev/signalbox/server/servertest/port"
	"github.com/signalbox-dev/signalbox/shard"
	"github.com/signalbox-dev/signalbox/shard/meta"
	"github.com/signalbox-dev/signalbox/shard/replica"
)

var makeRelease = flag.String("release", "", "make the kept data of this version, such as 0.1.0; see make fixture")

// releasesDir has a folder for each release: what it wrote must be read by every later version of
// the same major number, the next minor at the least.
const releasesDir = "testdata/releases"

// releaseRaft is the address in the kept folders.
const releaseRaft = "release.example:7071"

// releaseManifest says what was kept.
type releaseManifest struct {
	Version  string            `json:"version"`
	Format   int               `json:"format"`   // of batches and snapshots
	Protocol int               `json:"protocol"` // of the wire
	Digests  map[string]string `json:"digests"`  // of the machines, by shard
	Backup   int               `json:"backup"`   // sessions in the backup
}

// releaseConfig is an instance on a folder that was kept: it listens somewhere, and goes by the
// folder's address.
func releaseConfig(t *testing.T, dir string) Config {
	t.Helper()
	raft := port.ForTest(t)
	return Config{
		DataDir: dir, Listen: "127.0.0.1:0", Raft: raft, RaftAdvertise: releaseRaft, Admin: Off, RTT: 5 * time.Millisecond, Name: "kept",
		Logger: slog.New(slog.DiscardHandler),
	}
}

func serveFolder(t *testing.T, cfg Config) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	s, err := Start(ctx, cfg)
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

// TestReleases opens what each kept release wrote: its logs and snapshots give the state that they
// gave then, an instance serves it, its backup is restored.
func TestReleases(t *testing.T) {
	list, err := os.ReadDir(releasesDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, d := range list {
		t.Run(d.Name(), func(t *testing.T) { openRelease(t, filepath.Join(releasesDir, d.Name())) })
	}
}

func openRelease(t *testing.T, kept string) {
	var m releaseManifest
	if err := json.Unmarshal(keptFile(t, kept, "manifest.json"), &m); err != nil {
		t.Fatal(err)
	}
	want := string(keptFile(t, kept, "listing.txt"))
	data := filepath.Join(t.TempDir(), "data")
	unpack(t, filepath.Join(kept, "data.tar.gz"), data)
	if err := replica.AdoptHostname(filepath.Join(data, "raft")); err != nil {
		t.Fatal(err)
	}
	if m.Format == shard.FormatVersion {
		if diff := cmp.Diff(m.Digests, digests(t, data)); diff != "" {
			t.Errorf("the logs give another state than they gave to version %s (-then +now): a format was changed and kept its number\n%s",
				m.Version, diff)
		}
	}
	for range 2 { // as it was kept, and as this version leaves it
		s := serveFolder(t, releaseConfig(t, data))
		if diff := cmp.Diff(want, listing(t, s)); diff != "" {
			t.Errorf("what version %s wrote is not what is read (-then +now):\n%s", m.Version, diff)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}

	file := keptGzip(t, kept, "backup.gz")
	from := load(t, file)
	if sessions, _ := from.Sizes(); sessions != m.Backup {
		t.Errorf("the backup has %d sessions, and had %d", sessions, m.Backup)
	}
	cfg := restoreConfig(t, 2)
	if _, err := Restore(t.Context(), cfg, from); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, listing(t, serveRestored(t, cfg))); diff != "" {
		t.Errorf("what is restored from the backup of version %s is not what it had (-then +now):\n%s", m.Version, diff)
	}
}

// TestMakeRelease makes a release's folder, if -release says so: once, from the tree that is
// released. It is never made again: what was given to users is for ever.
func TestMakeRelease(t *testing.T) {
	if *makeRelease == "" {
		t.Skip("-release VERSION makes the kept data of a release; see make fixture")
	}
	if _, err := meta.ParseVersion(*makeRelease); err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(releasesDir, *makeRelease)
	if _, err := os.Stat(kept); err == nil {
		t.Fatalf("%s is there already, and kept as it is", kept)
	}
	data := filepath.Join(t.TempDir(), "data")
	cfg := releaseConfig(t, data)
	cfg.Shards, cfg.Buckets, cfg.Cluster = 2, 16, "kept"
	s := serveFolder(t, cfg)
	furnishRelease(t, s)
	want := listing(t, s)
	file := fetchBackup(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	x, err := backup.Verify(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	sessions, _ := x.Sizes()
	m := releaseManifest{Version: *makeRelease, Format: shard.FormatVersion, Protocol: protocol.Version,
		Digests: digests(t, data), Backup: sessions}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	frames, err := os.ReadFile("../protocol/testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	next := kept + ".part"
	if err := os.MkdirAll(next, 0o755); err != nil {
		t.Fatal(err)
	}
	pack(t, data, filepath.Join(next, "data.tar.gz"))
	write := func(name string, b []byte) {
		if err := os.WriteFile(filepath.Join(next, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("manifest.json", append(text, '\n'))
	write("listing.txt", []byte(want))
	write("backup.gz", packed(t, file))
	write("vectors.json.gz", packed(t, frames))
	if err := os.Rename(next, kept); err != nil {
		t.Fatal(err)
	}
	openRelease(t, kept)
}

// furnishRelease has something of everything, in snapshots and in the logs behind them.
func furnishRelease(t *testing.T, s *Server) {
	t.Helper()
	c := connect(t, s)
	var node protocol.NodeInfo
	c.must(protocol.KindNodeCreate, 0, &protocol.NodeCreate{Path: "/teams/billing", Config: protocol.NodeConfig{
		Fields: protocol.FieldGracePeriod | protocol.FieldMaxSemaphores | protocol.FieldMaxBytes |
			protocol.FieldMaxWaiters | protocol.FieldMaxWatchers | protocol.FieldMaxRequests,
		GracePeriod: 7_000, MaxSemaphores: 500, MaxBytes: 1 << 24, MaxWaiters: 700, MaxWatchers: 300, MaxRequests: 90_000,
	}}, &node)
	for method, in := range map[string]string{
		protocol.MethodTokenCreate: `{"id":"deploy","identity":"deployer"}`,
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
	for _, x := range s.meta.State().Shards() {
		if _, err := s.host.SnapshotNow(ctx, x.ID); err != nil && !errors.Is(err, replica.ErrNoSnapshot) {
			t.Fatal(err)
		}
	}
	if _, err := s.host.SnapshotNow(ctx, replica.MetaShard); err != nil && !errors.Is(err, replica.ErrNoSnapshot) {
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

func keptFile(t *testing.T, kept, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(kept, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func keptGzip(t *testing.T, kept, name string) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(keptFile(t, kept, name)))
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func packed(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z, _ := gzip.NewWriterLevel(&out, gzip.BestCompression)
	_, err := z.Write(b)
	if err = errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// pack writes a folder as a compressed archive.
func pack(t *testing.T, dir, to string) {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := errors.Join(w.AddFS(os.DirFS(dir)), w.Close()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, packed(t, b.Bytes()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func unpack(t *testing.T, from, dir string) {
	t.Helper()
	f, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	r := tar.NewReader(z)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o700)
		} else if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			var b []byte
			if b, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(path, b, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestNewerDataIsRefused: what a newer version wrote is refused with a sentence that says so, and
// nothing of it is changed.
func TestNewerDataIsRefused(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	cfg := releaseConfig(t, data)
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
		s, err := Start(ctx, cfg)
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
	refused("version 0.1.0 does not go with the cluster's version 0.4.0")
}
