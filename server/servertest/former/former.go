// Package former gives tests the releases before this tree: their source, and their program.
//
// server/testdata/releases names the commit of each, and the source comes from the repository's
// history. A clone without that history, such as a shallow one, skips the tests that need it. In
// CI, where the variable CI is true, they fail.
package former

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/server/file"
	"github.com/signalbox-dev/signalbox/server/release"
	"github.com/signalbox-dev/signalbox/shard/meta"
)

// Release is a release that is kept.
type Release struct {
	Version meta.Version
	Commit  string

	root string // of the repository
}

// Releases returns the kept releases that are older than this tree, in the order of their versions.
// root is the repository's folder, as the test sees it.
func Releases(t testing.TB, root string) (list []Release) {
	t.Helper()
	tree, err := meta.ParseVersion(release.TreeVersion)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "server/testdata/releases/*/commit"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		v, err := meta.ParseVersion(filepath.Base(filepath.Dir(name)))
		if err != nil {
			t.Fatal(err)
		}
		if v.Compare(tree) >= 0 { // it is kept before it is out
			continue
		}
		commit, err := file.Read(name, 100)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, Release{v, strings.TrimSpace(string(commit)), root})
	}
	slices.SortFunc(list, func(a, b Release) int { return a.Version.Compare(b.Version) })
	return list
}

// Source returns a folder with the release's tree, which goes with the test.
func (r Release) Source(t testing.TB) (folder string) {
	t.Helper()
	folder = t.TempDir()
	archive := filepath.Join(t.TempDir(), "source.tar")
	for _, args := range [][]string{
		{"git", "-C", r.root, "archive", "-o", archive, r.Commit}, {"tar", "-xf", archive, "-C", folder},
	} {
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		if err == nil {
			continue
		}
		const missing = "the source of release %s, commit %s, is not to be had: %v: %s; fetch the whole history"
		if os.Getenv("CI") == "true" {
			t.Fatalf(missing, r.Version, r.Commit, err, out)
		}
		t.Skipf(missing, r.Version, r.Commit, err, out)
	}
	return folder
}

// Program returns the release's command line, built from its source. It is built once, and kept in
// the user's folder for caches.
func (r Release) Program(t testing.TB) (path string) {
	t.Helper()
	caches, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(caches, "signalbox", "releases")
	path = filepath.Join(folder, "signalbox-"+r.Commit+"-"+runtime.GOOS+"-"+runtime.GOARCH)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	work, err := os.MkdirTemp(folder, "build-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(work)
	const stamp = " -X github.com/signalbox-dev/signalbox/server/release."
	made := filepath.Join(work, "signalbox")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags=-s -w"+stamp+"version="+r.Version.String()+stamp+"commit="+r.Commit, "-o", made, "./cmd/signalbox")
	cmd.Dir = r.Source(t)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building release %s: %v\n%s", r.Version, err, out)
	}
	if err := os.Link(made, path); err != nil && !errors.Is(err, fs.ErrExist) { // another test was faster
		t.Fatal(err)
	}
	return path
}
