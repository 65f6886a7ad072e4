package shard

import (
	"flag"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
	"github.com/signalbox-dev/signalbox/server/servertest/seeds"
)

// TestMachineMatchesModel applies random histories to the machine and to the model, see history: a
// number of them as a property, which are made small when they fail and kept below testdata/rapid,
// and more of them with plain random numbers, which are drawn faster. They are the same ones each
// time.
func TestMachineMatchesModel(t *testing.T) {
	seen := map[string]int{}
	checkProperty(t, 20_261_120, form.Size(20, 100, 100), seen)

	whole := form.Is(form.Full) && !seeds.Chosen()
	n := form.Size[uint64](100, 1000, 1000)
	commands := 0
	play := func(seed uint64) {
		h := newHistory(randSource{rand.New(rand.NewPCG(seed, 0))}, seen)
		if err := h.run(); err != nil {
			t.Fatalf("history %d: %v\n%s", seed, err, h.trace())
		}
		commands += h.commands
	}
	for seed := range seeds.Of(t, n, n) {
		play(seed)
	}
	missing := func(rule string) bool { return seen[rule] == 0 }
	for seed := n + 1; whole && slices.ContainsFunc(rules, missing) && seed <= 4*n; seed++ {
		play(seed)
	}
	t.Logf("%d commands", commands)
	for _, rule := range slices.Sorted(maps.Keys(seen)) {
		t.Logf("%8d %s", seen[rule], rule)
	}
	// A run in which a rule never came to bear says nothing about it.
	for _, rule := range rules {
		if missing(rule) && whole {
			t.Errorf("%q never came to bear; let histories be made that do more of it", rule)
		}
	}
}

// checkProperty checks the property with the same seed each time, unless the command line gives
// another.
func checkProperty(t *testing.T, seed uint64, checks int, seen map[string]int) {
	if f := flag.Lookup("rapid.seed"); f.Value.String() == "0" {
		setFlag(t, "rapid.seed", strconv.FormatUint(seed, 10))
	}
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		setFlag(t, "rapid.checks", strconv.Itoa(checks))
	}
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(rapidSource{t}, seen)
		if err := h.run(); err != nil {
			t.Fatalf("%v\n%s", err, h.trace())
		}
	})
}

func setFlag(t *testing.T, name, value string) {
	old := flag.Lookup(name).Value.String()
	if err := flag.Set(name, value); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = flag.Set(name, old) })
}

// drawn draws from a property. Its small numbers are nearly uniform, its large ones are not, so
// large ones are made of small ones.
type rapidSource struct{ t *rapid.T }

var octal = rapid.IntRange(0, 7)

func (d rapidSource) n(bound int) int {
	v := 0
	for reach := 1; reach < bound; {
		v = v*8 + octal.Draw(d.t, "")
		reach *= 8
		if bound > 8 && reach >= bound && reach < 4*bound {
			reach = bound - 1 // one more digit, for fairness
		}
	}
	return v % bound
}

type randSource struct{ r *rand.Rand }

func (p randSource) n(bound int) int { return p.r.IntN(bound) }

// rules are those that every run must have met.
var rules = []string{
	"acquire above the limit",
	"acquire of another kind of semaphore",
	"another client's attach with an equal epoch",
	"attach refused",
	"attach sent again",
	"batch of another epoch",
	"create id forgotten",
	"deleted with owners and waiters",
	"detached after its deadline",
	"detached session attached again",
	"detached with timeout 0",
	"ephemeral deleted",
	"gone remote session refused",
	"gone remote session released",
	"gone id forgotten",
	"grace period lowered",
	"remote session described by a request",
	"remote session unknown to the home that became active",
	"head of the queue is overdue",
	"heard of before it was attached",
	"idle remote session forgotten",
	"limit lowered below what is held",
	"lease taken by force", "force release of a token that is no owner's",
	"others go on after a lease was taken by force",
	"limit of answers",
	"limit of entries or waiters",
	"not acquired at once",
	"number below the low-water mark",
	"number of another kind",
	"overdue session counts as gone",
	"owner asks for less, and others wait",
	"owner asks for more",
	"owner above a lowered limit asks for the same or less",
	"owner's data beyond the quota of bytes",
	"quota of bytes",
	"quota of semaphores",
	"quota of semaphores, ephemeral",
	"quota of sessions",
	"quota of waiters",
	"release of another order id",
	"request of a remote session under an older epoch",
	"request under another epoch at home",
	"repeated take-over",
	"sent again, acquired no more",
	"sent again, answered by the entry",
	"sent again, answered from memory",
	"session expires at its first moment",
	"session taken over",
	"small acquire behind a large head",
	"start again after the end",
	"start again of one that is overdue, or elsewhere",
	"start again with another nonce",
	"start again with a wrong key, or after an attach",
	"start again",
	"planned take-over of an attached session",
	"take-over of a detached session",
	"take-over of a session that is overdue",
	"take-over of an attached session",
	"take-over with the grace period of before",
	"the same, and it held or waited",
	"update beyond the quota of bytes",
	"update of another version",
	"resize of another version",
	"delete of another version",
	"waiter asks for less and is granted",
	"waiter above a lowered limit asks for the same or less",
	"waiter asks for more",
	"waiter asks with timeout 0",
	"waiter granted",
	"waiter released",
	"waiter times out at its first moment",
	"waiter's data beyond the quota of bytes",
}

// FuzzMachineMatchesModel makes histories of bytes.
func FuzzMachineMatchesModel(f *testing.F) {
	for seed := range byte(4) {
		b := make([]byte, 800)
		_, _ = rand.NewChaCha8([32]byte{seed}).Read(b)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h := newHistory(&byteSource{b}, nil)
		if err := h.run(); err != nil {
			t.Fatalf("%v\n%s", err, h.trace())
		}
	})
}

// byteSource takes numbers from bytes, and the simplest when they are used up.
type byteSource struct{ b []byte }

func (f *byteSource) n(bound int) int {
	v := 0
	for reach := 1; reach < bound && len(f.b) > 0; reach <<= 8 {
		v, f.b = v<<8|int(f.b[0]), f.b[1:]
	}
	return v % bound
}
