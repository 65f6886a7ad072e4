package protocol

// fields goes through the fields of a message in the order of the wire. Each message describes its
// fields once, in a method of that name, and the pass decides the effect of the description:
//
//   - encode appends each field to out,
//   - decode reads each field from in,
//   - check compares each field with its limits, and keeps the first fault in in.err.
//
// The hottest messages are written by hand, in hot_messages.go.
type fields struct {
	pass    pass
	noSeq   bool   // check: the head has no number, which is said if nothing else is wrong
	out     []byte // encode
	opened  int    // encode: where the array that is open starts in out
	written int    // encode: how many values it has so far
	in      cursor // decode
	reuse   bool   // decode: lists keep their memory
	part    string // check: the part whose fields follow, for sentences
}

type pass uint8

const (
	encode pass = iota
	decode
	check
)

func encoder(b []byte) fields {
	return fields{pass: encode, opened: len(b), out: append(b, fixArray)}
}

func decoder(body []byte) fields {
	return fields{pass: decode, in: cursor{rest: body, left: 1}}
}

func checker() fields { return fields{pass: check} }

// message names a message, for errors. Inside another message it is one of its parts, and has no
// name of its own.
func (f *fields) message(name string) {
	if f.pass == decode && f.in.message == "" {
		f.in.message = name
		f.in.left = f.in.count("body")
	}
}

// body is the encoded message.
func (f *fields) body() []byte {
	f.close()
	return f.out
}

// err is the outcome of decode and check.
func (f *fields) err() error {
	if f.in.err == nil && f.noSeq {
		return Errorf(StatusBadRequest, "sequence number is 0; a session's requests are numbered from 1")
	}
	return f.in.end()
}

// open starts an array whose length is not known yet: one byte is kept for its head.
func (f *fields) open() {
	f.opened, f.written = len(f.out), 0
	f.out = append(f.out, fixArray)
}

// close writes the head of the array. One of 16 values or more needs two more bytes.
func (f *fields) close() {
	if f.written < 16 {
		f.out[f.opened] |= byte(f.written)
		return
	}
	f.out = append(f.out, 0, 0)
	copy(f.out[f.opened+3:], f.out[f.opened+1:])
	f.out[f.opened], f.out[f.opened+1], f.out[f.opened+2] = array16, byte(f.written>>8), byte(f.written)
}

// outer is the state of the array around a part, kept by enter: where it starts and how many values
// it has in encode, and how many are to come in decode.
type outer struct{ opened, values int }

// enter steps into a part, an array of its own, and returns o; leave(o) steps out again.
func (f *fields) enter(field string) outer {
	switch f.pass {
	case encode:
		o := outer{f.opened, f.written + 1}
		f.open()
		return o
	case decode:
		return outer{values: f.in.enter(field)}
	}
	return outer{}
}

func (f *fields) leave(o outer) {
	switch f.pass {
	case encode:
		f.close()
		f.opened, f.written = o.opened, o.values
	case decode:
		f.in.leave(o.values)
	}
}

// trailing steps into the last part of a message or of another part, which is left out when it is
// nil; ok says that there is one.
//
//	if o, ok := trailing(f, "options", &m.Options); ok {
//		m.Options.fields(f)
//		f.leave(o)
//	}
func trailing[T any](f *fields, field string, v **T) (o outer, ok bool) {
	if f.pass == decode {
		*v = nil
		if c := &f.in; c.left == 0 || len(c.rest) > 0 && c.rest[0] == nilByte && c.count(field) == 0 {
			return outer{}, false
		}
		*v = new(T)
	}
	if *v == nil {
		return outer{}, false
	}
	return f.enter(field), true
}

// items is a walk over a list of parts:
//
//	for l := list(f, "owners", 6, &m.Owners); l.next(f); {
//		l.item().fields(f)
//	}
type items[T any] struct {
	list  *[]T
	field string
	least int
	n     int   // items begun
	whole outer // the array around the list
	one   outer // decode: the list around the item
}

// list begins the walk. least is how many fields an item had in the first version of the protocol:
// it bounds the cost of reading a list, whatever its count announces.
func list[T any](f *fields, field string, least int, v *[]T) items[T] {
	l := items[T]{list: v, field: field, least: least}
	switch f.pass {
	case encode:
		l.whole = outer{f.opened, f.written + 1}
		f.out = appendArray(f.out, len(*v))
	case decode:
		kept := (*v)[:0]
		*v = nil
		l.whole.values = f.in.enter(field)
		if f.in.left > 0 {
			n := min(f.in.left, len(f.in.rest)/(least+1))
			if f.reuse && cap(kept) >= n {
				*v = kept
			} else {
				*v = make([]T, 0, n)
			}
		}
	}
	return l
}

// item is the item that next stepped into.
func (l *items[T]) item() *T { return &(*l.list)[l.n-1] }

// next steps out of an item and into the one behind it. At the end it steps out of the list.
func (l *items[T]) next(f *fields) bool {
	switch f.pass {
	case encode:
		if l.n > 0 {
			f.close()
		}
		if l.n == len(*l.list) {
			f.opened, f.written = l.whole.opened, l.whole.values
			return false
		}
		f.open()
	case decode:
		if l.n > 0 {
			f.in.leave(l.one.values)
		}
		if f.in.err != nil || f.in.left == 0 {
			f.in.leave(l.whole.values)
			return false
		}
		l.one.values = f.in.enter(l.field)
		if f.in.err == nil && f.in.left < l.least {
			f.in.fail(l.field, "a list of whole items: one has too few fields")
		}
		var v T
		*l.list = append(*l.list, v)
	default:
		if l.n == len(*l.list) {
			return false
		}
	}
	l.n++
	return true
}

func (f *fields) uint(field string, v *uint64) {
	switch f.pass {
	case encode:
		if *v < fixMap {
			f.out = append(f.out, byte(*v))
		} else {
			f.out = appendUint(f.out, *v)
		}
		f.written++
	case decode:
		if c := &f.in; c.left > 0 && len(c.rest) > 0 && c.rest[0] < fixMap {
			*v, c.rest, c.left = uint64(c.rest[0]), c.rest[1:], c.left-1
		} else {
			*v = c.uint(field)
		}
	}
}

func (f *fields) uint32(field string, v *uint32) {
	switch f.pass {
	case encode:
		f.out = appendUint(f.out, uint64(*v))
		f.written++
	case decode:
		*v = f.in.uint32(field)
	}
}

// small is a number of 8 bits, such as an enum.
func small[T ~uint8](f *fields, field string, v *T) {
	switch f.pass {
	case encode:
		f.out = appendUint(f.out, uint64(*v))
		f.written++
	case decode:
		*v = T(f.in.uint8(field))
	}
}

func (f *fields) bool(field string, v *bool) {
	switch f.pass {
	case encode:
		f.out = appendBool(f.out, *v)
		f.written++
	case decode:
		*v = f.in.bool(field)
	}
}

func (f *fields) bytes(field string, v *[]byte) {
	switch f.pass {
	case encode:
		f.out = appendBin(f.out, *v)
		f.written++
	case decode:
		*v = f.in.bytes(field)
	}
}

func (f *fields) str(field string, v *string) {
	switch f.pass {
	case encode:
		f.out = appendStr(f.out, *v)
		f.written++
	case decode:
		*v = f.in.str(field)
	}
}

func (f *fields) uints(field string, v *[]uint64) {
	switch f.pass {
	case encode:
		f.out = appendArray(f.out, len(*v))
		for _, n := range *v {
			f.out = appendUint(f.out, n)
		}
		f.written++
	case decode:
		*v = f.in.uints(field)
	}
}

func (f *fields) strs(field string, v *[]string) {
	switch f.pass {
	case encode:
		f.out = appendArray(f.out, len(*v))
		for _, s := range *v {
			f.out = appendStr(f.out, s)
		}
		f.written++
	case decode:
		*v = f.in.strs(field)
	}
}
