package core

// list is requests in the order in which they wait. A request is in one list at a time.
type list struct{ first, last *Request }

func (l *list) empty() bool { return l.first == nil }

func (l *list) pushBack(r *Request) {
	r.in, r.prev = l, l.last
	if l.last != nil {
		l.last.next = r
	} else {
		l.first = r
	}
	l.last = r
}

func (l *list) pushFront(r *Request) {
	r.in, r.next = l, l.first
	if l.first != nil {
		l.first.prev = r
	} else {
		l.last = r
	}
	l.first = r
}

// popFront takes the first one, or returns nil.
func (l *list) popFront() *Request {
	r := l.first
	if r != nil {
		r.unlist()
	}
	return r
}

// drain empties the list, in order. What is put back meanwhile does not come again.
func (l *list) drain(each func(*Request)) {
	old := *l
	*l = list{}
	for r := old.first; r != nil; r = r.next {
		r.in = &old
	}
	for r := old.popFront(); r != nil; r = old.popFront() {
		each(r)
	}
}

// each visits all. The present one may be taken out meanwhile.
func (l *list) each(visit func(*Request)) {
	for r := l.first; r != nil; {
		next := r.next
		visit(r)
		r = next
	}
}

// unlist takes a request from the list that it is in, if any.
func (r *Request) unlist() {
	l := r.in
	if l == nil {
		return
	}
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		l.first = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	} else {
		l.last = r.prev
	}
	r.in, r.prev, r.next = nil, nil, nil
}

// sessionRequests are the requests of a session that were sent, or were to be, and are not over, in
// that order.
type sessionRequests struct{ first, last *Request }

func (x *sessionRequests) add(r *Request) {
	if r.listed {
		return
	}
	r.listed = true
	if r.before = x.last; x.last != nil {
		x.last.behind = r
	} else {
		x.first = r
	}
	x.last = r
}

func (x *sessionRequests) remove(r *Request) {
	if !r.listed {
		return
	}
	if r.before != nil {
		r.before.behind = r.behind
	} else {
		x.first = r.behind
	}
	if r.behind != nil {
		r.behind.before = r.before
	} else {
		x.last = r.before
	}
	r.listed, r.before, r.behind = false, nil, nil
}
