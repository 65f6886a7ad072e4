package shard

import (
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
	for _, c := range []struct{ line, want string }{
		{"resize a pool limit=2 expected=9", "resize a pool -> OK\n  change pool: limit=2\n"}, // no semaphore has version 9
		{"update a pool data=x", "update a pool -> UNSUPPORTED: " + textUnknown + "\n"},
	} {
		if got := do(c.line); got != c.want {
			t.Errorf("%s: got %q, want %q", c.line, got, c.want)
		}
	}
}
