package bench

import (
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestScaling(t *testing.T) {
	golden(t, "scaling.md", written(t, func(w io.Writer) error { return WriteScaling(w, sample(1)) }))
}

func TestPredict(t *testing.T) {
	c := CostsOf(sample(1))
	a := DefaultAssumptions()
	a.Beats = 0
	one, two, three, thirty := Predict(c, a, 1), Predict(c, a, 2), Predict(c, a, 3), Predict(c, a, 30)
	// Three machines do what three copies cost, as it was measured; from there it grows with the
	// machines.
	// The busiest machine leads one of the two shards and follows the other.
	lead := (1 + 2*a.Send) / (1 + 2*(a.Send+a.Follower))
	if want := (a.Cores*a.Load*1e6 - 9000) / (12.5 * (lead + (1-lead)/2) / 2); math.Abs(three.Pairs/want-1) > 1e-9 {
		t.Errorf("three carry %v pairs/s, expected %v", three.Pairs, want)
	}
	if want := (a.Cores*a.Load*1e6 - 9000) / ((4 + 12.5) / 2 / 2); math.Abs(two.Pairs/want-1) > 1e-4 {
		t.Errorf("two carry %v pairs/s, expected %v", two.Pairs, want)
	}
	if want := (a.Cores*a.Load*1e6 - 4000) / 4; math.Abs(one.Pairs/want-1) > 1e-4 {
		t.Errorf("one carries %v pairs/s, expected %v", one.Pairs, want)
	}
	if math.Abs(thirty.Pairs/three.Pairs-10) > 1e-9 || math.Abs(thirty.Names/three.Names-10) > 1e-9 {
		t.Errorf("thirty machines are not ten times three: %+v, %+v", three, thirty)
	}
	if hundred, more := Predict(c, a, 99), Predict(c, a, 100); more.Pairs != hundred.Pairs {
		t.Errorf("the hundredth machine serves data shards: %v, %v", hundred.Pairs, more.Pairs)
	}
	a.Beats = 22
	if p := Predict(c, a, 101); math.Abs(p.Meta-100*22*30e-6) > 1e-9 {
		t.Errorf("the leader of the meta shard spends %v of a core", p.Meta)
	}
	a.Disk = 1000
	if p := Predict(c, a, 3); p.Limit != "disk" || math.Abs(p.Pairs-3*1000/430.) > 1e-6 {
		t.Errorf("a slow disk does not limit: %+v", p)
	}
}

// TestPredictWithoutThree: a report of one server alone is enough, with what is assumed about
// copies.
func TestPredictWithoutThree(t *testing.T) {
	c := CostsOf(sample(1))
	c.Three, c.Written3, c.Member = math.NaN(), math.NaN(), math.NaN()
	a := DefaultAssumptions()
	one, three := Predict(c, a, 1), Predict(c, a, 3)
	if !(three.Pairs > one.Pairs && three.Pairs < 3*one.Pairs) {
		t.Errorf("one machine carries %v pairs/s, three carry %v", one.Pairs, three.Pairs)
	}
}

// TestScalingPageIsInStep: the page says what the model says of the baseline, and names the
// assumptions that are in force. With -update it is rewritten.
func TestScalingPageIsInStep(t *testing.T) {
	r, err := Read(filepath.Join("..", filepath.FromSlash(baseline)+".json"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("..", filepath.FromSlash(scalingPage))
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want, err := inScalingPage(page, r)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(page) != string(want) {
		t.Errorf("%s is not what the model says; run `go test ./bench -run Scaling -update`", scalingPage)
	}
	for _, b := range []string{"pairs", "three", "bytes", "idle", "names", "watches"} {
		if !slices.Contains(benchmarkNames(), b) || !strings.Contains(string(page), "`"+b+"`") {
			t.Errorf("the page does not say what block %s measures", b)
		}
	}
}

// TestAdoptWritesAllPages: nothing is typed by hand, and what stands around the tables stays. A
// measurement that failed is in the baseline with its reason.
func TestAdoptWritesAllPages(t *testing.T) {
	t.Chdir(t.TempDir())
	r := sample(1)
	name, err := r.Save("reports")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir("bench", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := adoptCommand([]string{name}); err == nil {
		t.Error("there are no pages, and it says nothing")
	}
	pages := map[string][2]string{readmePage: {readmeBegin, readmeEnd}, scalingPage: {scalingBegin, scalingEnd}}
	for file, marks := range pages {
		if err := os.WriteFile(filepath.FromSlash(file), []byte("before\n"+marks[0]+"old\n"+marks[1]+"after\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := adoptCommand([]string{name}); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{readmePage: r.excerpt(),
		scalingPage: written(t, func(w io.Writer) error { return WriteScaling(w, r) })} {
		b, err := os.ReadFile(filepath.FromSlash(file))
		if err != nil {
			t.Fatal(err)
		}
		page := string(b)
		around := strings.HasPrefix(page, "before\n") && strings.HasSuffix(page, "after\n")
		if !around || !strings.Contains(page, want) || strings.Contains(page, "old\n") {
			t.Errorf("%s is now:\n%s", file, page)
		}
	}
	if back, err := Read(filepath.FromSlash(baseline) + ".json"); err != nil || back.Rounds != r.Rounds ||
		!slices.Equal(back.Failures, r.Failures) {
		t.Errorf("the baseline is %v, %v", back, err)
	}
	if b, err := os.ReadFile(filepath.FromSlash(baseline) + ".md"); err != nil || !strings.Contains(string(b), "it fell over") {
		t.Errorf("the baseline does not say why a measurement failed: %v\n%s", err, b)
	}
}
