package shard

import (
	"bytes"
	"slices"
)

// named is what processes and tracks have in common: a name in a bucket, which parties belong to.
type named interface {
	label() []byte // never changed in place
	in() *bucket   // the copy of the bucket that it is in
}

func (x *proc) label() []byte  { return x.name }
func (x *proc) in() *bucket    { return x.bucket }
func (x *track) label() []byte { return x.name }
func (x *track) in() *bucket   { return x.bucket }

// belongings are what a party has here besides semaphores' entries. Few parties have any.
type belongings struct {
	places roster[*proc]  // the processes it is a member of
	tracks roster[*track] // the tracks it has instances in
}

// roster is in order of name.
type roster[T named] []T

func (l roster[T]) find(name []byte) (int, bool) {
	return slices.BinarySearchFunc(l, name, func(x T, name []byte) int { return bytes.Compare(x.label(), name) })
}

// add says whether x was not there.
func (l *roster[T]) add(x T) bool {
	i, found := l.find(x.label())
	if !found {
		*l = slices.Insert(*l, i, x)
	}
	return !found
}

// remove says whether x was there.
func (l *roster[T]) remove(x T) bool {
	i, found := l.find(x.label())
	if !found {
		return false
	}
	if *l = slices.Delete(*l, i, i+1); len(*l) == 0 {
		*l = nil
	}
	return true
}

func (p *party) places() roster[*proc] {
	if p.more == nil {
		return nil
	}
	return p.more.places
}

func (p *party) tracks() roster[*track] {
	if p.more == nil {
		return nil
	}
	return p.more.tracks
}

// owning is the party's belongings, to put something in.
func (p *party) owning() *belongings {
	if p.more == nil {
		p.more = new(belongings)
	}
	return p.more
}

// addPlace and addTrack say whether it was not the party's; removePlace and removeTrack whether it was.
func (p *party) addPlace(x *proc) bool  { return p.owning().places.add(x) }
func (p *party) addTrack(x *track) bool { return p.owning().tracks.add(x) }

func (p *party) removePlace(x *proc) bool {
	return p.more != nil && p.more.places.remove(x) && p.tidy()
}

func (p *party) removeTrack(x *track) bool {
	return p.more != nil && p.more.tracks.remove(x) && p.tidy()
}

// tidy lets go of an empty set of belongings. It is true.
func (p *party) tidy() bool {
	if len(p.more.places)+len(p.more.tracks) == 0 {
		p.more = nil
	}
	return true
}
