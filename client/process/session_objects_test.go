package process

import (
	"fmt"
	"slices"
	"testing"

	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestSessionObjects: the processes of a session are listed over all shards, in order of name, for
// as long as it is a member.
func TestSessionObjects(t *testing.T) {
	t.Parallel()
	srv := servertest.Start(t, servertest.Shards(3))
	s, other := newSession(t, srv.Addr()), newSession(t, srv.Addr())
	objects := func(id uint64) (list []admin.SessionObject) {
		t.Helper()
		for o, err := range admin.OfNode(other.Node()).SessionObjects(t.Context(), id) {
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, o)
		}
		return list
	}
	var want []admin.SessionObject
	var last *Membership
	for i := range 12 {
		name := fmt.Sprintf("work-%02d", i)
		last = mustJoin(t, s, name, newAgreeing(0), Options{Key: "worker-7"})
		want = append(want, admin.SessionObject{Kind: admin.ObjectProcess, Name: name, Label: "worker-7", Instances: 1})
	}
	if got := objects(s.ID()); !slices.Equal(got, want) {
		t.Errorf("listed %+v, want %+v", got, want)
	}
	if got := objects(other.ID()); got != nil {
		t.Errorf("a session without memberships has %+v", got)
	}
	mustLeave(t, last)
	if got := objects(s.ID()); !slices.Equal(got, want[:11]) {
		t.Errorf("after a leave %+v", got)
	}
}
