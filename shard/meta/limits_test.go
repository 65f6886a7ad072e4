package meta

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestListsAreBounded: as many tokens and rights as their limits say, and not one more; one that
// replaces another is no more, and one that goes makes room.
func TestListsAreBounded(t *testing.T) {
	m := New()
	index := uint64(0)
	apply := func(c Command) Result {
		index++
		var op OpID
		op[0] = 1
		for i := range 8 {
			op[1+i] = byte(index >> (8 * i))
		}
		res, err := DecodeResult(m.Apply(index, AppendCommand(nil, op, c)))
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	must := func(c Command) {
		t.Helper()
		if res := apply(c); res.Status != protocol.StatusOK {
			t.Fatalf("%T: %v %s", c, res.Status, res.Message)
		}
	}
	refused := func(c Command, text string) {
		t.Helper()
		if res := apply(c); res.Status != protocol.StatusPreconditionFailed || !strings.Contains(res.Message, text) {
			t.Errorf("%T: %v %q, want a refusal that says %q", c, res.Status, res.Message, text)
		}
	}
	must(&Bootstrap{
		Cluster: "c", Instance: 1, Tier: "default", CanVote: true, Buckets: 8,
		Shards: []uint64{2}, NodeConfig: protocol.DefaultNodeConfig(),
	})
	token := func(i int) *TokenPut {
		return &TokenPut{Token{ID: fmt.Sprint("t", i), Identity: "somebody",
			Hash: [HashLen]byte{1, byte(i), byte(i >> 8), byte(i >> 16)}}}
	}
	right := func(i int, bits RightBits) *RightsPut {
		return &RightsPut{Right: Right{Prefix: "/a", Identity: fmt.Sprint("i", i), Rights: bits}}
	}
	// Each command copies its whole list: most entries are put in without one.
	const last = 10
	for i := range maxTokens - last {
		m.tokens = append(m.tokens, token(i).Token)
	}
	slices.SortFunc(m.tokens, func(a, b Token) int { return strings.Compare(a.ID, b.ID) })
	for i := range last {
		must(token(maxTokens - last + i))
	}
	refused(token(maxTokens), "there are 10000 tokens, the limit")
	must(&TokenRemove{ID: "t7"})
	must(token(maxTokens))
	for i := range maxRights - last {
		m.rights = append(m.rights, right(i, 1).Right)
	}
	slices.SortFunc(m.rights, func(a, b Right) int { return strings.Compare(a.Identity, b.Identity) })
	for i := range last {
		must(right(maxRights-last+i, 1))
	}
	refused(right(maxRights, 1), "the rights list has its 10000 entries")
	must(right(7, 3)) // in place of what it had
	must(&RightsRemove{Prefix: "/a", Identity: "i8"})
	must(right(maxRights, 1))
	if err := m.Check(); err != nil {
		t.Fatal(err)
	}
}
