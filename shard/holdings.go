package shard

import (
	"bytes"
	"slices"
)

// namedObject is what processes and tracks have in common: a name, and a bucket.
type namedObject interface {
	objectName() []byte    // never changed in place
	objectBucket() *bucket // the copy of the bucket that it is in
}

func (x *processRecord) objectName() []byte    { return x.name }
func (x *processRecord) objectBucket() *bucket { return x.bucket }
func (x *trackRecord) objectName() []byte      { return x.name }
func (x *trackRecord) objectBucket() *bucket   { return x.bucket }

// holdings are what a session has here besides semaphores. Few sessions have any.
type holdings struct {
	memberships objectsByName[*processRecord] // the processes it is a member of
	tracks      objectsByName[*trackRecord]   // the tracks it has instances in
}

// objectsByName is in order of name.
type objectsByName[T namedObject] []T

func (l objectsByName[T]) find(name []byte) (int, bool) {
	return slices.BinarySearchFunc(l, name, func(x T, name []byte) int { return bytes.Compare(x.objectName(), name) })
}

// add is false if x was there already.
func (l *objectsByName[T]) add(x T) bool {
	i, found := l.find(x.objectName())
	if !found {
		*l = slices.Insert(*l, i, x)
	}
	return !found
}

// remove is false if x was not there.
func (l *objectsByName[T]) remove(x T) bool {
	i, found := l.find(x.objectName())
	if !found {
		return false
	}
	if *l = slices.Delete(*l, i, i+1); len(*l) == 0 {
		*l = nil
	}
	return true
}

func (p *sessionRecord) memberships() objectsByName[*processRecord] {
	if p.holdings == nil {
		return nil
	}
	return p.holdings.memberships
}

func (p *sessionRecord) tracks() objectsByName[*trackRecord] {
	if p.holdings == nil {
		return nil
	}
	return p.holdings.tracks
}

// ensureHoldings returns the session's holdings, made if need be.
func (p *sessionRecord) ensureHoldings() *holdings {
	if p.holdings == nil {
		p.holdings = new(holdings)
	}
	return p.holdings
}

// addMembership and addTrack are false if the session had it already; removeMembership and
// removeTrack if it did not have it.
func (p *sessionRecord) addMembership(x *processRecord) bool {
	return p.ensureHoldings().memberships.add(x)
}
func (p *sessionRecord) addTrack(x *trackRecord) bool { return p.ensureHoldings().tracks.add(x) }

func (p *sessionRecord) removeMembership(x *processRecord) bool {
	return p.holdings != nil && p.holdings.memberships.remove(x) && p.dropEmptyHoldings()
}

func (p *sessionRecord) removeTrack(x *trackRecord) bool {
	return p.holdings != nil && p.holdings.tracks.remove(x) && p.dropEmptyHoldings()
}

// dropEmptyHoldings frees empty holdings. It is true.
func (p *sessionRecord) dropEmptyHoldings() bool {
	if len(p.holdings.memberships)+len(p.holdings.tracks) == 0 {
		p.holdings = nil
	}
	return true
}
