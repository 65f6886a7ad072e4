package loadgen

import (
	"slices"
	"strings"
	"testing"
)

func TestReadMix(t *testing.T) {
	s := mixOf(t, DefaultMix)
	if s.Name != "mixed" || s.Series[0] != "operation" || !slices.Contains(s.Series, "contended-lock.handoff") {
		t.Errorf("the default mix is %+v", s)
	}
	for _, tc := range []struct{ text, says string }{
		{"", "this one has 0"},
		{"parts: []", "this one has 0"},
		{"parts: 5", "not as it should be"},
		{"parts: [5]", "not as it should be"},
		{"{", "not as it should be"},
		{"part: []", "field part not found"},
		{"parts: [{scenario: lock-pairs, weight: 1, colour: red}]", "field colour not found"},
		{"parts: [{scenario: lock-pairs, weight: 1, keys: many}]", "not as it should be"},
		{"parts: [{weight: 1}]", `part 1: unknown scenario ""`},
		{"parts: [{scenario: lock-pairs, weight: 1}, {scenario: lock-pear, weight: 1}]", `part 2: unknown scenario "lock-pear"; choose one of`},
		{"parts: [{scenario: mixed, weight: 1}]", `unknown scenario "mixed"`},
		{"parts: [{scenario: idle-sessions, weight: 1}]", "cannot be mixed"},
		{"parts: [{scenario: discovery, weight: 1}]", "cannot be mixed"},
		{"parts: [{scenario: lock-pairs}]", "weight is 0"},
		{"parts: [{scenario: lock-pairs, weight: -1}]", "weight is -1"},
		{"parts: [{scenario: lock-pairs, weight: .nan}]", "weight is NaN"},
		{"parts: [{scenario: lock-pairs, weight: .inf}]", "weight is +Inf"},
		{"parts: [{scenario: lock-pairs, weight: 1}, {scenario: lock-pairs, weight: 1}]", "the name lock-pairs is taken"},
		{"parts: [{scenario: lock-pairs, weight: 1, name: operation}]", "the name operation is taken"},
		{"parts: [{scenario: lock-pairs, weight: 1, name: 'a b'}]", `name "a b"`},
		{"parts: [{scenario: lock-pairs, weight: 1, keys: -5}]", "part 1: keys is -5"},
		{"parts: [{scenario: lock-pairs, weight: 1, skew: 99}]", "part 1: skew is 99"},
		{"parts: [{scenario: lock-pairs, weight: 1, data-size: 99999999}]", "part 1: data size is"},
		{"parts: [" + strings.Repeat("{scenario: lock-pairs, weight: 1},", 33) + "]", "this one has 33"},
		{"parts: [{scenario: lock-pairs, weight: 1}]\n---\nparts: []", "more than one document"},
		{strings.Repeat("# long\n", 10_000), "longer than"},
	} {
		if s, err := ReadMix(strings.NewReader(tc.text)); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%.60q gives %v and %v, want an error that says %q", tc.text, s, err, tc.says)
		}
	}
}

func FuzzReadMix(f *testing.F) {
	f.Add(DefaultMix)
	f.Add("parts: [{scenario: watch-stream, weight: 1e3, watchers: 10, name: w}]")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ReadMix(strings.NewReader(text))
		if err == nil && (s.Name != "mixed" || len(s.Series) < 2 || s.Build == nil) {
			t.Fatalf("read %+v", s)
		}
	})
}
