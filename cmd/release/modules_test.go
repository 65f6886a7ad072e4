package main

import (
	"archive/zip"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/signalbox-dev/signalbox"

// TestModulesElsewhere: a module elsewhere takes the nested client modules at the release's version
// from a proxy, which is a folder, and builds without a replace.
func TestModulesElsewhere(t *testing.T) {
	made(t)
	requires := required.FindSubmatch(must(os.ReadFile(filepath.Join(root, importedModules[0], "go.mod"))))
	version := "v" + string(requires[1])
	proxy, dir := t.TempDir(), t.TempDir()
	tree, err := command(t.Context(), root, "git", "ls-files")
	if err != nil {
		t.Fatal(err)
	}
	files := strings.Split(tree, "\n")
	var nested []string
	for _, f := range files {
		if folder, name := path.Split(f); name == "go.mod" && folder != "" {
			nested = append(nested, folder)
		}
	}
	publish(t, proxy, version, "", files, nested)
	program := "package main\n\nimport (\n"
	for _, m := range importedModules {
		publish(t, proxy, version, m+"/", files, nested)
		program += "\t_ \"" + module + "/" + m + "\"\n"
	}
	write(t, filepath.Join(dir, "main.go"), program+")\n\nfunc main() {}\n")
	write(t, filepath.Join(dir, "go.mod"), "module example.com/elsewhere\n\ngo 1.26.0\n")
	cache, err := command(t.Context(), ".", "go", "env", "GOMODCACHE")
	if err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "GOPROXY=file://"+proxy+",file://"+cache+"/cache/download", "GOSUMDB=off",
		"GOMODCACHE="+filepath.Join(dir, "modules"), "GOFLAGS=-modcacherw", "GOWORK=off", "CGO_ENABLED=0")
	get := []string{"get"}
	for _, m := range importedModules {
		get = append(get, module+"/"+m+"@"+version)
	}
	for _, args := range [][]string{get, {"mod", "tidy"}, {"build", "-trimpath", "-o", os.DevNull, "."}} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Env = env
		if _, err := output(cmd, dir); err != nil {
			t.Fatal(err)
		}
	}
	mod := string(must(os.ReadFile(filepath.Join(dir, "go.mod"))))
	if !strings.Contains(mod, module+" "+version+" ") || strings.Contains(mod, "replace") {
		t.Errorf("the module elsewhere requires\n%s", mod)
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// publish writes the module in a folder of the repository as a proxy has it.
func publish(t *testing.T, proxy, version, folder string, files, nested []string) {
	t.Helper()
	name := strings.TrimSuffix(module+"/"+folder, "/")
	at := filepath.Join(proxy, name, "@v")
	mod := string(must(os.ReadFile(filepath.Join(root, folder, "go.mod"))))
	write(t, filepath.Join(at, "list"), version+"\n")
	write(t, filepath.Join(at, version+".info"), fmt.Sprintf(`{"Version":%q,"Time":"2026-01-02T03:04:05Z"}`, version))
	write(t, filepath.Join(at, version+".mod"), mod)
	archive, err := os.Create(filepath.Join(at, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	z := zip.NewWriter(archive)
	for _, f := range files {
		rest, ok := strings.CutPrefix(f, folder)
		if !ok || slices.ContainsFunc(nested, func(n string) bool { return n != folder && strings.HasPrefix(n, folder) && strings.HasPrefix(f, n) }) {
			continue
		}
		content := must(os.ReadFile(filepath.Join(root, f)))
		if rest == "go.mod" {
			content = []byte(mod)
		}
		w, err := z.Create(name + "@" + version + "/" + rest)
		if err == nil {
			_, err = w.Write(content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
}
