package core

import "github.com/signalbox-dev/signalbox/protocol"

// A hold that would have a bound is refused to a client that does not say that it knows bounds. So
// plain acquires ask for nothing; one that is refused is asked for again, and the name is remembered.

func (a *Acquire) knowsBounds() bool {
	return a.Msg.Options != nil && a.Msg.Options.Flags&protocol.KnowsBounds != 0
}

// sayKnows has the acquire say that it knows bounds. Options are the caller's, and are not changed.
func (a *Acquire) sayKnows() {
	var o protocol.AcquireOptions
	if a.Msg.Options != nil {
		o = *a.Msg.Options
	}
	o.Flags |= protocol.KnowsBounds
	a.Msg.Options = &o
}

// waitedLong reports whether the wait lasted longer than the hold does. The reading of its beginning
// is too coarse then, or there is none: the server is asked for another one.
func (a *Acquire) waitedLong() bool {
	g := a.reply.Grant
	if !a.later || g == nil || g.Until == 0 {
		return false
	}
	return !a.place.ok || g.Now-min(g.Now, a.place.now) > g.Until-min(g.Until, g.Now)
}

// reading is that of the answer to the acquire: of a result, that of the answer before it.
func (a *Acquire) reading() reading {
	if a.later {
		return a.place
	}
	return readingOf(&a.Request, a.reply.Grant)
}

// maxBoundedNames is how many names are remembered; then it begins again.
const maxBoundedNames = 10_000

// boundedNames are the names of semaphores, by node, that were found to have a longest hold.
type boundedNames map[boundedName]struct{}

type boundedName struct {
	node uint64
	name string
}

func (x boundedNames) has(node uint64, name string) bool {
	if len(x) == 0 {
		return false
	}
	_, ok := x[boundedName{node, name}]
	return ok
}

func (x *boundedNames) add(node uint64, name string) {
	if *x == nil || len(*x) >= maxBoundedNames {
		*x = make(boundedNames)
	}
	(*x)[boundedName{node, name}] = struct{}{}
}
