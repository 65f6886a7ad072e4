package grpcsignalbox_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// grpcVersions are the two newest minor versions of gRPC: that of go.mod, and the one before.
var grpcVersions = []string{"v1.85.0", "v1.84.0"}

// Versions of modules that gRPC's package xds needs indirectly: old ones have packages that others
// have by now.
const (
	genproto = "google.golang.org/genproto@v0.0.0-20260817212433-ac3dfec99bb1"
	cloud    = "cloud.google.com/go@v0.121.0"
)

// TestVersionsOfGRPC runs the ordinary tests with each version, and with the newest one those of
// outlier detection. That is a part of gRPC's package xds, whose dependencies are none of this
// module's.
func TestVersionsOfGRPC(t *testing.T) {
	form.SkipUntil(t, form.Full, "it builds gRPC in several versions")
	t.Parallel()
	for i, version := range grpcVersions {
		t.Run(version, func(t *testing.T) {
			dir := t.TempDir()
			for _, name := range []string{"go.mod", "go.sum"} {
				b, err := os.ReadFile(name)
				must(t, err)
				must(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
			}
			file := filepath.Join(dir, "go.mod")
			run := func(args ...string) (string, error) {
				cmd := exec.CommandContext(t.Context(), "go", args...)
				cmd.Env = append(os.Environ(), "SIGNALBOX_TEST=")
				out, err := cmd.CombinedOutput()
				return string(out), err
			}
			if out, err := run("mod", "edit", "-require=google.golang.org/grpc@"+version, "-require="+genproto, "-require="+cloud, file); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if out, err := run("mod", "download", "-modfile="+file, "google.golang.org/grpc@"+version); err != nil {
				t.Skipf("gRPC %s cannot be had: %s", version, out)
			}
			args := []string{"test", "-mod=mod", "-modfile=" + file, "-count=1", "."}
			if i == 0 {
				args = append(args, "./testdata/outlier")
			}
			out, err := run(args...)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Log(out)
			if used, err := run("list", "-mod=mod", "-modfile="+file, "-m", "google.golang.org/grpc"); err != nil ||
				used != "google.golang.org/grpc "+version+"\n" {
				t.Errorf("the tests ran with %s, %v", used, err)
			}
		})
	}
}
