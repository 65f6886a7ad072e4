package laws

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// written is a file that people wrote, by its path from the root.
type written struct {
	name string
	text []byte
}

// texts reads every such file of the repository, once for all laws, which only read them.
var texts = sync.OnceValues(func() (list []written, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			hidden := strings.HasPrefix(d.Name(), ".") && rel != "." && rel != ".ci"
			if hidden || rel == "bin" || rel == "signalbox-data" {
				return filepath.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || rel == ".git" { // in a linked work tree .git is a file
			return nil
		}
		text, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			return nil // another test's temporary file
		}
		if err != nil {
			return err
		}
		if bytes.IndexByte(text, 0) >= 0 {
			return nil // test binaries, profiles
		}
		list = append(list, written{filepath.ToSlash(rel), text})
		return nil
	})
	return list, err
})

func eachText(t *testing.T, f func(name string, text []byte)) {
	t.Helper()
	list, err := texts()
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < 50 {
		t.Fatalf("found %d files from %s, expected the whole repository", len(list), root)
	}
	for _, x := range list {
		f(x.name, x.text)
	}
}

// forbiddenPlaces are places that the repository must not speak of: it has to make sense on any
// machine, with any registry. They are written in two parts, or this file would break its own rule.
var forbiddenPlaces = []string{
	".." + "/shared", "/wo" + "rk/", "/ro" + "ot/", "/ho" + "me/",
	"proxy.golang" + ".org", "sum.golang" + ".org", "goproxy" + ".", "registry.npmjs" + ".org", "pypi" + ".org",
	"docker" + ".io", "ghcr" + ".io",
}

func TestNoPlaceOfAMachineIsNamed(t *testing.T) {
	eachText(t, func(name string, text []byte) {
		if name == "go.sum" {
			return
		}
		for _, f := range forbiddenPlaces {
			if i := bytes.Index(text, []byte(f)); i >= 0 {
				t.Errorf("%s:%d names %s; say it so that it is true everywhere", name, 1+bytes.Count(text[:i], []byte("\n")), f)
			}
		}
	})
}

var (
	target   = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
	makeLine = regexp.MustCompile("(?m)(?:^|`|\\$ )make ([a-z][a-z-]*)")
)

// TestPagesNameTargetsThatExist: where a page tells to run make, there is something to make.
func TestPagesNameTargetsThatExist(t *testing.T) {
	targets := map[string]bool{}
	for _, m := range target.FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets[m[1]] = true
	}
	for _, must := range []string{"help", "build", "run", "test"} {
		if !targets[must] {
			t.Errorf("the Makefile has no target %s", must)
		}
	}
	named := 0
	eachText(t, func(name string, text []byte) {
		if !strings.HasSuffix(name, ".md") {
			return
		}
		for _, m := range makeLine.FindAllSubmatch(text, -1) {
			named++
			if !targets[string(m[1])] {
				t.Errorf("%s tells to run `make %s`, which the Makefile does not have", name, m[1])
			}
		}
	})
	if named == 0 {
		t.Error("no page tells to run make")
	}
}

var updateFlag = regexp.MustCompile(`flag\.(?:Bool|Var)\(.*"update"`)

// TestGoldenRewritesAll: `make golden` runs each package whose tests have the flag -update.
func TestGoldenRewritesAll(t *testing.T) {
	_, recipe, _ := strings.Cut(read(t, "Makefile"), "\ngolden:")
	recipe, _, _ = strings.Cut(recipe, "\n\n")
	recipe = strings.ReplaceAll(recipe, "$(YDB)", "cmd/signalbox-ydb")
	eachText(t, func(name string, text []byte) {
		if !strings.HasSuffix(name, "_test.go") || !updateFlag.Match(text) {
			return
		}
		dir := path.Dir(name)
		for _, there := range []string{"./" + dir + " ", "./" + dir + "/... ", "./" + path.Dir(dir) + "/... ", "cd " + dir + " "} {
			if strings.Contains(recipe, there) {
				return
			}
		}
		t.Errorf("the target golden of the Makefile lacks ./%s, whose tests have the flag -update", dir)
	})
}

// TestPagesLinkToFilesThatExist: a relative link of a page leads somewhere.
func TestPagesLinkToFilesThatExist(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
	eachText(t, func(name string, text []byte) {
		if !strings.HasSuffix(name, ".md") || strings.Contains(name, "/testdata/") {
			return
		}
		for _, m := range link.FindAllSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(name), string(m[1]))); err != nil {
				t.Errorf("%s links to %s, which is not there", name, m[1])
			}
		}
	})
}
