package cluster

import (
	"testing"

	"github.com/signalbox-dev/signalbox/shard/formattest"
)

// TestIdentityFormat compares the file of an identity with testdata/identity-N.golden.
func TestIdentityFormat(t *testing.T) {
	var (
		id    Identity
		store memoryStore
	)
	formattest.Fill(&id)
	if err := SaveIdentity(&store, id); err != nil {
		t.Fatal(err)
	}
	if _, found, err := LoadIdentity(&store); !found || err != nil {
		t.Fatal(found, err)
	}
	g := formattest.Golden{Name: "identity"}
	g.Write(store.b)
	g.Check(t, IdentityFormat)
}
