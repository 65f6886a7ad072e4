package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// limitLook is a document of `limit describe`.
type limitLook struct {
	Resources []struct{ Leased float64 }
	Sessions  []struct{ Rate float64 }
}

// TestRateLimitStory runs the commands of client/ratelimit/README.md: two services share a limit, and
// one is killed. What `limit describe` shows after each block is the story, and never more than the limit.
func TestRateLimitStory(t *testing.T) {
	form.SkipUntil(t, form.Full, "it builds an example")
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	dir := t.TempDir()
	script := ""
	for _, block := range fenced(readPage(t, "../../client/ratelimit/README.md"), "sh") {
		if rest, ok := strings.CutPrefix(block, "go build -o services "); ok {
			build := exec.Command("go", "build", "-o", filepath.Join(dir, "services"), strings.TrimSpace(rest))
			build.Dir = "../.."
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			continue
		}
		script += block + "signalbox limit describe api -o jsonl >>looks.jsonl\n"
	}
	env := []string{"STORY=" + dir, "SIGNALBOX_ENDPOINTS=" + srv.Addr()}
	t.Log(expect(t, 0, env, "sh", "-c", "cd $STORY\nset -eux\n"+killAll+script))

	chapters := [][]float64{{500, 500}, {1000}, nil} // both; one; nobody
	for _, x := range readLooks(t, filepath.Join(dir, "looks.jsonl")) {
		if len(chapters) > 0 && x.shows(chapters[0]) {
			chapters = chapters[1:]
		}
	}
	if len(chapters) > 0 {
		t.Errorf("limit describe never showed sessions with %v", chapters)
	}
}

// shows reports whether these are the rates of its sessions. One that was killed is shown without a
// rate until it expires.
func (x *limitLook) shows(rates []float64) bool {
	var got []float64
	for _, s := range x.Sessions {
		if s.Rate > 0 {
			got = append(got, s.Rate)
		}
	}
	return slices.Equal(got, rates)
}

// readLooks reads what `limit describe` wrote.
func readLooks(t *testing.T, path string) (list []limitLook) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for d := json.NewDecoder(f); ; {
		var x limitLook
		if err := d.Decode(&x); err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Error(err)
			}
			return list
		}
		if x.Resources[0].Leased > 1000 {
			t.Errorf("more is leased than the limit: %+v", x)
		}
		list = append(list, x)
	}
}
