package relay

import "iter"

// side is one of the two lists that a message lies in.
type side uint8

const (
	inbox  side = 0 // of its receiver
	outbox side = 1 // of its sender
)

// messageList is a list in order of arrival. Adding and removing take the same time at any length.
type messageList struct {
	side        side
	first, last *pendingMessage
}

// neighbors are a message's in a list.
type neighbors struct{ before, after *pendingMessage }

func (l *messageList) add(e *pendingMessage) {
	e.neighbors[l.side] = neighbors{before: l.last}
	if l.last == nil {
		l.first = e
	} else {
		l.last.neighbors[l.side].after = e
	}
	l.last = e
}

func (l *messageList) remove(e *pendingMessage) {
	n := e.neighbors[l.side]
	if n.before == nil {
		l.first = n.after
	} else {
		n.before.neighbors[l.side].after = n.after
	}
	if n.after == nil {
		l.last = n.before
	} else {
		n.after.neighbors[l.side].before = n.before
	}
}

// all yields the messages. One that is yielded may be removed meanwhile, and no other.
func (l *messageList) all() iter.Seq[*pendingMessage] {
	return func(yield func(*pendingMessage) bool) {
		for e := l.first; e != nil; {
			after := e.neighbors[l.side].after
			if !yield(e) {
				return
			}
			e = after
		}
	}
}
