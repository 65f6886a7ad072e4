package chaos

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest/await"
	"github.com/signalbox-dev/signalbox/server/servertest/binary"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/server/servertest/port"
)

// newDisk mounts a disk for a test; fs makes the file system in a file, empty is one in memory. The
// test is skipped where that is impossible.
func newDisk(t *testing.T, size string, fs ...string) (dir string) {
	t.Helper()
	dir, err := makeDisk(t, size, fs...)
	if err != nil {
		t.Skip(err)
	}
	return dir
}

// makeDisk is newDisk, but returns why it is impossible.
func makeDisk(t *testing.T, size string, fs ...string) (dir string, err error) {
	t.Helper()
	if os.Getuid() != 0 {
		return "", errors.New("mounting a disk needs root")
	}
	dir = t.TempDir()
	mount := []string{"-t", "tmpfs", "-o", "size=" + size, "none", dir}
	if len(fs) > 0 {
		image := filepath.Join(t.TempDir(), "image")
		for _, args := range [][]string{{"truncate", "-s", size, image}, append(fs, image)} {
			if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
				return "", fmt.Errorf("%v: %w: %s", args, err, out)
			}
		}
		mount = []string{"-o", "loop", image, dir}
	}
	if out, err := exec.Command("mount", mount...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("a disk cannot be mounted here: %w: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("unmount: %v: %s", err, out)
		}
	})
	return dir, nil
}

// fill fills a disk until this many bytes are left.
func fill(t *testing.T, disk string, left int64) (file string) {
	t.Helper()
	file = filepath.Join(disk, "filler")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var s syscall.Statfs_t
	if err := syscall.Statfs(disk, &s); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Fallocate(int(f.Fd()), 0, 0, int64(s.Bavail)*s.Bsize-left); err != nil {
		t.Fatal(err)
	}
	return file
}

// fillFiles takes the inodes of a disk until this many are left, in a folder that it returns.
func fillFiles(t *testing.T, disk string, left uint64) (dir string) {
	t.Helper()
	dir, err := os.MkdirTemp(disk, "fillers")
	if err != nil {
		t.Fatal(err)
	}
	var s syscall.Statfs_t
	if err := syscall.Statfs(disk, &s); err != nil {
		t.Fatal(err)
	}
	for n := uint64(s.Ffree); n > left; n-- {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(n)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// startOnDisk starts an instance on a disk and waits until it serves.
func startOnDisk(t *testing.T, disk string) *instance {
	t.Helper()
	in := &instance{t: t, bin: binary.Signalbox(t), dir: filepath.Join(disk, "data"), listen: port.ForTest(t),
		raft: port.ForTest(t), admin: port.ForTest(t)}
	in.logFile = filepath.Join(t.TempDir(), "log")
	in.start()
	t.Cleanup(func() { in.killAndShowLog("server") })
	return in
}

// cli runs a command against the instance. The tests' own variables, which it would warn about, are
// left out.
func (in *instance) cli(args ...string) (string, error) {
	c := exec.Command(in.bin, args...)
	c.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SIGNALBOX_") })
	c.Env = append(c.Env, "SIGNALBOX_ENDPOINTS="+in.listen)
	out, err := c.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// setFlags sets a configuration as soon as the instance accepts it.
func (in *instance) setFlags(value string) {
	in.t.Helper()
	await.True(in.t, "the instance to take a value", func() bool {
		_, err := in.cli("config", "set", "flags", value)
		return err == nil
	})
}

// awaitFlags waits until the configuration has a value that was acknowledged.
func (in *instance) awaitFlags(value string) {
	in.t.Helper()
	await.True(in.t, "the value that was acknowledged", func() bool {
		got, err := in.cli("config", "get", "flags")
		return err == nil && got == value
	})
}

// ready asks like a load balancer.
func (in *instance) ready() (ok bool, text string) {
	r, err := http.Get("http://" + in.admin + "/readyz")
	if err != nil {
		return false, err.Error()
	}
	defer r.Body.Close()
	b, _ := io.ReadAll(r.Body)
	return r.StatusCode == http.StatusOK, string(b)
}

// awaitFailure waits for the process to end with exit code 1 and these words on its standard error.
func (in *instance) awaitFailure(words string) {
	in.t.Helper()
	in.awaitEnd("the process to end")
	var exit *exec.ExitError
	if !errors.As(in.err, &exit) || exit.ExitCode() != 1 {
		in.t.Fatalf("it ended with %v", in.err)
	}
	for line := range strings.Lines(in.log()) {
		if strings.HasPrefix(line, "signalbox: ") && strings.Contains(line, words) {
			return
		}
	}
	in.t.Fatalf("it ended without a line that says %q", words)
}

// TestDiskFull fills the disk of an instance. The instance ends with an error that says so, and
// does not start while the disk is full. Afterwards it has everything that was acknowledged.
func TestDiskFull(t *testing.T) {
	form.SkipUntil(t, form.Full, "an instance on a disk of its own")
	t.Parallel()
	disk := newDisk(t, "256m")
	in := startOnDisk(t, disk)
	in.setFlags("on")
	filler := fill(t, disk, 16<<20)
	in.awaitFailure(" of 256 MiB are free, at least 32 are needed; make room, then start again")

	in.start()
	in.awaitFailure("the disk is full")

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	in.start()
	in.awaitFlags("on")
	in.stop()
}

// TestInodesFull takes the inodes of an instance's disk, which has room otherwise. The instance ends
// with an error that says so, and says it again, at once, when it is started, also on a new folder.
func TestInodesFull(t *testing.T) {
	form.SkipUntil(t, form.Full, "an instance on a disk of its own")
	t.Parallel()
	disk := newDisk(t, "1g,nr_inodes=2000")
	in := startOnDisk(t, disk)
	in.setFlags("on")
	const words = "%d of 2000 inodes are free, at least 256 are needed; make room, then start again"
	folders := []string{fillFiles(t, disk, 200)}
	in.awaitFailure(strings.TrimPrefix(words, "%d"))
	dir, other := in.dir, filepath.Join(disk, "other")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, left := range []uint64{150, 10, 0} {
		folders = append(folders, fillFiles(t, disk, left))
		for _, in.dir = range []string{other, dir} {
			in.logFile = filepath.Join(t.TempDir(), "log") // of this start alone
			in.start()
			in.awaitFailure(fmt.Sprintf(words, left))
		}
	}
	for _, dir := range folders {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	in.start()
	in.awaitFlags("on")
	in.stop()
}

// TestDiskNearlyFull fills the disk of one of three instances to the low mark: it drains and
// ends while the others serve.
func TestDiskNearlyFull(t *testing.T) {
	form.SkipUntil(t, form.Full, "clusters on disks of their own")
	t.Parallel()
	// The marks of a disk of 1 GiB are at 102 and 51 MiB, those of inodes at 512 and 256.
	t.Run("bytes", func(t *testing.T) {
		testNearlyFull(t, "1g", func(disk string) { fill(t, disk, 80<<20) })
	})
	t.Run("inodes", func(t *testing.T) {
		testNearlyFull(t, "1g,nr_inodes=2000", func(disk string) { fillFiles(t, disk, 400) })
	})
}

func testNearlyFull(t *testing.T, size string, fill func(disk string)) {
	disk := newDisk(t, size)
	c := newCluster(t, "--shutdown-timeout", "60s") // a busy machine may need more than 3 s to drain
	c.add("a").logFile = filepath.Join(t.TempDir(), "log")
	c.instances["a"].dir = filepath.Join(disk, "data")
	c.add("b")
	c.add("c")
	c.startAll("a", "b", "c")
	if out, err := c.command("config", "set", "flags", "on"); err != nil {
		t.Fatal(out, err)
	}
	fill(disk)
	c.instances["a"].awaitFailure("what was here went to other instances; make room, then start again")
	if strings.Contains(c.instances["a"].log(), "drain given up") {
		t.Error("it did not drain")
	}
	if out, err := c.command("config", "get", "flags"); err != nil || strings.TrimSpace(out) != "on" {
		t.Fatal(out, err)
	}
}

// TestDiskStuck freezes the disk of an instance: it reports that it is not ready, and ends when the
// write has taken too long.
func TestDiskStuck(t *testing.T) {
	form.SkipUntil(t, form.Long, "it waits for the limit of half a minute")
	disk := newDisk(t, "512m", "mkfs.ext4", "-q", "-F")
	in := startOnDisk(t, disk)
	in.setFlags("on")
	if out, err := exec.Command("fsfreeze", "--freeze", disk).CombinedOutput(); err != nil {
		t.Skipf("a disk cannot be frozen here: %v: %s", err, out)
	}
	thaw := func() { _ = exec.Command("fsfreeze", "--unfreeze", disk).Run() }
	defer thaw()
	await.True(t, "the instance not to be ready", func() bool {
		ready, text := in.ready()
		return !ready && strings.Contains(text, "a write to the disk of the log has been under way for")
	})
	await.True(t, "a line that says why it ends", func() bool {
		return strings.Contains(in.log(), "the instance stopped by itself: the disk does not finish a write")
	})
	thaw() // a process with a write in progress does not end before
	in.awaitFailure("the disk does not finish a write")
	in.start()
	in.awaitFlags("on")
	in.stop()
}

// watermarks are the files that say how far the log has come.
func (in *instance) watermarks() (bytes string) {
	in.t.Helper()
	files, err := filepath.Glob(filepath.Join(in.dir, "raft", "watermark.*"))
	if err != nil || len(files) != 2 {
		in.t.Fatalf("files of the watermark: %v, %v", files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			in.t.Fatal(err)
		}
		bytes += string(b)
	}
	return bytes
}

// TestOldLog puts an old copy of the log into the folder of an instance.
func TestOldLog(t *testing.T) {
	form.SkipUntil(t, form.Full, "wal.TestDamages has logs that went back")
	t.Parallel()
	in := startInstance(t, binary.Signalbox(t))
	in.setFlags("old")
	in.stop()
	logs, err := filepath.Glob(filepath.Join(in.dir, "raft", "*", "*", "logdb-*"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("folders of the log: %v, %v", logs, err)
	}
	copied := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(copied, os.DirFS(logs[0])); err != nil {
		t.Fatal(err)
	}
	in.start()
	in.awaitFlags("old") // the start's own write of the watermark, which is that of the copy, is done
	marks := in.watermarks()
	in.setFlags("new")
	await.True(t, "the log's watermark to be written", func() bool { return in.watermarks() != marks })
	in.kill()
	if err := os.RemoveAll(logs[0]); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(logs[0], os.DirFS(copied)); err != nil {
		t.Fatal(err)
	}
	in.start()
	in.awaitFailure("the log has gone back")
}
