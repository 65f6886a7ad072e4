package remotesession

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

var limit = flag.Int("limit", 5e6, "states of a large scenario at most; each million takes 5 s and 100 MB")

// small scenarios are searched to the end before a merge.
var small = []Scenario{
	{Name: "talk", HomeAt: 0, SemAt: 1, Acquires: 2, Releases: 1, Attaches: 1, Ends: 1, Leaders: 2, Resets: 2, Dups: 1},
	{Name: "home moves, leaders change", HomeAt: 0, SemAt: 1, Acquires: 1, Ends: 1, Leaders: 1, HomeMoves: 1, Aborts: 1, Dups: 1},
	{Name: "home moves twice", HomeAt: 0, SemAt: 1, Acquires: 1, Ends: 1, HomeMoves: 2, Aborts: 1},
	{Name: "semaphore moves, leaders change", HomeAt: 0, SemAt: 1, Acquires: 1, Ends: 1, Leaders: 1, SemMoves: 1, Aborts: 1, Dups: 1},
	{Name: "semaphore moves, and is released", HomeAt: 0, SemAt: 1, Acquires: 2, Releases: 1, Ends: 1, SemMoves: 1, Aborts: 1, Dups: 1},
	{Name: "both here, both move, abort", HomeAt: 0, SemAt: 0, Acquires: 1, Ends: 1, HomeMoves: 1, SemMoves: 1, Aborts: 1},
	{Name: "both here, both move, leaders change", HomeAt: 0, SemAt: 0, Acquires: 1, Ends: 1, Leaders: 1, HomeMoves: 1, SemMoves: 1},
}

// brief ones, in which everything happens that may, are searched to the end on every run.
var brief = []Scenario{
	{Name: "talk from the start", HomeAt: 0, SemAt: 1, Unstarted: true, Acquires: 2, Releases: 1, Attaches: 1, Ends: 1, Leaders: 2, Resets: 1, Dups: 1},
	{Name: "semaphore moves twice", HomeAt: 0, SemAt: 1, Acquires: 1, Ends: 1, SemMoves: 2, Aborts: 1, Dups: 1},
	{Name: "both here, both move", HomeAt: 0, SemAt: 0, Acquires: 1, Ends: 1, HomeMoves: 1, SemMoves: 1},
	{Name: "both move", HomeAt: 0, SemAt: 1, Acquires: 1, Ends: 1, HomeMoves: 1, SemMoves: 1},
}

// large ones are for the night. Those that do not end are searched up to the limit.
var large = []Scenario{
	{Name: "both move, take-over", HomeAt: 0, SemAt: 1, Acquires: 1, Attaches: 1, Ends: 1, HomeMoves: 1, SemMoves: 1},
	{Name: "home moves twice, leaders change", HomeAt: 0, SemAt: 1, Acquires: 1, Ends: 1, Leaders: 1, HomeMoves: 2},
	{Name: "semaphore moves, all", HomeAt: 0, SemAt: 1, Acquires: 2, Releases: 1, Ends: 1, Leaders: 1, SemMoves: 2, Aborts: 1, Dups: 1},
	{Name: "talk, more of all", HomeAt: 0, SemAt: 1, Unstarted: true, Acquires: 3, Releases: 2, Attaches: 1, Ends: 1, Leaders: 3, Resets: 2, Dups: 2},
	{Name: "home moves, all", HomeAt: 0, SemAt: 1, Acquires: 1, Ends: 1, Leaders: 1, HomeMoves: 2, Aborts: 1, Dups: 1},
	{Name: "both here, all", HomeAt: 0, SemAt: 0, Acquires: 1, Ends: 1, Leaders: 1, HomeMoves: 1, SemMoves: 1, Aborts: 1, Dups: 1},
	{Name: "both move, all", HomeAt: 0, SemAt: 1, Acquires: 1, Ends: 1, Leaders: 1, HomeMoves: 1, SemMoves: 1, Aborts: 1, Dups: 1},
	{Name: "both move twice", HomeAt: 0, SemAt: 1, Acquires: 1, Ends: 1, HomeMoves: 2, SemMoves: 2},
}

func TestProtocolIsSound(t *testing.T) {
	list := brief
	if form.Is(form.Full) && !form.Race {
		list = append(list, small...)
	}
	total := 0
	var actions [numActions]int
	search := func(c Scenario, most int, complete bool) {
		r := Search(c, most)
		total += r.States
		for a, n := range r.Actions {
			actions[a] += n
		}
		t.Log(r)
		if r.Violation != "" || complete && !r.Complete {
			t.Errorf("%s: %q, complete %v", c.Name, r.Violation, r.Complete)
		}
		if r.Quiesced < r.States/4 {
			t.Errorf("%s: only %d of %d states were asked to settle; the scenario shows nothing", c.Name, r.Quiesced, r.States)
		}
	}
	for _, c := range list {
		search(c, 5e6, true)
	}
	if form.Is(form.Long) {
		for _, c := range large {
			search(c, *limit, false)
		}
	}
	t.Logf("%d states", total)
	for a := uint8(1); a < numActions; a++ {
		onlyFaults := a == actDeposedAnswers || a == actRegister || a == actReleaseLost || a == actUnsubscribe
		if (actions[a] == 0) != onlyFaults {
			t.Errorf("%q happened %d times", action{kind: a}, actions[a])
		}
	}
}

// faultScenarios says in which scenario each fault must be found.
var faultScenarios = map[Fault]Scenario{
	ImportNotAsked:    {HomeAt: 0, SemAt: 1, Acquires: 1, Ends: 1, SemMoves: 1},
	StaleAnswer:       {HomeAt: 0, SemAt: 1, Acquires: 2, Releases: 1, Ends: 1},
	NoImportEpoch:     {HomeAt: 0, SemAt: 1, Acquires: 1, SemMoves: 1, Dups: 1},
	HomePushes:        {HomeAt: 0, SemAt: 1, Acquires: 1, Ends: 1, SemMoves: 1},
	NonOwnerAnswers:   {HomeAt: 0, SemAt: 1, Acquires: 1, HomeMoves: 1},
	EarlyBarrier:      {HomeAt: 0, SemAt: 1, Unstarted: true, Acquires: 1, Leaders: 1},
	LookupFirst:       {HomeAt: 0, SemAt: 1, Acquires: 1, Ends: 1},
	NoHomeResub:       {HomeAt: 0, SemAt: 1, Acquires: 1, Ends: 1, Leaders: 1},
	NoRemoteResub:     {HomeAt: 0, SemAt: 1, Acquires: 1, Ends: 1, Leaders: 1},
	GoneNotFinal:      {HomeAt: 0, SemAt: 1, Acquires: 1, Ends: 1},
	AttachNotSent:     {HomeAt: 0, SemAt: 1, Acquires: 1, Attaches: 1},
	FrozenExpires:     {HomeAt: 0, SemAt: 1, Acquires: 1, Ends: 1, HomeMoves: 1},
	FrozenGrants:      {HomeAt: 0, SemAt: 1, Acquires: 1, SemMoves: 1},
	NoEpochResub:      {HomeAt: 0, SemAt: 1, Acquires: 1, Ends: 1, HomeMoves: 2},
	ReleaseOnce:       {HomeAt: 0, SemAt: 1, Acquires: 1, Ends: 1},
	Unsubscribe:       {HomeAt: 0, SemAt: 1, Acquires: 2, Releases: 1, Ends: 1},
	NoActivateRelease: {HomeAt: 0, SemAt: 1, Acquires: 1, Ends: 1, HomeMoves: 1},
	NoDepart:          {HomeAt: 0, SemAt: 0, Acquires: 1, Ends: 1, HomeMoves: 1},
	AbortNoEpoch:      {HomeAt: 0, SemAt: 1, Acquires: 1, SemMoves: 2, Aborts: 1},
	EarlyTicket:       {HomeAt: 0, SemAt: 1, Unstarted: true, Acquires: 1},
	PartialActivates:  {HomeAt: 0, SemAt: 1, Acquires: 1, SemMoves: 1},
	NoActivateEpoch:   {HomeAt: 0, SemAt: 1, Acquires: 1, SemMoves: 2, Aborts: 1, Dups: 1},
}

// TestPlantedFaultsAreFound: with one rule left out, the search finds what goes wrong. With all
// rules, in the same scenario, it finds nothing.
func TestPlantedFaultsAreFound(t *testing.T) {
	page, err := os.ReadFile("DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	sound := map[Scenario]bool{} // several faults have one scenario, and without them it is the same
	for f := None + 1; f < numFaults; f++ {
		t.Run(f.String(), func(t *testing.T) {
			c, ok := faultScenarios[f]
			if !ok {
				t.Fatal("no scenario is named for it")
			}
			c.Name, c.Fault = "with fault", f
			r := Search(c, 1e6)
			t.Log(r)
			if r.Violation == "" {
				t.Fatal("not found")
			}
			if row := fmt.Sprintf("| `%s` |", f); !strings.Contains(string(page), row) {
				t.Errorf("DESIGN.md has no row %q", row)
			}
			c.Name, c.Fault = "without", None
			if sound[c] {
				return
			}
			if r := Search(c, 1e6); r.Violation != "" || !r.Complete {
				t.Error(r)
			}
			sound[c] = true
		})
	}
}
