package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"debug/macho"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

var (
	dist     = flag.String("dist", "", "the folder with the files of a release, which are tested too")
	again    = flag.String("again", "", "another folder with a release of the same commit as that of -dist")
	testRoot = flag.String("root", "", "a root of Debian's that debootstrap made; empty: the test makes one, if it can")
)

func made(t *testing.T) (version string) {
	t.Helper()
	if *dist == "" {
		t.Skip("make release-test builds a release and looks at it")
	}
	images, _ := filepath.Glob(filepath.Join(*dist, "signalbox_*_image.tar"))
	if len(images) != 1 {
		t.Fatalf("%s has the images %q", *dist, images)
	}
	return strings.TrimSuffix(strings.TrimPrefix(filepath.Base(images[0]), "signalbox_"), "_image.tar")
}

// extract writes what is in a tar below dir, with its modes; as root with its owners.
func extract(t *testing.T, r io.Reader, dir string) {
	t.Helper()
	headers, contents := untar(t, r)
	for _, h := range headers {
		path := filepath.Join(dir, h.Name)
		var err error
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o700)
		} else {
			err = os.WriteFile(path, contents[h.Name], 0o600)
		}
		err = errors.Join(err, os.Chmod(path, os.FileMode(h.Mode)))
		if os.Getuid() == 0 {
			err = errors.Join(err, os.Chown(path, h.Uid, h.Gid))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func unpack(t *testing.T, archive string) string {
	t.Helper()
	f, err := os.Open(filepath.Join(*dist, archive))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	extract(t, z, dir)
	return dir
}

// TestFiles: every file of a release is there, and has its checksum.
func TestFiles(t *testing.T) {
	v := made(t)
	var want []string
	for _, p := range programs {
		for _, at := range p.platforms {
			want = append(want, p.name+"_"+v+"_"+at.String()+".tar.gz", p.name+"_"+v+"_"+at.String()+".cdx.json")
		}
	}
	want = append(want, "signalbox_"+v+"_image.tar", "signalbox-"+v+".tgz", "signalbox_"+v+"_python.tar.gz",
		"signalbox-"+strings.Replace(v, "-dev.", "+dev.", 1)+"-py3-none-any.whl",
		"signalbox_"+v+"_npm.tgz", sums, "signalbox_"+v+"_amd64.deb", "signalbox_"+v+"_arm64.deb",
		"signalbox-"+v+"-1.x86_64.rpm", "signalbox-"+v+"-1.aarch64.rpm")
	slices.Sort(want)
	entries, err := os.ReadDir(*dist)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, want) {
		t.Errorf("the release has %q", got)
	}
	if _, err := command(t.Context(), *dist, "sha256sum", "--check", "--strict", sums); err != nil {
		t.Error(err)
	}
}

// TestBinaries: each archive has a binary for its platform, and the bill lists what Go lists.
func TestBinaries(t *testing.T) {
	v := made(t)
	for _, p := range programs {
		for _, at := range p.platforms {
			of := p.name + "_" + v + "_" + at.String()
			binary := filepath.Join(unpack(t, of+".tar.gz"), p.name+"_"+v, p.name)
			if at.os == "linux" {
				f, err := elf.Open(binary)
				if err != nil || f.Machine != map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[at.arch] || f.Section(".interp") != nil {
					t.Errorf("%s is %v (%v)", of, f, err)
				}
			} else if f, err := macho.Open(binary); err != nil || f.Cpu != macho.CpuArm64 {
				t.Errorf("%s is %v (%v)", of, f, err)
			}
			listed, err := command(t.Context(), ".", "go", "version", "-m", binary)
			if err != nil {
				t.Fatal(err)
			}
			bill := string(must(os.ReadFile(filepath.Join(*dist, of+".cdx.json"))))
			deps := regexp.MustCompile(`(?m)^\tdep\t(\S+)\t(\S+)`).FindAllStringSubmatch(listed, -1)
			if len(deps) == 0 || len(deps) != strings.Count(bill, `"purl":`) {
				t.Errorf("%s: Go lists %d modules, the bill %d", of, len(deps), strings.Count(bill, `"purl":`))
			}
			for _, d := range deps {
				if d[1] != "github.com/signalbox-dev/signalbox" && !strings.Contains(bill, `"pkg:golang/`+d[1]+"@"+d[2]+`"`) {
					t.Errorf("the bill of %s lacks %s %s", of, d[1], d[2])
				}
			}
		}
	}
}

// lockOnce runs a command under a lock of the server at an address.
func lockOnce(t *testing.T, address string, signalbox ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), signalbox[0], append(signalbox[1:], "lock", "backup", "--", "sh", "-c", "echo token $SIGNALBOX_TOKEN")...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "SIGNALBOX_ENDPOINTS=" + address, "SIGNALBOX_TIMEOUT=60s"}
	if out, err := output(cmd, t.TempDir()); err != nil || !regexp.MustCompile(`^token \d+$`).MatchString(out) {
		t.Errorf("under the lock: %q, %v", out, err)
	}
}

// listening starts a server, and returns the address for clients that its log names.
func listening(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	cmd.Stdout, cmd.Stderr = w, w
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		_ = cmd.Wait()
		_ = r.Close()
	})
	if err := r.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	var log []byte
	serving := regexp.MustCompile(`serving.* listen=(\S+)`)
	for part := make([]byte, 1<<12); ; {
		n, err := r.Read(part)
		log = append(log, part[:n]...)
		if m := serving.FindSubmatch(log); m != nil {
			_ = r.SetReadDeadline(time.Time{})
			go func() { _, _ = io.Copy(io.Discard, r) }()
			return string(m[1])
		}
		if err != nil {
			t.Fatalf("the server says: %v\n%s", err, log)
		}
	}
}

// TestArchiveWorks: with nothing but the files of the archive, a server runs and a command gets a
// lock; completions are for this shell.
func TestArchiveWorks(t *testing.T) {
	v := made(t)
	dir := filepath.Join(unpack(t, "signalbox_"+v+"_"+runtime.GOOS+"_"+runtime.GOARCH+".tar.gz"), "signalbox_"+v)
	binary := filepath.Join(dir, "signalbox")
	said, err := command(t.Context(), dir, binary, "version")
	if err != nil || !regexp.MustCompile(`(?m)^version +`+regexp.QuoteMeta(v)+`$`).MatchString(said) ||
		!regexp.MustCompile(`(?m)^commit +[0-9a-f]{40}$`).MatchString(said) || !regexp.MustCompile(`(?m)^committed +\d{4}-`).MatchString(said) {
		t.Errorf("the binary says %s (%v)", said, err)
	}
	if _, err := command(t.Context(), dir, "bash", "-ec", "source completions/signalbox.bash; complete -p signalbox"); err != nil {
		t.Error(err)
	}
	cmd := exec.Command(binary, "dev", "--listen", "127.0.0.1:0", "--raft", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--console", "off", "--log-level", "info")
	cmd.Dir, cmd.Env = dir, []string{"HOME=" + t.TempDir(), "PATH=/usr/bin:/bin"}
	lockOnce(t, listening(t, cmd), binary)
}

// TestFirstContact runs the README's first two commands: as a new user with an empty home, without
// Go and without a network, in a folder with nothing but the files of the archive.
func TestFirstContact(t *testing.T) {
	v := made(t)
	if os.Getuid() != 0 || runtime.GOOS != "linux" {
		t.Skip("only root on Linux can have a network and a user of its own")
	}
	_, page, _ := strings.Cut(string(must(os.ReadFile(filepath.Join(root, "README.md")))), "## A lock in two minutes")
	shown := regexp.MustCompile("(?s)```sh\n(.*?)\n```").FindAllStringSubmatch(page, 2)
	if len(shown) != 2 || shown[0][1] != "./signalbox dev" || !strings.HasPrefix(shown[1][1], "./signalbox lock ") {
		t.Fatalf("the README shows %q", shown)
	}
	top := unpack(t, "signalbox_"+v+"_linux_"+runtime.GOARCH+".tar.gz")
	home := filepath.Join(top, "home")
	err := errors.Join(os.Chmod(filepath.Dir(top), 0o755), os.Chmod(top, 0o755), // the user has to get there
		os.Mkdir(home, 0o700), os.Chown(home, 1234, 1234))
	if err != nil {
		t.Fatal(err)
	}
	script := "ip link set lo up\nexec setpriv --reuid=1234 --regid=1234 --clear-groups env -i HOME=" + home + " PATH=/usr/bin:/bin sh -ec '\n" +
		shown[0][1] + " >/dev/null 2>&1 & trap \"kill $!\" EXIT\n" + strings.ReplaceAll(shown[1][1], "'", `'\''`) + "\n'"
	out, err := command(t.Context(), filepath.Join(top, "signalbox_"+v), "unshare", "--net", "sh", "-ec", script)
	if err != nil || !regexp.MustCompile(`(?m)^token \d+$`).MatchString(out) {
		t.Errorf("the README's commands print %q (%v)", out, err)
	}
}

// TestImageRuns: the image's process works as its user, on a root that nobody can write to.
func TestImageRuns(t *testing.T) {
	v := made(t)
	if os.Getuid() != 0 || runtime.GOOS != "linux" {
		t.Skip("only root on Linux can run the image")
	}
	tag, err := name.NewTag("signalbox:" + v + "-" + runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	image, err := tarball.ImageFromPath(filepath.Join(*dist, "signalbox_"+v+"_image.tar"), &tag)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	files, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	dir := t.TempDir()
	extract(t, files, dir)
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	run := func(verb ...string) *exec.Cmd {
		cmd := exec.Command("unshare", append([]string{"--mount", "--net", "sh", "-ec", `
		ip link set lo up; mount --bind "$0" "$0"; mount --bind "$0/data" "$0/data"; mount -o remount,bind,ro "$0"
		exec chroot --userspec=` + config.Config.User + ` "$0" "$@"`, dir}, append(config.Config.Entrypoint, verb...)...)...)
		cmd.Env = append(slices.Clone(config.Config.Env), "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "SIGNALBOX_HTTP=:7074")
		listening(t, cmd)
		lockOnce(t, "127.0.0.1:7070", "nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", cmd.Process.Pid), filepath.Join(dir, "signalbox"))
		return cmd
	}
	served := run(config.Config.Cmd...)
	if made, _ := os.ReadDir(filepath.Join(dir, "data")); len(made) == 0 {
		t.Error("the data folder is empty")
	}
	if said, err := command(t.Context(), ".", "nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", served.Process.Pid), "curl", "-sS",
		"--fail", "-X", "POST", "-H", "Signalbox-Session: image-test", "http://127.0.0.1:7074/v1/locks/backup?ttl=10s"); err != nil ||
		!strings.Contains(said, `"state":"acquired"`) {
		t.Errorf("locks by HTTP are answered %q, %v", said, err)
	}
	run("dev", "--log-level", "info")
	if _, err := exec.LookPath("skopeo"); err != nil {
		t.Log("there is no skopeo here: the image is not read by it")
		return
	}
	path := filepath.Join(*dist, "signalbox_"+v+"_image.tar")
	for _, from := range []string{"oci-archive:" + path, "docker-archive:" + path + ":signalbox:" + v + "-" + runtime.GOARCH} {
		if said, err := command(t.Context(), ".", "skopeo", "inspect", "--override-os=linux", "--override-arch="+runtime.GOARCH, from); err != nil ||
			!strings.Contains(said, `"org.opencontainers.image.version": "`+v+`"`) {
			t.Errorf("skopeo reads %s: %s %v", from, said, err)
		}
	}
}

// TestDebianInstalls: the package is installed in Debian's smallest root, upgraded, removed and
// purged; the join token and the data stay.
func TestDebianInstalls(t *testing.T) {
	v := made(t)
	base := *testRoot
	if base == "" {
		if _, err := exec.LookPath("debootstrap"); err != nil || os.Getuid() != 0 {
			t.Skip("there is no debootstrap here, or this is not root: the package is not installed")
		}
		base = t.TempDir()
		if _, err := command(t.Context(), ".", "debootstrap", "--variant=minbase", "stable", base); err != nil {
			t.Fatal(err)
		}
	}
	deb := "signalbox_" + v + "_" + runtime.GOARCH + ".deb"
	if err := os.WriteFile(filepath.Join(base, deb), must(os.ReadFile(filepath.Join(*dist, deb))), 0o600); err != nil {
		t.Fatal(err)
	}
	in := func(script string) string {
		t.Helper()
		cmd := exec.Command("chroot", base, "/bin/sh", "-ec", script)
		cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive"}
		out, err := output(cmd, ".")
		if err != nil {
			t.Fatal(err, out)
		}
		return out
	}
	t.Cleanup(func() { in("dpkg --purge signalbox; rm -rf /etc/signalbox /var/lib/signalbox /" + deb) })
	if said := in("dpkg -i /" + deb); !strings.Contains(said, "nothing was started") {
		t.Errorf("the installation says %s", said)
	}
	if said := in("signalbox --version; stat -c '%a %U' /etc/signalbox/join-token /etc/signalbox/signalbox.env"); said != "signalbox "+v+"\n600 root\n640 root" {
		t.Errorf("installed: %s", said)
	}
	token := in("cat /etc/signalbox/join-token; mkdir /var/lib/signalbox; touch /var/lib/signalbox/data; echo 'SIGNALBOX_INSTANCE=a' >/etc/signalbox/signalbox.env")
	if said := in("dpkg -i /" + deb); !strings.Contains(said, "nothing was restarted") {
		t.Errorf("the upgrade says %s", said)
	}
	if said := in("cat /etc/signalbox/signalbox.env"); said != "SIGNALBOX_INSTANCE=a" {
		t.Errorf("after the upgrade the settings are %s", said)
	}
	for _, verb := range []string{"--remove", "--purge"} {
		if said := in("dpkg " + verb + " signalbox"); !strings.Contains(said, "/var/lib/signalbox") {
			t.Errorf("%s says %s", verb, said)
		}
		if left := in("cat /etc/signalbox/join-token; ls /var/lib/signalbox"); left != token+"data" {
			t.Errorf("after %s there is %s", verb, left)
		}
	}
	if said := in("test ! -e /usr/bin/signalbox && test ! -e /etc/signalbox/signalbox.env && echo gone"); said != "gone" {
		t.Error("something is left")
	}
}

// TestRPMInstalls: rpm accepts the package, and finds its files as they were.
func TestRPMInstalls(t *testing.T) {
	v := made(t)
	if _, err := exec.LookPath("rpm"); err != nil || os.Getuid() != 0 {
		t.Skip("there is no rpm here, or this is not root")
	}
	dir := t.TempDir()
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	path := filepath.Join(*dist, fmt.Sprintf("signalbox-%s-1.%s.rpm", v, arch))
	for _, args := range [][]string{{"--checksig", path}, {"--root", dir, "--install", "--noscripts", path}, {"--root", dir, "--verify", "signalbox"}} {
		if out, err := command(t.Context(), ".", "rpm", args...); err != nil {
			t.Fatal(err, out)
		}
	}
	said, err := command(t.Context(), ".", filepath.Join(dir, "usr/bin/signalbox"), "--version")
	if err != nil || said != "signalbox "+v {
		t.Errorf("the binary says %s (%v)", said, err)
	}
	needs, err := command(t.Context(), ".", "rpm", "--query", "--requires", "--package", path)
	if err != nil {
		t.Fatal(err)
	}
	for need := range strings.Lines(needs) {
		if need = strings.TrimSpace(need); need != "/bin/sh" && !strings.HasPrefix(need, "rpmlib(") && !strings.HasPrefix(need, "config(signalbox)") {
			t.Errorf("the package needs %s", need)
		}
	}
}

// TestSameRelease: another folder with a release of the same commit has the same files.
func TestSameRelease(t *testing.T) {
	made(t)
	if *again == "" {
		t.Skip("-again names no other release")
	}
	a, b := must(os.ReadFile(filepath.Join(*dist, sums))), must(os.ReadFile(filepath.Join(*again, sums)))
	if !bytes.Equal(a, b) {
		t.Errorf("the files differ:\n%s\n%s", a, b)
	}
}
