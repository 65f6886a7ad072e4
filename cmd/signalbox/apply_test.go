package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/client/ratelimit"
	"github.com/signalbox-dev/signalbox/client/rollout"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/desired"
	"github.com/signalbox-dev/signalbox/cmd/signalbox/settings"
	"github.com/signalbox-dev/signalbox/server/servertest"
	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/spf13/cobra"
)

// cli runs a command line against a server, with input, and returns its output and exit code.
func cli(t *testing.T, addr, input string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, notes bytes.Buffer
	code = run(t.Context(), append(slices.Clone(args), "--endpoints", addr, "--timeout", "60s"),
		strings.NewReader(input), &out, &notes)
	return out.String(), notes.String(), code
}

// mustCLI is cli that must end with a code.
func mustCLI(t *testing.T, addr, input string, want int, args ...string) string {
	t.Helper()
	stdout, stderr, code := cli(t, addr, input, args...)
	if code != want {
		t.Fatalf("%s: exit code %d, want %d\n%s%s\n%s", strings.Join(args, " "), code, want, stdout, stderr, input)
	}
	return stdout
}

// TestDocumentsHaveTheFlags compares the keys of objects in documents with the flags of the verbs
// that make the same objects. Those of a rollout are a file of their own.
func TestDocumentsHaveTheFlags(t *testing.T) {
	root := newApp(t.Context(), nil, nil, nil).root()
	for _, x := range []struct {
		kind     desired.Kind
		verb     string
		beside   []string // flags of the verb that are about the command
		more     []string // keys that no flag has
		settings func() *cobra.Command
	}{
		{desired.Node, "node create", []string{"if-not-exists"}, nil,
			func() *cobra.Command {
				c := new(cobra.Command)
				nodeFlags(c.Flags(), "")
				c.Flags().String("tier", "", "")
				return c
			}},
		{desired.Semaphore, "sem create", []string{"reason"}, []string{"data-base64"},
			func() *cobra.Command { c := new(cobra.Command); addLimitFlag(c); addQueueFlags(c); return c }},
		{desired.Config, "config set", []string{"reason", "if-version"}, []string{"data", "data-base64"}, // data is an argument there
			func() *cobra.Command { return new(cobra.Command) }},
		{desired.Limit, "limit create", []string{"reason", "force"}, nil,
			func() *cobra.Command { c := new(cobra.Command); addLimitFlags(c); return c }},
	} {
		c, _, err := root.Find(strings.Fields(x.verb))
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, name := range keysOf(c, desired.Node) {
			if f := c.Flag(name); !settings.InTable(f) && name != "help" && !slices.Contains(x.beside, name) {
				want = append(want, name)
			}
		}
		want = slices.Sorted(slices.Values(append(want, x.more...)))
		if keys := keysOf(x.settings(), x.kind); !slices.Equal(keys, want) {
			t.Errorf("%s: documents have %v, the flags of %s are %v", x.kind, keys, x.verb, want)
		}
	}
}

// FuzzDocument reads any bytes as a document: it is objects that say the same when they are written
// and read again, or a fault with its place.
func FuzzDocument(f *testing.F) {
	f.Add([]byte(fullDocument))
	for _, x := range wrongDocuments {
		f.Add([]byte(x.text))
	}
	f.Add([]byte("signalbox: 1\nnodes: {/a: {semaphores: {j: {data: \" x\\n\\n\"}, !!binary /w==: {data-base64: /w==}}}}\n"))
	f.Add([]byte("signalbox: 1\nnodes: {/a: {configs: {c: {data: &d \"\\x85\\u2028#: - \"}, d: {data: *d}}}}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if bytes.Contains(text, []byte("data-file")) {
			return // it names any file
		}
		d, err := desired.Read([]desired.File{{Name: "f", Text: text}}, documentForms)
		var fault *desired.Error
		if err != nil {
			if !errors.As(err, &fault) {
				t.Fatalf("an error without a place: %v", err)
			}
			return
		}
		again := rewritten(t, d)
		if len(again.Objects) != len(d.Objects) {
			t.Fatalf("%d objects, and %d when they are read again", len(d.Objects), len(again.Objects))
		}
		for i, o := range d.Objects {
			x := again.Objects[i]
			if o.Key != x.Key || !reflect.DeepEqual(o.Settings, x.Settings) || !bytes.Equal(o.Data, x.Data) {
				t.Fatalf("%+v\nand when it is read again\n%+v", o, x)
			}
		}
	})
}

// rewritten is what is read of a document that says the same.
func rewritten(t *testing.T, d *desired.Document) *desired.Document {
	t.Helper()
	text, err := desired.Write(d.Objects)
	if err != nil {
		t.Fatal(err)
	}
	again, err := desired.Read([]desired.File{{Name: "written", Text: text}}, documentForms)
	if err != nil {
		t.Fatalf("what was written is a fault: %v\n%s", err, text)
	}
	return again
}

// fullDocument has each kind of object, and each setting of those.
const fullDocument = `signalbox: 1
nodes:
  /a:
    tier: default
    settings: {self-check-period: 2s, grace-period: 9s, read-consistency: strict, attach-consistency: relaxed,
      counters-mode: detailed, max-sessions: 1, max-semaphores: 20, max-bytes: 300000, max-waiters: 4, max-watchers: 5,
      max-requests: 600000, slow-wait: 7s, max-priority: 8}
    semaphores:
      plain: {}
      unbounded: {limit: max, data: 'a: b'}
      priority: {limit: 9, policy: priority, aging: 30s, preempt: lower, grace: 2s, min-hold: 1s, history: 3}
      fair: {weight: {x: 2, "y=": 3}, max-hold: 8h, extend: true, data-base64: //79}
      numbered: {slots: 4}
      named: {slot: [a, "b:x,y=1", {name: "c:d", labels: [z]}], history: 0}
    configs:
      text: {data: "one\n two\n"}
      bytes: {data-base64: gA==}
      empty: {data: ""}
    limits:
      api: {rate: 1000.5, burst: 500ms, lease: 1s, shadow: true, floor: 0.25}
      api/x: {rate: 10, weight: 7, min: 0.001}
      api/y: {rate: none, min: 5}
    rollouts:
      s/c:
        source: tso
        delay-from: converged
        locations:
          - {name: SAS, bake: 1m, gates: [{name: g, command: "./x.sh y", timeout: 2m}, {name: h, webhook: "http://a/b", retry: 1s}]}
          - {name: "null", delay: 5s, share: 20, share-bake: 30s}
        explicit-codes: [Bad, Awful]
        implicit-after: 2m
        implicit-attempts: 5
        stall-timeout: 3m
        auto-demote: true
        skip-empty-after: 1h
        reelect-min-interval: 2s
        min-advance-interval: 3s
        retention: 2h
        keep-removed: true
  /a/b: {semaphores: {plain: null}}
identities:
  cert:web: {/: read, /a: none, /a/b: admin}
`

func TestDocumentOfEverything(t *testing.T) {
	t.Parallel()
	d, err := desired.Read([]desired.File{{Name: "full", Text: []byte(fullDocument)}}, documentForms)
	if err != nil {
		t.Fatal(err)
	}
	given := map[string]bool{}
	for _, o := range d.Objects {
		for _, s := range o.Settings {
			if !s.Default {
				given[o.Kind.String()+" "+s.Key] = true
			}
		}
	}
	for _, o := range d.Objects {
		for _, s := range o.Settings {
			if !given[o.Kind.String()+" "+s.Key] {
				t.Errorf("%s: the document of everything leaves out %s", o.Key, s.Key)
			}
		}
	}
	for i, o := range rewritten(t, d).Objects {
		if !reflect.DeepEqual(o.Settings, d.Objects[i].Settings) {
			t.Errorf("%s: %v, and when it is written and read again %v", o.Key, d.Objects[i].Settings, o.Settings)
		}
	}
	srv := servertest.Start(t)
	mustCLI(t, srv.Addr(), fullDocument, 0, "apply", "-f", "-")
	for _, args := range [][]string{{"apply", "-f", "-"}, {"apply", "-f", "-", "--dry-run"}} {
		if out := mustCLI(t, srv.Addr(), fullDocument, 0, args...); out != "no difference\n" {
			t.Errorf("%v again: %s", args, out)
		}
	}
	text := mustCLI(t, srv.Addr(), "", 0, "export")
	if out := mustCLI(t, srv.Addr(), text, 0, "apply", "-f", "-", "--dry-run"); out != "no difference\n" {
		t.Errorf("what was exported differs: %s", out)
	}
	// Back to what each object is without settings, from there to everything, and once more.
	empty := "signalbox: 1\nnodes:\n  /a: {semaphores: {plain: {}, unbounded: {}, priority: {}, fair: {}, numbered: {}, named: {}},\n" +
		"    limits: {api: {rate: 1}, api/x: {}, api/y: {}}, rollouts: {s/c: {locations: [{name: SAS}]}}}\nidentities: {cert:web: {}}\n"
	for range 2 {
		mustCLI(t, srv.Addr(), empty, 0, "apply", "-f", "-")
		mustCLI(t, srv.Addr(), empty, 0, "apply", "-f", "-", "--dry-run")
		mustCLI(t, srv.Addr(), fullDocument, 0, "apply", "-f", "-")
		if out := mustCLI(t, srv.Addr(), "", 0, "export"); out != text {
			t.Errorf("export after the way back:\n%s\nbefore:\n%s", out, text)
		}
	}
}

// wrongDocuments are documents with a fault, and the beginning of what is said about it.
var wrongDocuments = []struct{ text, want string }{
	{"", "f: it is empty; begin with signalbox: 1"},
	{"a: [", "it is not valid YAML"},
	{"nodes: {}", "f:1:1: the format is missing"},
	{"signalbox: 2", "f:1:12: the format of the document is not known"},
	{"signalbox: 1\nnode: {}", `f:2:1: unknown key "node"; a document has signalbox, nodes, identities, trusts, absent`},
	{"signalbox: 1\nnodes: [/a]", "f:2:8: nodes has keys and values"},
	{"signalbox: 1\nnodes: {a: {}}", `f:2:9: node path "a" does not start with /`},
	{"signalbox: 1\nnodes: {/: {}}", "f:2:9: node path / is the root"},
	{"signalbox: 1\nnodes: {/a: {}, /a: {}}", `f:2:17: key "/a" is given twice, first in line 2`},
	{"signalbox: 1\n---\nsignalbox: 1\nnodes: {/a: {}}\n---\nsignalbox: 1\nnodes: {/a: {}}\n", "f:7:9: node /a is named twice, first at f:4:9"},
	{"signalbox: 1\nnodes:\n  /a:\n    setting: {}", `f:4:5: unknown key "setting"; a node has tier,`},
	{"signalbox: 1\nnodes:\n  /a:\n    settings: {max-session: 1}", `f:4:16: unknown key "max-session"; a node has`},
	{"signalbox: 1\nnodes: {/a: {settings: {tier: hot}}}", `f:2:25: unknown key "tier"; it is beside settings`},
	{"signalbox: 1\nnodes: {/a: {settings: {max-sessions: 0}}}", `f:2:39: max-sessions "0" is not a number from 1`},
	{"signalbox: 1\nnodes: {/a: {settings: {slow-wait: 5}}}", `f:2:36: slow-wait "5" is not a duration; write one like`},
	{"signalbox: 1\nnodes: {/a: {settings: {slow-wait: }}}", "f:2:36: the value is missing"},
	{"signalbox: 1\nnodes: {/a: {settings: {slow-wait: [1s, 2s]}}}", "f:2:36: slow-wait has a single value"},
	{"signalbox: 1\nnodes: {/a: {settings: {grace-period: 600s}}}", "f:2:9: node /a: session grace period is 600000 ms"},
	{"signalbox: 1\nnodes: {/a: {semaphores: {j: {limit: 0}}}}", "f:2:27: semaphore /a j: semaphore limit is 0"},
	{"signalbox: 1\nnodes: {/a: {semaphores: {j: {limit: -1}}}}", `f:2:38: limit "-1" is not a number`},
	{"signalbox: 1\nnodes: {/a: {semaphores: {j: {limit: 3, slots: 4}}}}", "f:2:38: limit is 3 and the number of slots 4"},
	{"signalbox: 1\nnodes: {/a: {semaphores: {j: {aging: 1s, weight: {a: 1}}}}}", "f:2:38: aging belongs to policy priority"},
	{"signalbox: 1\nnodes: {/a: {semaphores: {j: {weight: {a: 0}}}}}", "f:2:27: semaphore /a j: weight of the key \"a\" is 0"},
	{"signalbox: 1\nnodes: {/a: {semaphores: {j: {weight: [a]}}}}", `f:2:39: weight "a" is not KEY=N`},
	{"signalbox: 1\nnodes: {/a: {semaphores: {j: {extend: true}}}}", "f:2:27: semaphore /a j: extend belongs to a longest hold"},
	{"signalbox: 1\nnodes: {/a: {semaphores: {j: {slot: [x, x]}}}}", `f:2:27: semaphore /a j: two slots are named "x"`},
	{"signalbox: 1\nnodes: {/a: {semaphores: {j: {slot: [{nam: x}]}}}}", `f:2:39: unknown key "nam"; a slot has name, labels`},
	{"signalbox: 1\nnodes: {/a: {semaphores: {j: {data: a, data-base64: YQ==}}}}", "f:2:40: data-base64 is given beside another key for data"},
	{"signalbox: 1\nnodes: {/a: {semaphores: {j: {data-base64: '*'}}}}", "f:2:44: data-base64 is not base64"},
	{"signalbox: 1\nnodes: {/a: {semaphores: {j: {data-file: /nowhere}}}}", "f:2:42: cannot read the data"},
	{"signalbox: 1\nnodes: {/a: {semaphores: {$config/c: {}}}}", `f:2:27: semaphore "$config/c" is a configuration; write "c" under configs`},
	{"signalbox: 1\nnodes: {/a: {semaphores: {'': {}}}}", "f:2:27: semaphore /a : semaphore name is empty"},
	{"signalbox: 1\nnodes: {/a: {configs: {c: {}}}}", "f:2:24: config /a c has no data"},
	{"signalbox: 1\nnodes: {/a: {configs: {c: {data: x, ttl: 1}}}}", `f:2:37: unknown key "ttl"; a config has data, data-base64, data-file`},
	{"signalbox: 1\nnodes: {/a: {configs: {c: {data: }}}}", "f:2:34: the value is missing"},
	{"signalbox: 1\nnodes: {/a: {limits: {api: {}}}}", "f:2:23: limit /a api is a root and has no rate"},
	{"signalbox: 1\nnodes: {/a: {limits: {api: {rate: many}}}}", `f:2:35: rate "many" is not a rate`},
	{"signalbox: 1\nnodes: {/a: {limits: {api: {rate: 1}, api/x: {lease: 1s}}}}", "f:2:39: limit /a api/x is not a root and has no lease"},
	{"signalbox: 1\nnodes: {/a: {limits: {api: {rate: 1, weight: 0}}}}", "f:2:46: weight 0 is out of range"},
	{"signalbox: 1\nnodes: {/a: {limits: {'a b': {rate: 1}}}}", "f:2:23: limit /a a b: resource path \"a b\" has the illegal character"},
	{"signalbox: 1\nnodes: {/a: {rollouts: {r: {}}}}", "f:2:25: rollout /a r: the config names no location"},
	{"signalbox: 1\nnodes: {/a: {rollouts: {r: {locations: [{name: x}, {name: x}]}}}}", "f:2:25: rollout /a r: config: location x is named twice"},
	{"signalbox: 1\nnodes: {/a: {rollouts: {r: {locations: [{name: x, dela: 5s}]}}}}", `f:2:51: unknown key "dela"; one of locations has name, delay`},
	{"signalbox: 1\nnodes: {/a: {rollouts: {r: {source: git, locations: [{name: x}]}}}}", `f:2:37: source "git" is unknown; choose published, tso or external`},
	{"signalbox: 1\nnodes: {/a: {rollouts: {r: {auto-demote: perhaps, locations: [{name: x}]}}}}", `f:2:42: auto-demote "perhaps" is neither true nor false`},
	{"signalbox: 1\nnodes: {/a: {rollouts: {r: {locations: [{name: x, gates: [{name: g}]}]}}}}", `f:2:25: rollout /a r: gate "g" of location "x": give it either`},
	{"signalbox: 1\nnodes: {/a: {absent: {nodes: [/b]}}}", `f:2:23: unknown key "nodes"; absent of a node has`},
	{"signalbox: 1\nnodes: {/a: {absent: {limits: api}}}", "f:2:31: absent has a list of names"},
	{"signalbox: 1\nnodes: {/a: {semaphores: {j: {}}, absent: {semaphores: [j]}}}", "f:2:57: semaphore /a j is absent here, and is to exist at f:2:27"},
	{"signalbox: 1\nnodes: {/a/b: {}}\nabsent: [/a]", "f:3:10: node /a is absent here, and node /a/b below it is to exist"},
	{"signalbox: 1\nnodes: {/a: {limits: {x: {rate: 1}, x/y: {}}, absent: {limits: [x/y, x]}}}", "f:2:70: limit /a x is absent here, and is to exist at f:2:23"},
	{"signalbox: 1\nabsent: [/a, /a]", "f:2:14: node /a is absent twice"},
	{"signalbox: 1\nidentities: {x: {/a: owner}}", `f:2:22: right "owner" is unknown; choose read, use, admin or none`},
	{"signalbox: 1\nidentities: {x: {a: use}}", `f:2:18: node path "a" does not start with /`},
	{"signalbox: 1\nidentities: {'': {}}", "f:2:14: identity is 0 bytes long"},
	{"signalbox: 1\nnodes: {/a: &a {settings: *a}}", `f:2:17: unknown key "settings"; a node has`},
	{"signalbox: 1\nnodes: {~: {}}", "f:2:9: the value is missing"},
	{"signalbox: 1\nnodes: {[a]: {}}", "f:2:9: a single value is expected here"},
}

func TestWrongDocuments(t *testing.T) {
	t.Parallel()
	for _, x := range wrongDocuments {
		_, err := desired.Read([]desired.File{{Name: "f", Text: []byte(x.text)}}, documentForms)
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%q:\n%v\nwant %s", x.text, err, x.want)
		}
	}
	many := "signalbox: 1\nnodes:\n  /a:\n    semaphores:\n" + strings.Repeat("      %d: {}\n", desired.MaxObjects)
	names := make([]any, desired.MaxObjects)
	for i := range names {
		names[i] = i
	}
	_, err := desired.Read([]desired.File{{Name: "f", Text: fmt.Appendf(nil, many, names...)}}, documentForms)
	if err == nil || !strings.Contains(err.Error(), "this is object 10001; at most 10000 are allowed") {
		t.Errorf("too many objects: %v", err)
	}
	long := desired.File{Name: "f", Text: make([]byte, desired.MaxBytes/2+1)}
	if _, err := desired.Read([]desired.File{long, long}, documentForms); err == nil || !strings.Contains(err.Error(), "more than 4194304 bytes") {
		t.Errorf("too long: %v", err)
	}
}

// TestRandomClustersAreApplied makes random clusters by the SDK, exports each, applies that to an
// empty cluster, and exports it again. In form long there are 1,000.
func TestRandomClustersAreApplied(t *testing.T) {
	t.Parallel()
	clusters := form.Of(12, 1000)
	from, to := servertest.Start(t), servertest.Start(t)
	c, other := connect(t, from), connect(t, to)
	for seed := range uint64(clusters) {
		makeRandomCluster(t, c, rand.New(rand.NewPCG(seed, 1)))
		text := mustCLI(t, from.Addr(), "", 0, "export")
		if out := mustCLI(t, from.Addr(), text, 0, "apply", "-f", "-", "--dry-run"); out != "no difference\n" {
			t.Fatalf("seed %d: what was exported differs: %s", seed, out)
		}
		mustCLI(t, to.Addr(), text, 0, "apply", "-f", "-")
		if got := mustCLI(t, to.Addr(), "", 0, "export"); got != text {
			t.Fatalf("seed %d: exported\n%s\napplied and exported again\n%s", seed, text, got)
		}
		clearCluster(t, c)
		clearCluster(t, other)
	}
}

func connect(t *testing.T, srv *servertest.Server) *client.Client {
	t.Helper()
	c, err := client.Open(t.Context(), client.Config{Endpoints: []string{srv.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseWithoutRelease)
	return c
}

// clearCluster removes all nodes and rights.
func clearCluster(t *testing.T, c *client.Client) {
	t.Helper()
	var paths []string
	for n, err := range admin.Nodes(c).List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, n.Path)
	}
	for _, path := range slices.Backward(paths) {
		if _, err := admin.Nodes(c).Delete(t.Context(), path, admin.DeleteOptions{Force: true, Reason: "the next one"}); err != nil {
			t.Fatal(err)
		}
	}
	a := admin.New(c)
	s, err := a.Auth(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range s.Rights {
		if err := a.Revoke(t.Context(), r.Identity, r.Path); err != nil {
			t.Fatal(err)
		}
	}
}

// makeRandomCluster makes objects of each kind with random settings. What the server refuses is not
// there.
func makeRandomCluster(t *testing.T, c *client.Client, r *rand.Rand) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	try := func(err error) {
		t.Helper()
		if err != nil && !errors.Is(err, client.ErrBadRequest) && !errors.Is(err, client.ErrPreconditionFailed) {
			t.Fatal(err)
		}
	}
	some := func() bool { return r.IntN(2) == 0 }
	ms := func(from, to int) time.Duration { return time.Duration(from+r.IntN(to-from)) * time.Millisecond }
	for _, path := range []string{"/a", "/a/b", "/c.d/e_f/g-h"} {
		if r.IntN(4) == 0 {
			continue
		}
		var config admin.NodeConfig
		if some() {
			period, grace, quota := ms(500, 3000), ms(5000, 30000), r.Uint64N(1000)+1000
			config = admin.NodeConfig{SelfCheckPeriod: &period, GracePeriod: &grace, MaxWaiters: &quota, MaxRequests: &quota}
		}
		_, err := admin.Nodes(c).Ensure(ctx, path, config)
		must(err)
		s, err := c.Session(ctx, path)
		must(err)
		for i := range r.IntN(6) {
			name, limit := randomName(r, i), r.Uint64N(20)+1
			var config client.SemaphoreConfig
			if some() {
				switch r.IntN(3) {
				case 0:
					config.Policy, config.Aging = client.PolicyPriority, ms(1000, 90_000)
					config.Preempt, config.Grace = client.PreemptLower, ms(1000, 5000)
				case 1:
					config.Policy = client.PolicyFair
					config.Weights = map[string]uint64{"a": r.Uint64N(9) + 1, randomName(r, 1): 2}
				}
				if some() {
					config.MaxHold, config.Extend = ms(1000, 100_000), some()
				}
				if some() {
					config.History = r.IntN(34) - 1 // NoHistory, too
				}
				switch r.IntN(3) {
				case 0:
					config.Numbered = true
				case 1:
					limit = 3
					config.Slots = []client.Slot{{Name: "a:" + strconv.Itoa(i), Labels: []string{"x", "y=1"}},
						{Name: "0"}, {Name: "true", Labels: []string{"a:b"}}}
				}
			}
			if r.IntN(10) == 0 {
				limit = client.Max
			}
			try(s.Create(ctx, name, limit, randomData(r), config))
		}
		for i := range r.IntN(4) {
			_, err := s.Config(randomName(r, i)).Set(ctx, randomData(r))
			must(err)
		}
		for _, name := range []string{"api", "api/a", "api/a/x", "api/b", "q:1"} {
			config := ratelimit.Config{Weight: uint32(r.IntN(5)), Min: float64(r.IntN(3)), Burst: ms(0, 3000), Shadow: some()}
			if !strings.Contains(name, "/") || some() {
				config.Rate = ratelimit.PerSecond(float64(r.IntN(100_000)) / 1000)
				config.Floor = float64(r.IntN(4)) / 4
			}
			if !strings.Contains(name, "/") && some() {
				config.Lease = ms(500, 9000)
			}
			if _, err := ratelimit.Create(ctx, s, name, config); !errors.Is(err, client.ErrNotFound) { // its parent was refused
				try(err)
			}
		}
		for i := range r.IntN(3) {
			config := rollout.Config{Source: rollout.Published, Locations: []rollout.Location{{Name: "SAS"}, {Name: randomName(r, i), Delay: ms(0, 9000)}},
				AutoDemote: some(), Retention: ms(0, 9_000_000), StallTimeout: ms(0, 900_000)}
			if some() {
				config.Source, config.DelayFrom, config.ExplicitCodes = rollout.TSO, rollout.Converged, []string{"Z", "A"}
				config.Locations[1].Gates = []rollout.Gate{{Name: "g", Kind: rollout.Command, Spec: "a: 'b' # \n \"c\"", Retry: ms(0, 9000)}}
			}
			_, err := rollout.NewTrack(s, "svc/"+randomName(r, i)).Create(ctx, config)
			try(err)
		}
		_, err = s.TryAcquire(ctx, "held", client.Ephemeral())
		must(err)
		must(s.Close(ctx))
	}
	for i := range r.IntN(4) {
		_, err := admin.New(c).Grant(ctx, randomName(r, i), []string{"/", "/a", "/a/b"}[r.IntN(3)], []string{"none", "read", "use", "admin"}[r.IntN(4)])
		try(err)
	}
}

// randomName is a name that YAML could take for something else.
func randomName(r *rand.Rand, i int) string {
	names := []string{"jobs", "no", "1", "0x1f", "null", "~", "- a", "a: b", "#c", "*x", "'q'", "2001-01-01", "é", " x ", "a\tb", "%", "{}", "1:20", "!!str"}
	return names[r.IntN(len(names))] + strings.Repeat("'", i)
}

func randomData(r *rand.Rand) []byte {
	data := []string{"", "x", "true", "a\nb\n", "\n\n", "  a\n b", "{\"k\": [1, 2]}\n", "\x00", "\xff\xfe", "trailing \n", "tab\tx", "\r\n", "a\u2028b", "#\n---\n...\n", "\ufeffx", "'\"", "é\n"}
	return []byte(data[r.IntN(len(data))])
}

// TestForeignStays has settings that a gateway keeps with objects stay when their own change.
func TestForeignStays(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t)
	c, foreign := connect(t, srv), "as the gateway was given them"
	if _, err := admin.Nodes(c).Create(t.Context(), "/a", admin.NodeConfig{Foreign: &foreign}); err != nil {
		t.Fatal(err)
	}
	s, err := c.Session(t.Context(), "/a")
	if err == nil {
		_, err = ratelimit.Create(t.Context(), s, "api", ratelimit.Config{Rate: ratelimit.PerSecond(1), Foreign: foreign})
	}
	if err != nil {
		t.Fatal(err)
	}
	document := "signalbox: 1\nnodes: {/a: {settings: {max-sessions: 7}, limits: {api: {rate: 2}}}}\n"
	mustCLI(t, srv.Addr(), document, 0, "apply", "-f", "-")
	node, err := admin.Nodes(c).Describe(t.Context(), "/a")
	if err != nil || *node.Config.Foreign != foreign || *node.Config.MaxSessions != 7 {
		t.Errorf("the node has %+v, %v", node, err)
	}
	l, err := ratelimit.Describe(t.Context(), s.Node(), "api", 0)
	if err != nil || l.Resources[0].Config.Foreign != foreign || *l.Resources[0].Config.Rate != 2 {
		t.Errorf("the limit has %+v, %v", l, err)
	}
}

// killedDocument changes objects at each step; before is what it changes.
const (
	beforeKill = `signalbox: 1
nodes:
  /a: {semaphores: {s: {}, t: {}}, configs: {c: {data: x}, d: {data: x}}, limits: {l: {rate: 1}, m: {rate: 1}}, rollouts: {r: {locations: [{name: x}]}}}
  /old: {semaphores: {s: {}}, configs: {c: {data: x}}, limits: {l: {rate: 1}, l/x: {}}, rollouts: {r: {locations: [{name: x}]}}}
  /old/sub: {semaphores: {s: {}}}
identities: {x: {/a: use, /old: use}, y: {}}
`
	killedDocument = `signalbox: 1
nodes:
  /a:
    settings: {max-sessions: 100}
    semaphores: {s: {limit: 5}, u: {limit: 2}}
    configs: {c: {data: z}}
    limits: {l: {rate: 5}, l/a: {min: 3}}
    rollouts: {r: {locations: [{name: x}, {name: y}]}, q: {locations: [{name: x}]}}
    absent: {semaphores: [t], configs: [d], limits: [m]}
  /new: {semaphores: {s: {}}}
identities: {x: {/a: read}, y: {/a: use}}
absent: [/old, /old/sub]
`
)

// TestApplyKilledAtEachStep kills a run behind each line that it prints, and runs it again.
func TestApplyKilledAtEachStep(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	addr := srv.Addr()
	c := connect(t, srv)
	document := filepath.Join(t.TempDir(), "document.yaml")
	if err := os.WriteFile(document, []byte(killedDocument), 0o600); err != nil {
		t.Fatal(err)
	}
	mustCLI(t, addr, beforeKill, 0, "apply", "-f", "-")
	lines := strings.Count(mustCLI(t, addr, "", 6, "apply", "-f", document, "--dry-run"), "\n")
	mustCLI(t, addr, "", 0, "apply", "-f", document)
	want := mustCLI(t, addr, "", 0, "export")
	step := form.Of(max(1, lines/6), 1)
	for at := 0; at < lines; at += step {
		clearCluster(t, c)
		if _, err := admin.Nodes(c).Ensure(t.Context(), "/default", admin.NodeConfig{}); err != nil {
			t.Fatal(err)
		}
		mustCLI(t, addr, beforeKill, 0, "apply", "-f", "-")
		killApply(t, addr, document, at)
		mustCLI(t, addr, "", 0, "apply", "-f", document)
		if got := mustCLI(t, addr, "", 0, "export"); got != want {
			t.Fatalf("killed behind line %d:\n%s\nwant\n%s", at, got, want)
		}
		mustCLI(t, addr, "", 0, "apply", "-f", document, "--dry-run")
	}
}

// killApply kills a run when it has printed so many lines.
func killApply(t *testing.T, addr, document string, lines int) {
	t.Helper()
	cmd := exec.Command("signalbox", "apply", "-f", document, "--endpoints", addr, "--session-timeout", "1s")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	read := bufio.NewReader(out)
	for range lines {
		if _, err := read.ReadString('\n'); err != nil {
			break // it is done already
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// TestTwoAppliesAtOnce runs a document twice at the same time. Both end well, or name what the
// other was at; what the document says is there, and a third run has nothing to do.
func TestTwoAppliesAtOnce(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.RealTime())
	addr := srv.Addr()
	mustCLI(t, addr, beforeKill, 0, "apply", "-f", "-")
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			var out, notes bytes.Buffer
			code := run(context.Background(), []string{"apply", "-f", "-", "--endpoints", addr, "--session-timeout", "1s", "--timeout", "60s"},
				strings.NewReader(killedDocument), &out, &notes)
			if code != 0 && code != 1 {
				t.Errorf("exit code %d: %s%s", code, out.String(), notes.String())
			}
			t.Logf("exit code %d: %s", code, notes.String())
		})
	}
	wg.Wait()
	mustCLI(t, addr, killedDocument, 0, "apply", "-f", "-")
	if out := mustCLI(t, addr, killedDocument, 0, "apply", "-f", "-", "--dry-run"); out != "no difference\n" {
		t.Errorf("after two runs: %s", out)
	}
}
