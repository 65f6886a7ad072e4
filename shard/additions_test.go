package shard

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestAdditions: in a batch of the first format, fields of a later one have no effect and commands
// of a later one are refused, as on a replica that does not know them.
func TestAdditions(t *testing.T) {
	defer func() { additions = [256][]addition{} }()
	const expected = 6 // so many fields are in front of it in a resize
	additions[CmdResize] = []addition{{format: 2, path: []int{expected}}}
	additions[CmdUpdate] = []addition{{format: 2}}
	additions[CmdCreate] = []addition{{format: 2, value: func(body []byte) bool {
		var x protocol.Create
		return protocol.DecodeBody(&x, body) == nil && x.Options != nil && x.Options.Policy == protocol.PolicyFair
	}}}

	x := newScriptRunner(t)
	do := func(lines ...string) string {
		x.lines, x.starts = nil, map[int]string{}
		var commands []byte
		for _, line := range lines {
			commands = AppendCommand(commands, x.command(line))
			x.lines = append(x.lines, line)
		}
		x.apply(commands)
		return x.output()
	}
	do("start a")
	do("create a pool")
	resize := x.command("resize a pool limit=2 expected=9")
	if _, found := protocol.CutFields(resize.Body, expected); !found {
		t.Fatalf("%x has no field behind the first %d", resize.Body, expected)
	}
	if got := NeedsFormat(resize.Kind, resize.Body); got != 2 {
		t.Errorf("a resize with a new field needs format %d", got)
	}
	plain := x.command("resize a pool limit=2")
	if got := NeedsFormat(plain.Kind, plain.Body); got != 1 {
		t.Errorf("a resize without it needs format %d", got)
	}
	update := x.command("update a pool data=x")
	if got := NeedsFormat(update.Kind, update.Body); got != 2 {
		t.Errorf("a new command needs format %d", got)
	}
	for policy, want := range map[string]uint8{"priority": 1, "fair": 2} {
		create := x.command("create a lanes policy=" + policy)
		if got := NeedsFormat(create.Kind, create.Body); got != want {
			t.Errorf("a semaphore with policy %s needs format %d, not %d", policy, got, want)
		}
	}
	for _, c := range []struct{ line, want string }{
		{"resize a pool limit=2 expected=9", "resize a pool -> OK\n  change pool: limit=2\n"}, // no semaphore has version 9
		{"create a lanes policy=priority", "create a lanes -> OK\n  change lanes: created limit=1 ephemeral=false version=1 data=\"\"\n"},
		{"create a fair policy=fair", "create a fair -> UNSUPPORTED: " + textUnknown + "\n"},
		{"update a pool data=x", "update a pool -> UNSUPPORTED: " + textUnknown + "\n"},
	} {
		if got := do(c.line); got != c.want {
			t.Errorf("%s: got %q, want %q", c.line, got, c.want)
		}
	}
}

// firstValues are the enumerations and sets of flags in bodies, each with the values of the first
// format. A command's body can have any of them.
var firstValues = []string{
	"config.delay from: FromSelected to FromConverged",
	"config.source: SourceTSO to SourcePublished",
	"consistency: 0 to Relaxed",
	"gate.kind: GateCommand to GateWebhook",
	"options.election: ElectOldest to ElectPreferred",
	"options.policy: PolicyFIFO to PolicyFair",
	"options.preempt: PreemptOff to PreemptAny",
	"outcome: GateSuccess to GateInconclusive",
	"role: InstanceFollower to InstanceLeader",
	"role: InstanceFollower to InstanceLeader",
	"step: StepPrepared to StepCompleted",
	`"acquire options": KnowsBounds | AskDeadlock`,
	`"describe": WithOwners | WithWaiters | WatchData | WatchOwners | WithSlots`,
	`"describe": WithProcessMembers | WithProcessHistory`,
	`"track describe": WithTrackConfig | WithTrackInstances`,
}

// TestValuesHaveAFormat: replicas of two versions differ over a value that one of them refuses, and
// fields alone do not show it. A value that the first format lacks needs a line in additions, with
// a function that finds it in the body, for each command that can have it. Then it belongs here.
func TestValuesHaveAFormat(t *testing.T) {
	files, err := filepath.Glob("../protocol/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	fset := token.NewFileSet()
	text := func(x ast.Expr) string {
		var b bytes.Buffer
		if err := printer.Fprint(&b, fset, x); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	var values []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			switch f := text(call.Fun); {
			case f == "enum":
				values = append(values, fmt.Sprintf("%s: %s to %s", strings.Trim(text(call.Args[1]), `"`), text(call.Args[4]), text(call.Args[5])))
			case strings.HasSuffix(f, ".flags"):
				values = append(values, fmt.Sprintf("%s: %s", text(call.Args[2]), text(call.Args[1])))
			}
			return true
		})
	}
	want := slices.Sorted(slices.Values(firstValues))
	if slices.Sort(values); !slices.Equal(values, want) {
		t.Errorf("bodies have the values\n%s\nand formats those of\n%s", strings.Join(values, "\n"),
			strings.Join(want, "\n"))
	}
}

// TestAdditionsHaveFormats: each addition is of a format that this tree writes, later than the first
// one, and those of a kind are in order. So a line of meta.FormatsOf allows each: see
// TestTreeWritesItsFormats of package server.
func TestAdditionsHaveFormats(t *testing.T) {
	problem := func(list []addition) string {
		last := uint8(firstFormat)
		for _, a := range list {
			if a.format < last || a.format == firstFormat || a.format > FormatVersion {
				return fmt.Sprintf("format %d after %d, and this tree writes %d", a.format, last, FormatVersion)
			}
			last = a.format
		}
		return ""
	}
	for kind, list := range additions {
		if p := problem(list); p != "" {
			t.Errorf("kind %d has an addition of %s", kind, p)
		}
	}
	if problem([]addition{{format: FormatVersion + 1}}) == "" {
		t.Error("an addition without a format is not found")
	}
}
