package ratelimit

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Bounds of a tree.
const (
	MaxResources    = 10_000
	MaxParticipants = 100_000
)

// What counts against a node's quota of bytes.
const (
	resourceBytes    = 160 // of a resource, beside its texts
	participantBytes = 96
	deletedBytes     = 64 // of a deleted path, beside its text
)

// Tree is the part of a rate limit that is in the log.
type Tree struct {
	clock        uint64     // log time of the latest call. Invariant: nothing in the tree is later
	revision     uint64     // of the latest change of a resource. Invariant: not below any resource's
	resources    []resource // in order of path, the root first; none: the tree is deleted
	participants map[uint64]*participant
	lastLeft     uint64 // when a session left last; it may use its lease for a while; 0: none did

	// The lease that was in force until formerUntil, less its own length, if it was longer than
	// that of now.
	formerLease, formerUntil uint64

	deleted []deletedPath // in order of path

	forgetAt  uint64 // when the last deleted path is forgotten; derived, as is what follows
	textBytes uint64 // of all resources and deleted paths
}

// resource is a node of the tree.
type resource struct {
	path     string
	revision uint64 // of its last change
	created  uint64
	again    bool   // one of its path had been deleted not long before: its bucket began empty
	refill   uint64 // the longest time, in ms, in which any of its configurations fills an empty bucket
	config   protocol.LimitConfig
}

// deletedPath remembers a deleted resource, which may have given out its burst. A new one of its
// path begins with an empty bucket until the old one would be full again. Otherwise each deletion
// would give the burst once more.
type deletedPath struct {
	path   string
	from   uint64 // when no client can use a lease of the resource any more
	refill uint64 // of the resource
}

func (d *deletedPath) until() uint64 { return d.from + d.refill }

// participant is a session that takes part. It was attached under the epoch when it joined: another
// attach may be of another process, which knows nothing of earlier leases.
type participant struct {
	session, epoch uint64
	joined         uint64
}

// New makes a tree of one resource. Its revision is former+1; former is at least the highest of a
// deleted tree of the same name.
func New(now, former uint64, root string, config protocol.LimitConfig) (*Tree, error) {
	t := &Tree{participants: map[uint64]*participant{}}
	if _, err := t.Create(now, former, root, config); err != nil {
		return nil, err
	}
	return t, nil
}

func (t *Tree) enter(now uint64) { t.clock = max(t.clock, min(now, maxTime), 1) }

// maxTime bounds times, so that sums of times do not overflow.
const maxTime = 1 << 62

// Deleted reports whether the root is deleted. Such a tree is kept while sessions may use leases of
// it, and while it remembers deleted paths: a new tree of its name must not give their rates and
// bursts out again.
func (t *Tree) Deleted() bool { return len(t.resources) == 0 }

// Forget drops deleted paths whose time is over. It reports whether the tree can go.
func (t *Tree) Forget(now uint64) bool {
	t.enter(now)
	t.deleted = slices.DeleteFunc(t.deleted, func(d deletedPath) bool {
		if d.until() > t.clock {
			return false
		}
		t.textBytes -= uint64(len(d.path))
		return true
	})
	t.findForgetAt()
	return t.Deleted() && len(t.deleted) == 0 && t.clock >= t.leasesEnd()
}

// Next returns when Forget has something to do.
func (t *Tree) Next() (at uint64, ok bool) {
	if t.Deleted() {
		return max(t.leasesEnd(), t.forgetAt), true
	}
	return t.forgetAt, t.forgetAt > 0
}

func (t *Tree) findForgetAt() {
	t.forgetAt = 0
	for i := range t.deleted {
		t.forgetAt = max(t.forgetAt, t.deleted[i].until())
	}
}

// leasesEnd is when the leases of sessions that are not participants any more have ended.
func (t *Tree) leasesEnd() uint64 {
	if t.lastLeft == 0 {
		return 0
	}
	return t.lastLeft + max(t.Lease(), t.formerLease)
}

// Lease is the length of leases, in ms; 0 of a deleted tree.
func (t *Tree) Lease() uint64 {
	if t.Deleted() {
		return 0
	}
	return cmp.Or(t.resources[0].config.Lease, protocol.DefaultLimitLease)
}

// Root is the name of the tree; empty if it is deleted.
func (t *Tree) Root() string {
	if t.Deleted() {
		return ""
	}
	return t.resources[0].path
}

// Revision is that of the latest change of a resource.
func (t *Tree) Revision() uint64 { return t.revision }

// SkipRevisions moves the revision on to what next gives for it, in a tree that was read from a
// backup: a revision that was given out after the backup must not name another configuration. Sessions
// that joined after the backup may have used any resource, so none of them counts as unused.
func (t *Tree) SkipRevisions(next func(uint64) uint64) {
	t.revision = next(t.revision)
	t.lastLeft = t.clock
}

func (t *Tree) find(path string) (i int, ok bool) {
	return slices.BinarySearchFunc(t.resources, path, func(r resource, path string) int { return strings.Compare(r.path, path) })
}

// parentPath is the path of a resource's parent; empty of a root.
func parentPath(path string) string { return path[:max(strings.LastIndexByte(path, '/'), 0)] }

// children are the resources directly below one, in order of path.
func (t *Tree) children(path string, yield func(*resource)) {
	i, _ := t.find(path + "/")
	for ; i < len(t.resources) && strings.HasPrefix(t.resources[i].path, path+"/"); i++ {
		if r := &t.resources[i]; parentPath(r.path) == path {
			yield(r)
		}
	}
}

func (t *Tree) hasChildren(path string) bool {
	i, _ := t.find(path + "/")
	return i < len(t.resources) && strings.HasPrefix(t.resources[i].path, path+"/")
}

// checkConfig refuses a configuration that does not fit to the tree. is is nil for a new resource.
func (t *Tree) checkConfig(path string, is *resource, c *protocol.LimitConfig) error {
	if err := c.Validate(); err != nil {
		return err
	}
	root := parentPath(path) == ""
	switch {
	case root && c.Unlimited:
		return protocol.Errorf(protocol.StatusBadRequest, "resource %s is a root and has no rate; give it one", path)
	case !root && c.Lease != 0:
		return protocol.Errorf(protocol.StatusBadRequest, "resource %s is not a root and has no lease of its own; set it at %s",
			path, protocol.LimitRoot(path))
	}
	sum := uint64(0)
	t.children(path, func(r *resource) { sum += r.config.Min })
	if most := guaranteed(path, c); sum > most {
		return protocol.Errorf(protocol.StatusBadRequest,
			"the children of %s have guarantees of %s, more than the %s that it has itself; lower their min first",
			path, protocol.LimitRate(sum), protocol.LimitRate(most))
	}
	if root {
		return nil
	}
	i, ok := t.find(parentPath(path))
	if !ok {
		return protocol.Errorf(protocol.StatusNotFound, "resource %s has no parent; create %s first", path, parentPath(path))
	}
	parent := &t.resources[i]
	sum = c.Min
	t.children(parent.path, func(r *resource) {
		if r != is {
			sum += r.config.Min
		}
	})
	if most := guaranteed(parent.path, &parent.config); sum > most {
		return protocol.Errorf(protocol.StatusBadRequest,
			"the children of %s would have guarantees of %s, more than the %s that it has itself; lower the min",
			parent.path, protocol.LimitRate(sum), protocol.LimitRate(most))
	}
	return nil
}

// guaranteed is what a resource has to give to its children as guarantees.
func guaranteed(path string, c *protocol.LimitConfig) uint64 {
	if parentPath(path) == "" {
		return c.Rate
	}
	return c.Min
}

// Create adds a resource. former is at least the highest revision of a deleted tree of the name. It
// returns the resource's revision.
func (t *Tree) Create(now, former uint64, path string, c protocol.LimitConfig) (revision uint64, err error) {
	if err := protocol.ValidateLimitPath([]byte(path)); err != nil {
		return 0, err
	}
	i, ok := t.find(path)
	switch {
	case !t.Deleted() && protocol.LimitRoot(path) != t.Root():
		return 0, protocol.Errorf(protocol.StatusBadRequest, "resource %s is not below %s", path, t.Root())
	case ok:
		return 0, protocol.Errorf(protocol.StatusAlreadyExists, "resource %s exists; alter it, or choose another path", path)
	}
	if err := t.checkConfig(path, nil, &c); err != nil {
		return 0, err
	}
	t.Forget(now)
	r := resource{path: path, created: t.clock, refill: t.refill(path, &c), config: c}
	d, wasDeleted := t.findDeleted(path)
	switch {
	case wasDeleted:
		r.again, r.refill = true, max(r.refill, t.deleted[d].refill)
		t.deleted = slices.Delete(t.deleted, d, d+1)
		t.findForgetAt()
		t.textBytes -= uint64(len(path))
	case len(t.resources)+len(t.deleted) >= MaxResources:
		return 0, protocol.Errorf(protocol.StatusPreconditionFailed,
			"the tree has %d resources and %d that were just deleted, and may have %d; wait until these have refilled, or make another tree",
			len(t.resources), len(t.deleted), MaxResources)
	}
	t.revision = max(t.revision, former) + 1
	r.revision = t.revision
	t.resources = slices.Insert(t.resources, i, r)
	t.textBytes += r.textBytes()
	return t.revision, nil
}

// Alter replaces the configuration of a resource that has this revision; 0 is any. It returns the
// new revision.
func (t *Tree) Alter(now uint64, path string, revision uint64, c protocol.LimitConfig) (uint64, error) {
	r, err := t.expect(path, revision)
	if err != nil {
		return 0, err
	}
	if err := t.checkConfig(path, r, &c); err != nil {
		return 0, err
	}
	t.enter(now)
	former := t.Lease()
	t.revision++
	t.textBytes -= r.textBytes()
	r.config, r.revision, r.refill = c, t.revision, max(r.refill, t.refill(path, &c))
	t.textBytes += r.textBytes()
	t.leaseChanged(former)
	return t.revision, nil
}

// leaseChanged remembers that leases of another length may be in use.
func (t *Tree) leaseChanged(former uint64) {
	if t.clock >= t.formerUntil {
		t.formerLease = 0
	}
	if former > t.Lease() {
		t.formerLease = max(t.formerLease, former)
		t.formerUntil = t.clock + t.formerLease
	}
}

func (t *Tree) expect(path string, revision uint64) (*resource, error) {
	i, ok := t.find(path)
	if !ok {
		return nil, protocol.Refuse(protocol.RefusalNoLimit, "there is no resource %s", path)
	}
	if r := &t.resources[i]; revision == 0 || revision == r.revision {
		return r, nil
	}
	return nil, protocol.Refuse(protocol.RefusalOtherVersion,
		"resource %s has revision %d, not %d: read it again, then change it", path, t.resources[i].revision, revision)
}

// Delete removes a resource that has no children, at this revision; 0 is any. With the root all
// sessions leave.
func (t *Tree) Delete(now uint64, path string, revision uint64) error {
	if _, err := t.expect(path, revision); err != nil {
		return err
	}
	if t.hasChildren(path) {
		return protocol.Refuse(protocol.RefusalHasChildren, "resource %s has children; delete them first", path)
	}
	t.Forget(now)
	former := t.Lease()
	i, _ := t.find(path)
	d, _ := t.findDeleted(path)
	t.deleted = slices.Insert(t.deleted, d, deletedPath{path, t.unusedFrom(), t.resources[i].refill})
	t.findForgetAt()
	t.textBytes -= uint64(len(t.resources[i].config.Foreign))
	t.resources = slices.Delete(t.resources, i, i+1)
	t.revision++
	if t.Deleted() {
		t.leaseChanged(former)
		if len(t.participants) > 0 {
			t.lastLeft = t.clock
			clear(t.participants)
		}
	}
	return nil
}

func (t *Tree) findDeleted(path string) (i int, ok bool) {
	return slices.BinarySearchFunc(t.deleted, path, func(d deletedPath, path string) int { return strings.Compare(d.path, path) })
}

// unusedFrom returns when the present leases have ended, of a resource that gets no more of them.
func (t *Tree) unusedFrom() uint64 {
	if len(t.participants) == 0 {
		return max(t.clock, t.leasesEnd())
	}
	return t.clock + max(t.Lease(), t.formerLease)
}

// refill returns the ms in which a resource with this configuration fills an empty bucket.
func (t *Tree) refill(path string, c *protocol.LimitConfig) uint64 {
	rate := uint64(maxRate)
	if !c.Unlimited {
		rate = c.Rate
	}
	for p := parentPath(path); p != ""; p = parentPath(p) {
		if i, _ := t.find(p); !t.resources[i].config.Unlimited {
			rate = min(rate, t.resources[i].config.Rate)
		}
	}
	if rate == 0 { // it admits nobody
		return 0
	}
	return max(c.BurstOrDefault(), (1_000_000+rate-1)/rate) // a burst is a unit at least
}

// Join has a session take part. Joining again under the same epoch changes nothing. Under another
// epoch it may be another process, unless again says that it is the one that took part before.
func (t *Tree) Join(now, session, epoch uint64, again bool) error {
	if t.Deleted() {
		return protocol.Refuse(protocol.RefusalNoLimit, "there is no such rate limit; create it first")
	}
	p := t.participants[session]
	switch {
	case p == nil && len(t.participants) >= MaxParticipants:
		return protocol.Errorf(protocol.StatusOverloaded,
			"%d sessions take part in the rate limit, the most that may; use a limit for each part of the fleet", MaxParticipants)
	case p != nil && p.epoch == epoch:
		return nil
	}
	t.enter(now)
	if p != nil && again {
		p.epoch = epoch
		return nil
	}
	if p != nil {
		t.lastLeft = t.clock // of sessions attached under the former epoch
	}
	t.participants[session] = &participant{session, epoch, t.clock}
	return nil
}

// Leave ends a session's part. It reports whether there was one.
func (t *Tree) Leave(now, session uint64) bool {
	if t.participants[session] == nil {
		return false
	}
	t.enter(now)
	delete(t.participants, session)
	t.lastLeft = t.clock
	return true
}

// Joined returns the attach epoch under which a session takes part.
func (t *Tree) Joined(session uint64) (epoch uint64, ok bool) {
	if p := t.participants[session]; p != nil {
		return p.epoch, true
	}
	return 0, false
}

// Sessions are the participants, in order.
func (t *Tree) Sessions() []uint64 { return slices.Sorted(maps.Keys(t.participants)) }

// NumParticipants and NumResources are counts.
func (t *Tree) NumParticipants() int { return len(t.participants) }

// NumResources is how many resources the tree has.
func (t *Tree) NumResources() int { return len(t.resources) }

// Resource returns the configuration of a resource.
func (t *Tree) Resource(path string) (c protocol.LimitConfig, revision uint64, ok bool) {
	i, ok := t.find(path)
	if !ok {
		return c, 0, false
	}
	return t.resources[i].config, t.resources[i].revision, true
}

// Resources yields the resources from a path on, in order of path.
func (t *Tree) Resources(from string, yield func(path string, revision uint64, c *protocol.LimitConfig) bool) {
	for i, _ := t.find(from); i < len(t.resources); i++ {
		if r := &t.resources[i]; !yield(r.path, r.revision, &r.config) {
			return
		}
	}
}

// Bytes is what the tree counts against its node's quota.
func (t *Tree) Bytes() uint64 {
	return t.textBytes + uint64(len(t.resources))*resourceBytes + uint64(len(t.deleted))*deletedBytes +
		uint64(len(t.participants))*participantBytes
}

// textBytes is what counts of a resource by its length.
func (r *resource) textBytes() uint64 { return uint64(len(r.path) + len(r.config.Foreign)) }

// ResourceBytes and ParticipantBytes are what one more counts.
func ResourceBytes(path []byte, c *protocol.LimitConfig) uint64 {
	return resourceBytes + uint64(len(path)+len(c.Foreign))
}

// ParticipantBytes is what one more participant counts.
func ParticipantBytes() uint64 { return participantBytes }
