package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

const root = "../.."

// of begins the names of the files.
const of = "signalbox" + "_1.2.3"

// tiny makes all files of a release, of a small program for one platform instead of the real ones.
func tiny(t *testing.T) *builder {
	t.Helper()
	abs, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	b := &builder{
		ctx: t.Context(), root: abs, out: filepath.Join(t.TempDir(), "dist"),
		progress: io.Discard, version: "1.2.3", commit: strings.Repeat("0123", 10), time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		programs: []program{{
			name: "signalbox", module: "cmd/release", main: "./testdata/tiny",
			platforms: []platform{{"linux", runtime.GOARCH}},
			docs:      []string{"LICENSE", "SECURITY.md"}, unit: "server/deploy/signalbox.service", completions: true, packaged: true,
			maxBinary: 10e6, maxArchive: 10e6,
		}},
	}
	return b
}

// once builds the files that tests look at and do not change.
var once struct {
	sync.Once
	b   *builder
	err error
}

func built(t *testing.T) *builder {
	t.Helper()
	once.Do(func() {
		once.b = tiny(t)
		once.b.ctx = context.Background()
		if once.b.out, once.err = os.MkdirTemp("", "signalbox-release-"); once.err == nil {
			once.err = once.b.build()
		}
	})
	if once.err != nil {
		t.Fatal(once.err)
	}
	return once.b
}

func TestMain(m *testing.M) {
	code := m.Run()
	if once.b != nil {
		_ = os.RemoveAll(once.b.out)
	}
	os.Exit(code)
}

func (b *builder) file(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(b.out, name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// untar returns the headers and contents in a tar.
func untar(t *testing.T, r io.Reader) (headers []*tar.Header, contents map[string][]byte) {
	t.Helper()
	contents = map[string][]byte{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return headers, contents
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		headers, contents[h.Name] = append(headers, h), content
	}
}

// TestPagesLinks: every link of the pages in an archive leads to a file beside it, or to one of the
// commit that is in the repository.
func TestPagesLinks(t *testing.T) {
	b := tiny(t)
	targets := regexp.MustCompile(`\]\(([^()\s]+)\)`)
	for _, p := range programs {
		files, err := b.readPages(p.docs)
		if err != nil {
			t.Fatal(err)
		}
		there := map[string]bool{}
		for _, f := range files {
			there[f.name] = true
		}
		for _, f := range files {
			if !strings.HasSuffix(f.name, ".md") {
				continue
			}
			for _, x := range targets.FindAllSubmatch(f.content, -1) {
				to, _, _ := strings.Cut(string(x[1]), "#")
				name, ours := strings.CutPrefix(strings.Replace(to, "/raw/", "/blob/", 1), source+"/blob/"+b.commit+"/")
				_, err := os.Stat(filepath.Join(root, name))
				if !there[to] && to != "" && (ours && err != nil || !strings.HasPrefix(to, "https://")) {
					t.Errorf("%s of %s links to %s, which leads nowhere", f.name, p.name, to)
				}
			}
		}
	}
	files, err := b.readPages(programs[0].docs)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"](REFERENCE.md)", "](CHANGELOG.md)", "](" + source + "/blob/" + b.commit + "/client/README.md#fencing)",
		source + "/raw/" + b.commit + "/client/concept.svg)"} {
		if !bytes.Contains(files[0].content, []byte(want)) {
			t.Errorf("the README in the archive has no %s", want)
		}
	}
}

// TestFilesAreExplained: the page of the deployment names each archive, and where releases are.
func TestFilesAreExplained(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "server/deploy/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{source + "/releases", "`signalbox_*_image.tar`", "`signalbox-*.tgz`"}
	for _, p := range programs {
		want = append(want, "`"+p.name+"_*_linux_amd64.tar.gz`")
	}
	for _, c := range clients {
		want = append(want, "`"+fmt.Sprintf(c.archive, "*")+"`")
	}
	for _, w := range want {
		if !bytes.Contains(page, []byte(w)) {
			t.Errorf("server/deploy/README.md does not say what %s is", w)
		}
	}
}

// TestSameBytes: folder, home, time zone, umask and the environment's wishes for Go decide nothing.
func TestSameBytes(t *testing.T) {
	first := built(t)
	mod, err := command(t.Context(), ".", "go", "env", "GOMODCACHE", "GOCACHE")
	if err != nil {
		t.Fatal(err)
	}
	modules, cache, _ := strings.Cut(mod, "\n")
	for key, value := range map[string]string{
		"HOME": t.TempDir(), "TMPDIR": t.TempDir(), "TZ": "Asia/Tokyo", "GOMODCACHE": modules, "GOCACHE": cache,
		"GOFLAGS": "-tags=other", "GOAMD64": "v3", "CGO_ENABLED": "1", "SOURCE_DATE_EPOCH": "1", "LC_ALL": "C",
	} {
		t.Setenv(key, value)
	}
	defer syscall.Umask(syscall.Umask(0o077))
	second := tiny(t)
	if err := second.build(); err != nil {
		t.Fatal(err)
	}
	if a, b := first.file(t, sums), second.file(t, sums); !bytes.Equal(a, b) {
		t.Errorf("the files differ:\n%s\n%s", a, b)
	}
	listed := strings.Count(string(first.file(t, sums)), "\n")
	if files, _ := os.ReadDir(first.out); len(files) != listed+1 || listed != 9 {
		t.Errorf("%d files, and %d checksums", len(files), listed)
	}
}

func TestArchive(t *testing.T) {
	b := built(t)
	z, err := gzip.NewReader(bytes.NewReader(b.file(t, of+"_linux_"+runtime.GOARCH+".tar.gz")))
	if err != nil {
		t.Fatal(err)
	}
	if z.Name != "" || !z.ModTime.IsZero() {
		t.Errorf("gzip has name %q and time %v", z.Name, z.ModTime)
	}
	headers, contents := untar(t, z)
	var got []string
	for _, h := range headers {
		if h.Uid != 0 || h.Gid != 0 || !h.ModTime.Equal(b.time) {
			t.Errorf("%s is of %d:%d and %v", h.Name, h.Uid, h.Gid, h.ModTime)
		}
		got = append(got, fmt.Sprintf("%o %s", h.Mode, strings.TrimPrefix(h.Name, of+"/")))
	}
	want := []string{"755 ", "644 LICENSE", "644 SECURITY.md", "644 THIRD-PARTY.txt",
		"755 completions/", "644 completions/signalbox.bash", "644 completions/signalbox.fish",
		"644 completions/signalbox.zsh", "755 signalbox", "644 signalbox.service"}
	if !slices.Equal(got, want) {
		t.Errorf("the archive has\n%s", strings.Join(got, "\n"))
	}
	if text := string(contents[of+"/THIRD-PARTY.txt"]); !strings.Contains(text, "github.com/opencontainers/go-digest v") ||
		!strings.Contains(text, "Apache License") || !strings.Contains(text, "Go's standard library go1.") {
		t.Errorf("THIRD-PARTY.txt is\n%.500s", text)
	}
	if text := string(contents[of+"/completions/signalbox.zsh"]); text != "[completion zsh] 1.2.3 "+b.commit+" 2026-01-02T03:04:05Z sha256\n" {
		t.Errorf("the program says %q", text)
	}
	if _, err := buildinfo.Read(bytes.NewReader(contents[of+"/signalbox"])); err != nil {
		t.Error(err)
	}
}

// TestChart: the chart has the release's version, and the files that it links to.
func TestChart(t *testing.T) {
	b := built(t)
	z, err := gzip.NewReader(bytes.NewReader(b.file(t, "signalbox-1.2.3.tgz")))
	if err != nil {
		t.Fatal(err)
	}
	headers, contents := untar(t, z)
	for _, h := range headers {
		if h.Typeflag != tar.TypeReg || h.Mode != 0o644 || h.Uid != 0 || !h.ModTime.Equal(b.time) || !strings.HasPrefix(h.Name, "signalbox/") {
			t.Errorf("%s: %+v", h.Name, h)
		}
	}
	if text := string(contents["signalbox/Chart.yaml"]); !strings.Contains(text, "\nversion: 1.2.3\n") ||
		!strings.Contains(text, "\nappVersion: 1.2.3\n") || strings.Contains(text, "-dev") {
		t.Errorf("Chart.yaml is\n%s", text)
	}
	for name, of := range map[string]string{
		"values.yaml": "server/deploy/chart/values.yaml", "values.schema.json": "server/deploy/chart/values.schema.json",
		"templates/statefulset.yaml": "server/deploy/chart/templates/statefulset.yaml",
		"files/alerts.yml":           "server/deploy/monitoring/alerts.yml",
	} {
		if want, err := os.ReadFile(filepath.Join(b.root, of)); err != nil || !bytes.Equal(contents["signalbox/"+name], want) {
			t.Errorf("%s has %d bytes, and %s %d: %v", name, len(contents["signalbox/"+name]), of, len(want), err)
		}
	}
}

// TestClients: the archives of the clients have the release's version, and their programs run.
func TestClients(t *testing.T) {
	b := built(t)
	for _, x := range []struct {
		archive, folder, version string
		run                      []string
	}{
		{of + "_python.tar.gz", "signalbox-1.2.3", "pyproject.toml",
			[]string{"python3", "-c", "import signalbox.aio; signalbox.connect"}},
		{of + "_npm.tgz", "package", "package.json", []string{"node", "--input-type=module", "-e", "import('./signalbox.js').then(m => { if (!m.connect) process.exit(1) })"}},
	} {
		z, err := gzip.NewReader(bytes.NewReader(b.file(t, x.archive)))
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		headers, contents := untar(t, z)
		for _, h := range headers {
			folder, name, _ := strings.Cut(h.Name, "/")
			if folder != x.folder || h.Mode != 0o644 || !h.ModTime.Equal(b.time) {
				t.Errorf("%s: %+v", h.Name, h)
			}
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), contents[h.Name], 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if text := string(contents[x.folder+"/"+x.version]); !strings.Contains(text, `"1.2.3"`) ||
			strings.Contains(text, "0.0.0") {
			t.Errorf("%s is\n%s", x.version, text)
		}
		if _, err := exec.LookPath(x.run[0]); err != nil {
			continue
		}
		if _, err := command(t.Context(), dir, x.run[0], x.run[1:]...); err != nil {
			t.Error(err)
		}
	}
}

// TestWheel: the client for Python is installed from its file, both parts of it, with types.
func TestWheel(t *testing.T) {
	b := built(t)
	wheel := filepath.Join(b.out, "signalbox-1.2.3-py3-none-any.whl")
	z, err := zip.OpenReader(wheel)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	var names []string
	for _, f := range z.File {
		names = append(names, f.Name)
	}
	const info = "signalbox-1.2.3.dist-info/"
	want := []string{"signalbox/__init__.py", "signalbox/aio.py", "signalbox/py.typed", info + "LICENSE", info + "METADATA",
		info + "WHEEL", info + "RECORD"}
	if !slices.Equal(names, want) {
		t.Errorf("it has %q", names)
	}
	if _, err := command(t.Context(), ".", "python3", "-m", "pip", "--version"); err != nil {
		t.Skip("pip is missing: ", err)
	}
	dir := t.TempDir()
	if out, err := command(t.Context(), dir, "python3", "-m", "pip", "install", "--no-index", "--target", dir, wheel); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	says, err := command(t.Context(), dir, "python3", "-c",
		"import signalbox.aio, importlib.metadata as m; print(m.version('signalbox'), m.metadata('signalbox')['Requires-Python'])")
	if err != nil || strings.TrimSpace(says) != "1.2.3 >=3.9" {
		t.Errorf("it is %q: %v", says, err)
	}
}

// TestBill: the bill lists what Go recorded in the binary, with its licences.
func TestBill(t *testing.T) {
	b := built(t)
	var bom cyclonedx.BOM
	if err := json.Unmarshal(b.file(t, of+"_linux_"+runtime.GOARCH+".cdx.json"), &bom); err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(b.file(t, of+"_linux_"+runtime.GOARCH+".tar.gz")))
	if err != nil {
		t.Fatal(err)
	}
	_, contents := untar(t, z)
	info, err := buildinfo.Read(bytes.NewReader(contents[of+"/signalbox"]))
	if err != nil {
		t.Fatal(err)
	}
	if bom.SerialNumber != "" || bom.Metadata.Timestamp != "" || bom.SpecVersion != cyclonedx.SpecVersion1_6 || bom.Metadata.Component.Version != "1.2.3" {
		t.Errorf("the bill begins with %+v, %+v", bom, bom.Metadata)
	}
	if len(*bom.Components) != len(info.Deps) || len(info.Deps) != 2 {
		t.Fatalf("%d components of %d", len(*bom.Components), len(info.Deps))
	}
	for i, dep := range info.Deps {
		c := (*bom.Components)[i]
		version := dep.Version
		if dep.Replace != nil {
			version = "v1.2.3"
		}
		if c.Name != dep.Path || c.Version != version || c.PackageURL != "pkg:golang/"+dep.Path+"@"+version || (*c.Licenses)[0].License.ID != "Apache-2.0" {
			t.Errorf("component %+v of %+v", c, dep)
		}
	}
}

// TestUnknownLicence: a module whose licence nobody knows stops the release.
func TestUnknownLicence(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "LICENSE"), []byte("Do what I say, and nothing else.\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := appendLicence(new(bytes.Buffer), "example.com/odd", "v1.0.0", dir); err == nil || !strings.Contains(err.Error(), "example.com/odd v1.0.0 has no licence") {
		t.Error(err)
	}
}

func TestImage(t *testing.T) {
	b := built(t)
	dir := t.TempDir()
	headers, contents := untar(t, bytes.NewReader(b.file(t, of+"_image.tar")))
	for _, h := range headers {
		path := filepath.Join(dir, h.Name)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if h.Typeflag == tar.TypeReg {
			err = errors.Join(err, os.WriteFile(path, contents[h.Name], 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	top, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(top.Manifests) != 1 || top.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "1.2.3" {
		t.Fatalf("the layout has %+v", top.Manifests)
	}
	platforms, err := index.ImageIndex(top.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(platforms); err != nil {
		t.Error(err)
	}
	list, err := platforms.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Manifests) != 1 || list.Manifests[0].Platform.String() != "linux/"+runtime.GOARCH {
		t.Fatalf("the index has %+v", list.Manifests)
	}
	tag, err := name.NewTag("signalbox:1.2.3-" + runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := tarball.ImageFromPath(filepath.Join(b.out, of+"_image.tar"), &tag)
	if err != nil {
		t.Fatal(err)
	}
	image, err := platforms.Image(list.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []v1.Image{image, loaded} {
		checkImage(t, i, b.time)
	}
}

// checkImage compares an image with what server/deploy/Dockerfile makes.
func checkImage(t *testing.T, image v1.Image, at time.Time) {
	t.Helper()
	if err := validate.Image(image); err != nil {
		t.Error(err)
	}
	full, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := full.Config
	if c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/signalbox"}) || !slices.Equal(c.Cmd, []string{"serve"}) ||
		c.StopSignal != "SIGTERM" || !slices.Contains(c.Env, "SIGNALBOX_DATA=/data") || !slices.Contains(c.Env, "TMPDIR=/data") || len(c.Env) < 4 || len(c.ExposedPorts) < 3 || len(c.Volumes) != 1 ||
		c.Labels["org.opencontainers.image.version"] != "1.2.3" || !full.Created.Equal(at) {
		t.Errorf("the image is configured as %+v", full)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	r, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	headers, _ := untar(t, r)
	var got []string
	for _, h := range headers {
		got = append(got, fmt.Sprintf("%o %d %s", h.Mode, h.Uid, h.Name))
	}
	want := []string{"644 0 LICENSE", "644 0 THIRD-PARTY.txt", "700 65532 data/", "755 0 etc/", "644 0 etc/group", "644 0 etc/passwd", "755 0 signalbox"}
	if !slices.Equal(got, want) {
		t.Errorf("the image has %q", got)
	}
}

// TestUnknownInstruction: an instruction that is new in the Dockerfile is not passed over.
func TestUnknownInstruction(t *testing.T) {
	if _, err := imageConfig("FROM a AS build\nRUN x\nFROM b\nHEALTHCHECK NONE\n"); err == nil || !strings.Contains(err.Error(), "HEALTHCHECK") {
		t.Error(err)
	}
}

// TestDebianPackage: the package has every file with its mode, and depends on nothing.
func TestDebianPackage(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("there is no dpkg-deb here")
	}
	b := built(t)
	path := filepath.Join(b.out, of+"_"+runtime.GOARCH+".deb")
	fields, err := command(t.Context(), ".", "dpkg-deb", "--field", path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(fields, "Version: 1.2.3-1\n") || strings.Contains(fields, "Depends") {
		t.Errorf("the package says\n%s", fields)
	}
	list, err := command(t.Context(), ".", "dpkg-deb", "--contents", path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`-rwxr-xr-x root/root .* \./usr/bin/signalbox`, `-rw-r--r-- root/root .* \./usr/lib/systemd/system/signalbox\.service`,
		`-rw-r----- root/root .* \./etc/signalbox/signalbox\.env`, `-rw-r--r-- root/root .* \./etc/needrestart/conf\.d/signalbox\.conf`,
		`\./usr/share/doc/signalbox/LICENSE`, `\./usr/share/doc/signalbox/THIRD-PARTY\.txt`, `\./usr/share/bash-completion/completions/signalbox`,
		`\./usr/share/fish/vendor_completions\.d/signalbox\.fish`, `\./usr/share/zsh/vendor-completions/_signalbox`,
	} {
		if !regexp.MustCompile(`(?m)` + want + `$`).MatchString(list) {
			t.Errorf("the package lacks %s:\n%s", want, list)
		}
	}
	dir := t.TempDir()
	if _, err := command(t.Context(), ".", "dpkg-deb", "--raw-extract", path, dir); err != nil {
		t.Fatal(err)
	}
	conffiles, err := os.ReadFile(filepath.Join(dir, "DEBIAN/conffiles"))
	if err != nil || !strings.Contains(string(conffiles), "/etc/signalbox/signalbox.env\n") {
		t.Errorf("configuration files are %s (%v)", conffiles, err)
	}
	unit, err := os.ReadFile(filepath.Join(dir, "usr/lib/systemd/system/signalbox.service"))
	if err != nil || !strings.Contains(string(unit), "\nExecStart=/usr/bin/signalbox serve\n") || strings.Contains(string(unit), "/usr/local") {
		t.Errorf("the unit is\n%s (%v)", unit, err)
	}
	for line := range strings.Lines(string(must(os.ReadFile(filepath.Join(dir, "etc/signalbox/signalbox.env"))))) {
		if line != "\n" && !strings.HasPrefix(line, "#") {
			t.Errorf("signalbox.env sets %s", line)
		}
	}
}

func must(content []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return content
}

// TestPackageScripts: what they do to files, and what they say. The first installation makes a join
// token; an upgrade keeps it.
func TestPackageScripts(t *testing.T) {
	dir := t.TempDir()
	script := func(name string, args ...string) string {
		t.Helper()
		text := strings.ReplaceAll(string(must(os.ReadFile(filepath.Join(root, packageFiles, name)))), "/etc/signalbox/", dir+"/")
		text = strings.ReplaceAll(text, "/run/systemd/system", dir+"/none")
		out, err := command(t.Context(), ".", "sh", append([]string{"-c", text, "sh"}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	token := filepath.Join(dir, "join-token")
	if said := script("postinstall.sh", "configure", ""); !strings.Contains(said, "nothing was started") {
		t.Errorf("the first installation says %q", said)
	}
	first := must(os.ReadFile(token))
	if info, err := os.Stat(token); err != nil || info.Mode() != 0o600 || !regexp.MustCompile(`^[0-9a-f]{48}$`).Match(first) {
		t.Errorf("the join token is %q with mode %v (%v)", first, info.Mode(), err)
	}
	for _, args := range [][]string{{"configure", "1.2.2"}, {"2"}} {
		if said := script("postinstall.sh", args...); !strings.Contains(said, "nothing was restarted") || !strings.Contains(said, "cluster plan --until-done") {
			t.Errorf("the upgrade %q says %q", args, said)
		}
	}
	for _, args := range [][]string{{"remove"}, {"purge"}, {"0"}} {
		if said := script("postremove.sh", args...); !strings.Contains(said, "/var/lib/signalbox") {
			t.Errorf("the removal %q says %q", args, said)
		}
	}
	if said := script("postremove.sh", "upgrade", "1.2.4"); said != "" {
		t.Errorf("the removal of an upgrade says %q", said)
	}
	if again := must(os.ReadFile(token)); !bytes.Equal(first, again) {
		t.Error("the join token is another one")
	}
}

// TestBars: a program that has grown fails the release.
func TestBars(t *testing.T) {
	b := tiny(t)
	b.programs[0].maxBinary = 1e5
	if err := b.build(); err == nil || !strings.Contains(err.Error(), "above the bar") {
		t.Error(err)
	}
	b = tiny(t)
	b.programs[0].maxArchive = 1e5
	if err := b.build(); err == nil || !strings.Contains(err.Error(), "above the bar") {
		t.Error(err)
	}
	b = tiny(t)
	if err := os.MkdirAll(filepath.Join(b.out, "old"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := b.build(); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Error(err)
	}
}

// TestSignature: the commands that SECURITY shows accept the files, and none of them with another
// byte. A key that the repository does not name signs nothing.
func TestSignature(t *testing.T) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("there is no ssh-keygen here")
	}
	b := &builder{ctx: t.Context(), root: t.TempDir(), out: t.TempDir()}
	for _, name := range []string{of + "_a", of + "_b"} {
		if err := b.write(name, []byte(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.writeSums(); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(t.TempDir(), "key")
	if _, err := command(t.Context(), ".", "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key); err != nil {
		t.Fatal(err)
	}
	if err := b.sign(key); err == nil || !strings.Contains(err.Error(), signers) {
		t.Error(err)
	}
	allowed := append([]byte("signalbox-release "), must(os.ReadFile(key+".pub"))...)
	err := errors.Join(os.Remove(filepath.Join(b.out, sums+".sig")), os.MkdirAll(filepath.Join(b.root, "server/deploy"), 0o700),
		os.WriteFile(filepath.Join(b.root, signers), allowed, 0o600), os.WriteFile(filepath.Join(b.out, "allowed_signers"), allowed, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.sign(key); err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(must(os.ReadFile(filepath.Join(root, "SECURITY.md")))), "```sh\n")
	shown, _, _ = strings.Cut(shown, "```")
	if strings.Count(shown, "\n") != 2 {
		t.Fatalf("SECURITY.md shows %q", shown)
	}
	verify := func() error {
		_, err := command(t.Context(), b.out, "sh", "-ec", shown)
		return err
	}
	if err := verify(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{of + "_a", of + "_b", sums, sums + ".sig"} {
		content := b.file(t, name)
		changed := bytes.Clone(content)
		changed[len(changed)/2] ^= 1
		path := filepath.Join(b.out, name)
		if err := os.WriteFile(path, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		if verify() == nil {
			t.Errorf("%s with another byte is accepted", name)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRefusals: each reason why a tree is not to be released.
func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
		if _, err := output(cmd, dir); err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(version string, reasons ...string) {
		t.Helper()
		err := refusals(context.Background(), dir, version, "0.3.0-dev")
		if len(reasons) == 0 {
			if err != nil {
				t.Error(err)
			}
			return
		}
		if err == nil {
			t.Errorf("%s is released", version)
			return
		}
		if got := strings.Split(err.Error(), "\n"); len(got) < len(reasons) {
			t.Errorf("only %q", got)
		}
		for _, reason := range reasons {
			if !strings.Contains(err.Error(), reason) {
				t.Errorf("%q is missing in: %v", reason, err)
			}
		}
	}
	git("init", "-q")
	mod := func(version string) {
		for _, m := range importedModules {
			write(m+"/go.mod", "module github.com/signalbox-dev/signalbox/"+m+"\n\nrequire (\n\tgithub.com/signalbox-dev/signalbox v"+version+
				"\n)\n\nreplace github.com/signalbox-dev/signalbox => ../..\n")
		}
	}
	mod("0.3.0")
	write("CHANGELOG.md", "# Changelog\n\n## 0.3.0 - 2026-12-24\n")
	git("add", ".")
	git("commit", "-q", "-m", "first")
	refused("0.3.0")
	for _, version := range []string{"v0.3.0", "0.3", "0.3.0-dev", "", "0.03.0"} {
		refused(version, "is not written as 1.2.3")
	}
	refused("0.4.0", "the tree is of version 0.3.0-dev", "\"## 0.4.0 - YYYY-MM-DD\"",
		"client/grpcsignalbox/go.mod does not require version 0.4.0", "client/otelsignalbox/go.mod does not require version 0.4.0")
	write("new", "")
	refused("0.3.0", "not committed", "new")
	if err := os.Remove(filepath.Join(dir, "new")); err != nil {
		t.Fatal(err)
	}
	git("tag", "v0.1.9")
	git("tag", "v0.2.0")
	refused("0.3.0", "releases lacks 0.2.0")
	write("server/testdata/releases/0.2.0/commit", "x")
	git("add", ".")
	git("commit", "-q", "-m", "kept")
	git("tag", "v0.3.0")
	refused("0.3.0")
}
