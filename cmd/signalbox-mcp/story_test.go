package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/binary"
)

// TestStory runs testdata/story.txt with the real binaries of the server and of the command line.
func TestStory(t *testing.T) {
	t.Parallel()
	signalbox := binary.Signalbox(t)
	script, err := os.ReadFile("testdata/story.txt")
	if err != nil {
		t.Fatal(err)
	}
	srv := servertest.Start(t)
	hosts, tokens := map[string]*host{}, map[string]uint64{}
	step, out, steps := "", "", 0
	for line := range strings.Lines(string(script)) {
		line = strings.TrimRight(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if want, expected := strings.CutPrefix(line, "  "); expected {
			if !strings.Contains(out, want) {
				t.Errorf("%s\ndoes not print %q, but\n%s", step, want, out)
			}
			continue
		}
		step, out = line, ""
		steps++
		words := strings.SplitN(line, " ", 4)
		switch words[0] {
		case "agent":
			h := hosts[words[1]]
			if h == nil {
				h = start(t, srv.Addr())
				hosts[words[1]] = h
			}
			var a args
			if err := json.Unmarshal([]byte(words[3]), &a); err != nil {
				t.Fatal(line, err)
			}
			s := h.call(words[2], a)
			out = s.text
			if s.State == "held" {
				tokens[words[1]] = s.Names[0].Token
			}
		case "signalbox":
			cmd := exec.Command(signalbox, strings.Fields(line)[1:]...)
			cmd.Env = append(os.Environ(), "SIGNALBOX_ENDPOINTS="+srv.Addr())
			b, err := cmd.CombinedOutput()
			if out = string(b); err != nil {
				t.Errorf("%s: %v\n%s", line, err, out)
			}
		case "kill":
			_ = hosts[words[1]].cmd.Process.Kill()
			_ = hosts[words[1]].session.Close()
		case "advance":
			d, err := time.ParseDuration(words[1])
			if err != nil {
				t.Fatal(err)
			}
			srv.Advance(d)
		case "higher":
			if tokens[words[1]] <= tokens[words[2]] {
				t.Errorf("%s: the tokens are %v", line, tokens)
			}
		default:
			t.Fatalf("unknown step: %s", line)
		}
	}
	if steps != 9 {
		t.Errorf("%d steps were run", steps)
	}
}
