package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// Users of these tests, of nobody on the machine.
const (
	podUser, podGroup = 65432, 65432
	formerUser        = 65433
)

// podVolume is a volume as kubelet leaves it for a pod with fsGroup, each time before the pod starts:
// all that is in it belongs to the group, which may read and write.
func podVolume(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := os.Chown(path, -1, podGroup); err != nil {
			return err
		}
		fi, err := os.Lstat(path) // after chown, which takes the bit away
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.Chmod(path, fi.Mode().Perm()|0o770|fs.ModeSetgid)
		}
		return os.Chmod(path, fi.Mode().Perm()|0o660)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// podStart starts an instance on a folder, as a user of the group, from this binary, which the user
// need not be able to find.
func podStart(t *testing.T, user int, data, raft string) *piped {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	t.Cleanup(func() { _ = r.Close() })
	p := newPiped(r)
	p.running = startWith(t, nil, func(cmd *exec.Cmd) {
		cmd.Path, cmd.Args[0], cmd.Dir, cmd.Stderr = "/proc/self/exe", "signalbox", "/", w
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(user), Gid: podGroup}
	}, "signalbox", "serve", "--data", data, "--listen", freeAddress(), "--raft", raft, "--admin", "off")
	return p
}

// TestPodFolders: an instance starts on the folders that pods get, again and again, and refuses those
// that it cannot keep to itself.
func TestPodFolders(t *testing.T) {
	form.SkipUntil(t, form.Full, "instances on folders of each kind")
	if os.Geteuid() != 0 {
		t.Skip("only root can give folders to other users")
	}
	t.Parallel()
	for _, c := range []struct {
		name string
		make func(t *testing.T, volume string) (data string) // before the first start
		user int                                             // of the second start
		says string                                          // the log of the second start, or the error
		bad  bool                                            // the second start is refused
	}{
		{"a folder below a volume with fsGroup", func(t *testing.T, volume string) string {
			podVolume(t, volume)
			return filepath.Join(volume, "signalbox")
		}, podUser, `msg="data folder closed to other users"`, false},
		{"a volume with fsGroup, which is root's", func(t *testing.T, volume string) string {
			podVolume(t, volume)
			return volume
		}, podUser, `belongs_to="user 0, group 65432"`, false},
		{"another user of the group than before", func(t *testing.T, volume string) string {
			podVolume(t, volume)
			return filepath.Join(volume, "signalbox")
		}, formerUser, `belongs_to="user 65432, group 65432"`, false},
		{"a folder below an emptyDir", func(t *testing.T, volume string) string {
			chmod(t, volume, 0o777)
			return filepath.Join(volume, "signalbox")
		}, podUser, `msg="data folder closed to other users"`, false},
		{"an emptyDir, which is root's and open to all", func(t *testing.T, volume string) string {
			chmod(t, volume, 0o777)
			return volume
		}, podUser, "give a folder below it, such as ", true},
		{"another user than before, to whom nothing is given", func(t *testing.T, volume string) string {
			data := filepath.Join(volume, "signalbox")
			if err := os.Mkdir(data, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(data, podUser, podGroup); err != nil {
				t.Fatal(err)
			}
			return data
		}, formerUser, "it belongs to user 65432, group 65432, and this process is user 65433, group 65432", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			volume := filepath.Join(t.TempDir(), "volume")
			if err := os.Mkdir(volume, 0o755); err != nil {
				t.Fatal(err)
			}
			for dir := filepath.Dir(volume); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
				chmod(t, dir, 0o755)
			}
			data, raft := c.make(t, volume), freeAddress()
			stop := func(p *piped) {
				t.Helper()
				p.await("msg=serving")
				p.signal(syscall.SIGTERM)
				if code := p.code(); code != 0 {
					t.Errorf("exit code %d", code)
				}
			}
			if !c.bad {
				stop(podStart(t, podUser, data, raft))
				podVolume(t, volume)
			}
			p := podStart(t, c.user, data, raft)
			p.await(c.says)
			if c.bad {
				if code := p.code(); code != exitError {
					t.Errorf("exit code %d", code)
				}
				return
			}
			stop(p)
			if fi, err := os.Stat(data); err != nil || fi.Mode().Perm() != 0o700 && !strings.HasPrefix(c.says, "belongs_to") {
				t.Errorf("the folder has %v, %v", fi.Mode(), err)
			}
		})
	}
}

func chmod(t *testing.T, path string, mode fs.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}
