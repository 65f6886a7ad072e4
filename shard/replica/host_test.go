package replica

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server/servertest/port"
)

func freeAddress(t testing.TB) string {
	t.Helper()
	address, err := port.Free()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

func TestDirectoryIsLocked(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	cfg := HostConfig{Dir: dir, RaftAddress: freeAddress(t)}
	h := openHost(t, cfg)
	if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("data directory: %v, %v", fi.Mode(), err)
	}
	if _, err := OpenHost(cfg); !errors.Is(err, ErrLocked) {
		t.Errorf("opened twice in one process: %v", err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenHost(HostConfig{Dir: link, RaftAddress: freeAddress(t)}); !errors.Is(err, ErrLocked) {
		t.Errorf("opened twice in one process, by another name: %v", err)
	}
	closeHost(t, h)

	// Another process.
	cmd := exec.Command(os.Args[0], "-test.run=^TestHelperHoldsDirectory$", "-test.v")
	cmd.Env = append(os.Environ(), "REPLICA_TEST_DIR="+dir, "REPLICA_TEST_RAFT="+cfg.RaftAddress)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "holding") {
	}
	if _, err := OpenHost(cfg); !errors.Is(err, ErrLocked) {
		t.Errorf("opened beside another process: %v", err)
	}
	in.Close()
	for lines.Scan() {
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	openHost(t, cfg)
}

func TestHelperHoldsDirectory(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("REPLICA_TEST_DIR")
	if dir == "" {
		t.Skip("only for TestDirectoryIsLocked")
	}
	openHost(t, HostConfig{Dir: dir, RaftAddress: os.Getenv("REPLICA_TEST_RAFT")})
	fmt.Println("holding")
	var b [1]byte
	_, _ = os.Stdin.Read(b[:])
}

func TestWrongSettingsSayWhatToDo(t *testing.T) {
	t.Parallel()
	disk := NewMemoryDisk()
	closeHost(t, openHost(t, HostConfig{Disk: disk}))
	for _, x := range []struct {
		name string
		cfg  HostConfig
		want string
	}{
		{"no directory", HostConfig{RaftAddress: "127.0.0.1:1"}, "data directory is not set"},
		{"no address", HostConfig{Dir: t.TempDir()}, "is not one that the transport can reach"},
		{"round trip time", HostConfig{Memory: true, RTT: time.Microsecond}, "at least 1ms"},
		{"another address", HostConfig{Disk: disk, Transport: NewMemoryNet(), RaftAddress: "other:1"},
			"belongs to another raft address"},
		{"another cluster", HostConfig{Disk: disk, deployment: 7}, "belongs to another cluster"},
		{"a file as directory", HostConfig{Dir: os.Args[0], RaftAddress: "127.0.0.1:1"}, "create data directory"},
	} {
		h, err := OpenHost(x.cfg)
		if err == nil {
			closeHost(t, h)
		}
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: error is %v, want one with %q", x.name, err, x.want)
		}
	}
	closeHost(t, openHost(t, HostConfig{Disk: disk})) // the failures left nothing behind
}

func TestWrongShardsAreRefused(t *testing.T) {
	t.Parallel()
	h := openHost(t, HostConfig{})
	members := map[uint64]string{1: h.RaftAddress()}
	for _, cfg := range []ShardConfig{
		{Replica: 1, Members: members, Sink: newRecorder(t)},
		{ID: 1, Members: members, Sink: newRecorder(t)},
		{ID: 1, Replica: 1, Members: members},
		{ID: 1, Replica: 1, Members: members, Sink: newRecorder(t), InFlight: 65},
		{ID: 1, Replica: 1, Sink: newRecorder(t)}, // nothing to restart
	} {
		if _, err := h.StartShard(cfg); err == nil {
			t.Errorf("%+v starts", cfg)
		}
	}
	startOne(t, h, nil)
	if _, err := h.StartShard(ShardConfig{ID: 1, Replica: 1, Members: members, Sink: newRecorder(t)}); err == nil {
		t.Error("a shard starts twice")
	}
	if err := h.StopShard(2); err == nil {
		t.Error("an unknown shard stops")
	}
	closeHost(t, h)
	closeHost(t, h)
	if _, err := h.StartShard(ShardConfig{ID: 3, Replica: 1, Members: members, Sink: newRecorder(t)}); err == nil {
		t.Error("a closed host starts shards")
	}
}

func TestShardStopsAndStartsAgain(t *testing.T) {
	t.Parallel()
	h := openHost(t, HostConfig{})
	for round := range 3 {
		s, r := startOne(t, h, nil)
		populate(t, s)
		c := newCaller(t, s, r, 1, 60_000)
		c.mustCreate(fmt.Sprint(round))
		for i := range round {
			if !exists(t, s, fmt.Sprint(i)) {
				t.Errorf("semaphore %d is gone", i)
			}
		}
		if err := h.StopShard(1); err != nil {
			t.Fatal(err)
		}
	}
}
