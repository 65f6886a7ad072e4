package sdktest

import (
	"fmt"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest"
)

// TestAcquire goes through the outcomes of an acquire: each request gets one answer, and is pending
// once at most.
func TestAcquire(t *testing.T) {
	t.Parallel()
	cc, path := oneGateway(t)
	a, b := newSession(t, cc, path), newSession(t, cc, path)

	a.create(1, "slots", 3, "about")
	a.expect("1 created")
	a.acquire(2, "slots", 2, 0, "a", false)
	a.expect("2 acquired=true")
	b.acquire(1, "slots", 2, 0, "b", false)
	b.expect("1 acquired=false")
	b.acquire(2, "slots", 2, 100, "b", false)
	b.expect("2 pending", "2 acquired=false")

	// A newer acquire takes the place of the one that waits, which is aborted before it is
	// answered.
	b.acquire(3, "slots", 3, forever, "b", false)
	b.expect("3 pending")
	b.acquire(4, "slots", 2, forever, "b2", false)
	b.expect("3 acquired=false ABORTED", "4 pending")
	b.acquire(5, "slots", 3, forever, "b", false)
	b.expect("5 acquired=false BAD_REQUEST") // more than it waits for: 4 goes on
	a.acquire(3, "slots", 1, 0, "a", false)  // less: b fits
	a.expect("3 acquired=true")
	b.expect("4 acquired=true")
	b.acquire(6, "slots", 2, forever, "b3", false)
	b.expect("6 acquired=true")

	// A release ends the wait, first its acquire and then itself.
	a.release(4, "slots")
	a.expect("4 released=true")
	a.acquire(5, "slots", 3, forever, "a", false)
	a.expect("5 pending")
	a.release(6, "slots")
	a.expect("5 acquired=false ABORTED", "6 released=true")
	a.release(7, "slots")
	a.expect("7 released=false")
	a.release(8, "none")
	a.expect("8 released=false")

	// A try on a queue that it waits in takes it out of the queue.
	a.acquire(9, "slots", 3, forever, "a", false)
	a.expect("9 pending")
	a.acquire(10, "slots", 3, 0, "a", false)
	a.expect("9 acquired=false ABORTED", "10 acquired=false")
	a.release(11, "slots")
	a.expect("11 released=false")

	// Wrong ones.
	a.acquire(12, "none", 1, 0, "", false)
	a.expect("12 acquired=false NOT_FOUND")
	a.acquire(13, "slots", 0, 0, "", false)
	a.expect("13 acquired=false BAD_REQUEST")
	a.acquire(14, "slots", 4, 0, "", false)
	a.expect("14 acquired=false BAD_REQUEST")
	a.acquire(15, "slots", 1, 0, "", true)
	a.expect("15 acquired=false PRECONDITION_FAILED")
	a.acquire(16, "slots", 1, 24*60*60*1000+1, "", false)
	a.expect("16 acquired=false BAD_REQUEST")
	a.acquire(17, "", 1, 0, "", true)
	a.expect("17 acquired=false BAD_REQUEST")

	// A delete by force aborts who waits.
	a.acquire(18, "slots", 3, forever, "a", false)
	a.expect("18 pending")
	b.remove(7, "slots", false)
	b.expect("7 deleted PRECONDITION_FAILED")
	b.remove(8, "slots", true)
	b.expect("8 deleted")
	a.expect("18 acquired=false ABORTED")
	b.update(9, "slots", "x")
	b.expect("9 updated NOT_FOUND")
	b.create(10, "slots", 0, "")
	b.expect("10 created BAD_REQUEST")
}

// TestPipelinedRequests: requests on one name take effect in the order in which they were sent,
// without waiting for answers; those on other names pass them.
func TestPipelinedRequests(t *testing.T) {
	t.Parallel()
	cc, path := oneGateway(t)
	s := newSession(t, cc, path)
	for i := range uint64(100) {
		s.acquire(3*i, "lock", 1, forever, fmt.Sprint(i), true)
		s.describe(&describeSemaphore{ReqId: 3*i + 1, Name: "lock", IncludeOwners: true})
		s.release(3*i+2, "lock")
	}
	for i := range 100 {
		s.expect(fmt.Sprintf("%d acquired=true", 3*i),
			fmt.Sprintf(`%d described "" 1/18446744073709551615 ephemeral=true watch=false owner(1 "%d")`, 3*i+1, i),
			fmt.Sprintf("%d released=true", 3*i+2))
	}
	holder := newSession(t, cc, path)
	holder.acquire(1, "held", 1, 0, "", true)
	holder.expect("1 acquired=true")
	s.acquire(1, "held", forever, forever, "", true)
	s.expect("1 pending")
	s.create(2, "other", 1, "")
	s.expect("2 created")
}

// TestWatch goes through what ends a watch.
func TestWatch(t *testing.T) {
	t.Parallel()
	cc, path := oneGateway(t)
	s, other := newSession(t, cc, path), newSession(t, cc, path)
	watch := func(req uint64, data, owners bool) {
		s.describe(&describeSemaphore{ReqId: req, Name: "config", WatchData: data, WatchOwners: owners})
	}
	watch(1, true, false)
	s.expect("1 described NOT_FOUND")
	s.create(2, "config", 2, "v1")
	s.expect("2 created")
	watch(3, true, false)
	s.expect(`3 described "v1" 0/2 ephemeral=false watch=true`)
	other.update(1, "config", "v1") // the same bytes
	other.expect("1 updated")
	other.update(2, "config", "v2")
	other.expect("2 updated")
	s.expect("3 changed data=true owners=false")

	// A newer watch replaces it: that is reported before the newer one's result.
	watch(4, true, false)
	s.expect(`4 described "v2" 0/2 ephemeral=false watch=true`)
	watch(5, false, true)
	s.expect("4 changed data=false owners=false", `5 described "v2" 0/2 ephemeral=false watch=true`)
	s.describe(&describeSemaphore{ReqId: 6, Name: "config"}) // leaves it alone
	s.expect(`6 described "v2" 0/2 ephemeral=false watch=false`)
	other.update(3, "config", "v3")
	other.expect("3 updated")
	other.acquire(4, "config", 1, 0, "", false)
	other.expect("4 acquired=true")
	s.expect("5 changed data=false owners=true")

	watch(7, true, true)
	s.expect(`7 described "v3" 1/2 ephemeral=false watch=true`)
	other.remove(5, "config", true)
	other.expect("5 deleted")
	s.expect("7 changed data=true owners=true")
}

// TestAcquireDeadline: an acquire is answered at its deadline, which counts from its receipt, also
// while the cluster cannot answer. What is granted to its entry later does not stay with a client
// that does not know of it.
func TestAcquireDeadline(t *testing.T) {
	t.Parallel()
	cluster := servertest.Start(t, servertest.RealTime())
	address, _ := startGateway(t, []string{cluster.Addr()})
	cc := dialRaw(t, address)
	path := node(t, cc)
	long := withTimeout(patienceMillis)
	holder, s, other := newSession(t, cc, path, long), newSession(t, cc, path, long), newSession(t, cc, path, long)
	holder.acquire(1, "lock", forever, 0, "", true)
	holder.expect("1 acquired=true")
	s.acquire(1, "lock", forever, 500, "", true)
	s.expect("1 pending")
	other.acquire(1, "lock", forever, forever, "", true)
	other.expect("1 pending")
	cluster.Pause() // its clock runs, and nothing is decided
	s.acquire(2, "behind", 1, forever, "", true)
	s.acquire(3, "behind", 1, 100, "", true) // it waits here for the one before
	got := map[string]bool{text(s.next()): true, text(s.next()): true}
	if !got["1 acquired=false"] || !got["3 acquired=false"] {
		t.Fatal(got)
	}
	holder.release(2, "lock")
	cluster.Resume()
	s.expect("2 acquired=true")
	holder.expect("2 released=true")
	other.expect("1 acquired=true")
	s.describe(&describeSemaphore{ReqId: 4, Name: "behind"})
	s.expect(fmt.Sprintf(`4 described "" 1/%d ephemeral=true watch=false`, uint64(forever)))

	// A newer request on the name decides on the entry, and the deadline of the older one does not.
	s.acquire(5, "lock", forever, 200, "", true)
	s.expect("5 pending")
	s.acquire(6, "lock", forever, forever, "", true)
	s.expect("5 acquired=false ABORTED", "6 pending")
	s.acquire(7, "wait", 1, 300, "", true) // time passes
	s.expect("7 acquired=true")
	other.acquire(2, "wait", forever, 300, "", true)
	other.expect("2 pending", "2 acquired=false")
	other.release(3, "lock")
	other.expect("3 released=true")
	s.expect("6 acquired=true")
}

// TestDeadlineAfterRefusal: a request that is refused leaves the entry to the request before, whose
// deadline takes it out of the queue. The cluster's clock stands still, so nothing else does.
func TestDeadlineAfterRefusal(t *testing.T) {
	t.Parallel()
	cluster := servertest.Start(t)
	address, _ := startGateway(t, []string{cluster.Addr()})
	cc := dialRaw(t, address)
	path := node(t, cc)
	long := withTimeout(patienceMillis)
	holder, s, other := newSession(t, cc, path, long), newSession(t, cc, path, long), newSession(t, cc, path, long)
	holder.acquire(1, "lock", forever, 0, "", true)
	holder.expect("1 acquired=true")
	s.acquire(1, "lock", 1, 2_000, "", true)
	s.expect("1 pending")
	s.acquire(2, "lock", 2, forever, "", true)
	s.expect("2 acquired=false BAD_REQUEST")
	cluster.Pause()
	s.expect("1 acquired=false")
	cluster.Resume()
	holder.release(2, "lock")
	holder.expect("2 released=true")
	other.acquire(1, "lock", forever, 0, "", true)
	other.expect("1 acquired=true")
}

// TestOrderOfSessions: requests of one connection on a name take effect in the order in which they
// came, whichever session has them, and without waiting for answers. They alternate, because gRPC's
// client sends what waits of several streams by turns.
func TestOrderOfSessions(t *testing.T) {
	t.Parallel()
	cc, path := oneGateway(t)
	long := withTimeout(patienceMillis)
	a, b := newSession(t, cc, path, long), newSession(t, cc, path, long)
	for i := range uint64(50) {
		name := fmt.Sprint("lock-", i)
		a.acquire(1, name, 1, forever, name, true)
		b.describe(&describeSemaphore{ReqId: 2, Name: name, IncludeOwners: true})
		a.release(3, name)
		b.acquire(4, name, forever, 0, "", true)
		a.describe(&describeSemaphore{ReqId: 5, Name: name})
		b.release(6, name)
		a.create(7, name, 1, "made")
		b.update(8, name, "new")
		a.describe(&describeSemaphore{ReqId: 9, Name: name})
		all := uint64(forever)
		a.expect("1 acquired=true", "3 released=true",
			fmt.Sprintf(`5 described "" %d/%d ephemeral=true watch=false`, all, all),
			"7 created", `9 described "new" 0/1 ephemeral=false watch=false`)
		b.expect(fmt.Sprintf(`2 described "" 1/%d ephemeral=true watch=false owner(1 %q)`, all, name),
			"4 acquired=true", "6 released=true", "8 updated")
	}
}
