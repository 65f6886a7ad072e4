package laws

import (
	"regexp"
	"strings"
	"testing"
)

// TestReadmeIsShort: the README has at most 1,200 words, code and tables included.
func TestReadmeIsShort(t *testing.T) {
	if n := len(strings.Fields(read(t, "README.md"))); n > 1200 {
		t.Errorf("the README has %d words; move what a newcomer does not ask first to a page of its own", n)
	}
}

var (
	makeShown  = regexp.MustCompile("(?m)(?:^|`)make ([a-z][a-z-]*)\\b")
	makeTarget = regexp.MustCompile(`(?m)^([a-z][a-z-]*):.*## `)
)

// TestShownTargetsExist: every target of make that a page shows is in the Makefile.
func TestShownTargetsExist(t *testing.T) {
	targets := map[string]bool{}
	for _, m := range makeTarget.FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets[m[1]] = true
	}
	shown := 0
	eachText(t, func(name string, text []byte) {
		if !strings.HasSuffix(name, ".md") || strings.HasPrefix(name, "bench/results/") {
			return
		}
		for _, block := range regexp.MustCompile("(?s)```sh\n.*?```|`[^`\n]+`").FindAllString(string(text), -1) {
			for _, m := range makeShown.FindAllStringSubmatch(block, -1) {
				if shown++; !targets[m[1]] {
					t.Errorf("%s shows `make %s`, which the Makefile does not have", name, m[1])
				}
			}
		}
	})
	if shown < 10 {
		t.Fatalf("found %d targets in pages", shown)
	}
}

// TestRunBuildsWhatItRuns: `make run` builds the server's binary and no gateway.
func TestRunBuildsWhatItRuns(t *testing.T) {
	recipes := map[string]string{}
	needs := map[string][]string{}
	target := ""
	for line := range strings.Lines(read(t, "Makefile")) {
		if m := makeTarget.FindStringSubmatch(line); m != nil {
			target = m[1]
			head, _, _ := strings.Cut(strings.TrimPrefix(line, target+":"), "##")
			needs[target] = strings.Fields(head)
		} else if strings.HasPrefix(line, "\t") {
			recipes[target] += line
		}
	}
	all := recipes["run"]
	for _, n := range needs["run"] {
		all += recipes[n]
	}
	if !strings.Contains(all, "$(BUILD) -o bin/signalbox ./cmd/signalbox") || strings.Contains(all, "YDB") {
		t.Errorf("make run does:\n%s", all)
	}
}

// TestWordsOfColumns: the page of words explains terms that columns, errors and flags use.
func TestWordsOfColumns(t *testing.T) {
	page := strings.ToLower(read(t, "cmd/signalbox/WORDS.md"))
	if node := strings.Index(page, "**node**"); node < 0 || node > strings.Index(page, "**session**") {
		t.Error("the page of words does not begin with what a node is")
	}
	for _, term := range []string{"attached", "detached", "silent", "remote session", "home shard", "ticket", "grace", "attach epoch",
		"owner", "waiter", "fencing token", "ephemeral", "persistent", "policy", "lane", "slot", "drained", "stuck", "strict", "relaxed",
		"instance", "shard", "bucket", "replicaset", "meta shard", "governor", "tier", "failure domain", "expel", "join token",
		"quota", "zone", "ready", "leased", "demand", "min", "weight", "floor", "learning", "rollout", "converged", "stalled", "bake",
		"gate", "process", "coordinator"} {
		if !strings.Contains(page, "**"+term+"**") {
			t.Errorf("cmd/signalbox/WORDS.md does not explain %q", term)
		}
	}
}
