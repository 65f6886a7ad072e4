package delivery

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestPrefixes compares the trie with a list, and checks that its shape stays minimal.
func TestPrefixes(t *testing.T) {
	key := rapid.StringMatching(`[ab]{0,6}`)
	rapid.Check(t, func(t *rapid.T) {
		var trie prefixTrie
		have := make(map[string]*target)
		t.Repeat(map[string]func(*rapid.T){
			"get": func(t *rapid.T) {
				k := key.Draw(t, "key")
				got := trie.get(k)
				if want := have[k]; want != nil && got != want {
					t.Fatalf("another target for %q", k)
				}
				have[k] = got
			},
			"remove": func(t *rapid.T) {
				k := key.Draw(t, "key")
				if have[k] != nil {
					trie.remove(k)
					delete(have, k)
				}
			},
			"": func(t *rapid.T) {
				k := key.Draw(t, "name")
				var want []*target
				for n := 0; n <= len(k); n++ {
					if have[k[:n]] != nil {
						want = append(want, have[k[:n]])
					}
				}
				if got := trie.match([]byte(k), nil); !slices.Equal(got, want) {
					t.Fatalf("%q matches %d prefixes, want %d", k, len(got), len(want))
				}
				if trie.empty() != (len(have) == 0) {
					t.Fatalf("empty is %v with %d prefixes", trie.empty(), len(have))
				}
				checkShape(t, &trie.root, true)
			},
		})
	})
}

func checkShape(t *rapid.T, n *trieNode, root bool) {
	if !root && (n.label == "" || n.target == nil && len(n.children) < 2) {
		t.Fatalf("node %q has no use", n.label)
	}
	if !slices.IsSortedFunc(n.children, func(a, b *trieNode) int { return strings.Compare(a.label[:1], b.label[:1]) }) {
		t.Fatalf("children of %q are out of order", n.label)
	}
	for _, c := range n.children {
		checkShape(t, c, false)
	}
}
