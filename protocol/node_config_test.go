package protocol

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestDefaultNodeConfig(t *testing.T) {
	c := DefaultNodeConfig()
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	want := NodeConfig{AllFields, 1000, 10_000, Relaxed, Strict, CountersAggregated, 0, 1_000_000, 1_000_000, 4 << 30,
		2_000_000, 1_000_000, 0, 0, ""}
	if c != want {
		t.Errorf("defaults are %+v, want %+v", c, want)
	}
}

func TestMerge(t *testing.T) {
	base := NodeConfig{AllFields, 2_000, 20_000, Strict, Relaxed, CountersDetailed, 8, 7, 8, 9, 10, 11, 12, 13, "x"}
	with := func(change func(*NodeConfig)) NodeConfig { c := base; change(&c); return c }
	cases := []struct {
		name  string
		alter NodeConfig
		want  NodeConfig
		err   string
	}{
		{"nothing given", NodeConfig{SelfCheckPeriod: 1, ReadConsistency: 9}, base, ""},
		{"one given", NodeConfig{Fields: FieldSelfCheckPeriod, SelfCheckPeriod: 500, GracePeriod: 9}, with(func(c *NodeConfig) { c.SelfCheckPeriod = 500 }), ""},
		{"one back to its default", NodeConfig{Fields: FieldGracePeriod}, with(func(c *NodeConfig) { c.GracePeriod = 10_000 }), ""},
		{"all back", NodeConfig{Fields: AllFields}, DefaultNodeConfig(), ""},
		{"longest self-check and grace", NodeConfig{Fields: FieldSelfCheckPeriod | FieldGracePeriod, SelfCheckPeriod: 10_000, GracePeriod: 30_000},
			with(func(c *NodeConfig) { c.SelfCheckPeriod, c.GracePeriod = 10_000, 30_000 }), ""},
		{"shortest", NodeConfig{Fields: FieldSelfCheckPeriod | FieldGracePeriod, SelfCheckPeriod: 500, GracePeriod: 1_500},
			with(func(c *NodeConfig) { c.SelfCheckPeriod, c.GracePeriod = 500, 1_500 }), ""},
		{"enums and quotas", NodeConfig{AllFields &^ (FieldSelfCheckPeriod | FieldGracePeriod), 0, 0, Relaxed, Strict, CountersAggregated, 9, 1, Forever, 1, Forever, 1, 10_000_000, 86_400_000, ""},
			NodeConfig{AllFields, 2_000, 20_000, Relaxed, Strict, CountersAggregated, 9, 1, Forever, 1, Forever, 1,
				10_000_000, 86_400_000, ""}, ""},
		{"foreign too long", NodeConfig{Fields: FieldForeign, Foreign: strings.Repeat("x", 257)}, NodeConfig{}, "foreign settings are 257 bytes"},
		{"self-check too short", NodeConfig{Fields: FieldSelfCheckPeriod, SelfCheckPeriod: 499}, NodeConfig{}, "self-check period is 499 ms"},
		{"self-check too long", NodeConfig{Fields: FieldSelfCheckPeriod, SelfCheckPeriod: 10_001}, NodeConfig{}, "self-check period is 10001 ms"},
		{"grace too long", NodeConfig{Fields: FieldGracePeriod, GracePeriod: 30_001}, NodeConfig{}, "grace period is 30001 ms"},
		{"grace too near", NodeConfig{Fields: FieldGracePeriod, GracePeriod: 2_999}, NodeConfig{}, "at least 3000 ms"},
		{"self-check raised to the kept grace", NodeConfig{Fields: FieldGracePeriod | FieldSelfCheckPeriod, SelfCheckPeriod: 9_500}, NodeConfig{}, "at least 10500 ms"},
		{"grace near overflow", NodeConfig{Fields: FieldGracePeriod, GracePeriod: Forever}, NodeConfig{}, "period is -1 ms; it must be 1500 to 30000 ms"},
		{"self-check near overflow", NodeConfig{Fields: FieldSelfCheckPeriod, SelfCheckPeriod: Forever}, NodeConfig{}, "self-check period"},
		{"unknown read consistency", NodeConfig{Fields: FieldReadConsistency, ReadConsistency: 3}, NodeConfig{}, "read consistency is 3"},
		{"unknown attach consistency", NodeConfig{Fields: FieldAttachConsistency, AttachConsistency: 255}, NodeConfig{}, "attach consistency is 255"},
		{"unknown counters mode", NodeConfig{Fields: FieldCountersMode, CountersMode: 3}, NodeConfig{}, "counters mode is 3"},
		{"unknown field", NodeConfig{Fields: 1 << 14}, NodeConfig{}, "fields unknown here (bits 0x4000)"},
		{"no limit of requests again", NodeConfig{Fields: FieldMaxRequests}, with(func(c *NodeConfig) { c.MaxRequests = 0 }), ""},
		{"a cap on priorities", NodeConfig{Fields: FieldMaxPriority, MaxPriority: 7}, with(func(c *NodeConfig) { c.MaxPriority = 7 }), ""},
		{"none again", NodeConfig{Fields: FieldMaxPriority}, with(func(c *NodeConfig) { c.MaxPriority = 0 }), ""},
		{"a cap below the default", NodeConfig{Fields: FieldMaxPriority, MaxPriority: 4}, NodeConfig{}, "max priority is 4; it must be 5, which acquires have that name none, to 9, or 0 for any"},
		{"slow waits off again", NodeConfig{Fields: FieldSlowWait}, with(func(c *NodeConfig) { c.SlowWait = 0 }), ""},
		{"slow wait beyond a day", NodeConfig{Fields: FieldSlowWait, SlowWait: 86_400_001}, NodeConfig{}, "slow wait is 86400001 ms; it must be at most 86400000 ms"},
		{"too many requests", NodeConfig{Fields: FieldMaxRequests, MaxRequests: 10_000_001}, NodeConfig{}, "quota of requests is 10000001 a second"},
	}
	for _, c := range cases {
		got, err := base.Merge(c.alter)
		if c.err != "" {
			if !errors.Is(err, StatusBadRequest) || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: error %v, want one with %s", c.name, err, c.err)
			}
			continue
		}
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", c.name, got, err, c.want)
		}
	}
}

// TestMergeKeepsValid: whatever is altered, in any order, an effective config is valid and
// complete, or the alter is refused.
func TestMergeKeepsValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := DefaultNodeConfig()
		for range 5 {
			next, err := c.Merge(NodeConfig{
				Fields:            rapid.Uint32Range(0, AllFields).Draw(t, "fields"),
				SelfCheckPeriod:   rapid.Uint64Range(0, 11_000).Draw(t, "self-check"),
				GracePeriod:       rapid.Uint64Range(0, 31_000).Draw(t, "grace"),
				ReadConsistency:   Consistency(rapid.Uint8Range(0, 3).Draw(t, "read")),
				AttachConsistency: Consistency(rapid.Uint8Range(0, 3).Draw(t, "attach")),
				CountersMode:      CountersMode(rapid.Uint8Range(0, 3).Draw(t, "counters")),
				MaxSessions:       rapid.Uint64().Draw(t, "sessions"),
				MaxSemaphores:     rapid.Uint64().Draw(t, "semaphores"),
				MaxBytes:          rapid.Uint64().Draw(t, "bytes"),
				MaxWaiters:        rapid.Uint64().Draw(t, "waiters"),
				MaxWatchers:       rapid.Uint64().Draw(t, "watchers"),
				MaxRequests:       rapid.Uint64Range(0, 2*HighestMaxRequests).Draw(t, "requests"),
				SlowWait:          rapid.Uint64Range(0, 2*HighestSlowWait).Draw(t, "slow wait"),
				MaxPriority:       rapid.Uint8Range(0, 10).Draw(t, "max priority"),
				Foreign:           strings.Repeat("x", rapid.IntRange(0, 2*MaxForeignLen).Draw(t, "foreign")),
			})
			if err != nil {
				continue
			}
			if next.Fields != AllFields || next.Validate() != nil {
				t.Fatalf("%+v", next)
			}
			if again, err := c.Merge(next); err != nil || again != next {
				t.Fatalf("merging a described config %+v gives %+v, %v", next, again, err)
			}
			c = next
		}
	})
}
