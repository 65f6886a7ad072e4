package desired

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Bounds of what is read together.
const (
	MaxBytes   = 4 << 20
	MaxObjects = 10_000
)

// Kind is a kind of object.
type Kind uint8

// The kinds, in the order in which they are changed.
const (
	Node Kind = iota
	Semaphore
	Config
	Limit
	Rollout
	Right // of an identity, at a path
	Trust

	kinds
)

var kindWords = [kinds]string{"node", "semaphore", "config", "limit", "rollout", "right", "trust"}

// String is the kind in a line of output.
func (k Kind) String() string { return kindWords[k] }

// sections are the keys of a node under which objects of the kinds are.
var sections = [kinds]string{Semaphore: "semaphores", Config: "configs", Limit: "limits", Rollout: "rollouts"}

// Key names an object. A node has no Name; a right has the path as its Node and the identity as its
// Name. A trust has a Name alone.
type Key struct {
	Kind       Kind
	Node, Name string
}

// String names the object as a line of output does.
func (k Key) String() string {
	switch k.Kind {
	case Node:
		return "node " + k.Node
	case Right:
		return "right " + k.Name + " " + k.Node
	case Trust:
		return "trust " + k.Name
	}
	return k.Kind.String() + " " + k.Node + " " + k.Name
}

func compareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), strings.Compare(a.Node, b.Node), strings.Compare(a.Name, b.Name))
}

// Setting is one setting of an object.
type Setting struct {
	Key     string
	Value   Value
	Default bool // it is what an object has without it
}

// Object is an object as a document has it, or as the cluster does.
type Object struct {
	Key
	Settings []Setting // all of its kind, in the same order
	Config   any       // the same for those who send requests

	Data    []byte // of a configuration or a semaphore
	HasData bool   // in a document: data is compared; in a cluster: it was read

	At Position // in a document

	// In a cluster.
	Revision uint64
	Uses     string // by whom or what it is in use; empty: by nobody
	Min, Cap uint64 // of a limit: what it is guaranteed, and what it has to guarantee to its children
}

// Document is the union of all documents.
type Document struct {
	Objects    []*Object           // in order of Key
	Absent     []Named             // in order of Key
	Identities map[string]Position // those whose rights are all among Objects
}

// Named is an object that is only named.
type Named struct {
	Key
	At Position
}

// Position is a place in a document.
type Position struct {
	File         string
	Line, Column int
}

// String is for people and editors.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Errorf is an error about this place.
func (p Position) Errorf(format string, args ...any) error {
	return &Error{p, fmt.Sprintf(format, args...)}
}

// Error is a fault in a document.
type Error struct {
	At   Position
	Text string
}

func (e *Error) Error() string { return e.At.String() + ": " + e.Text }

// parentOf is the path one segment shorter; empty for a root.
func parentOf(path string) string { return path[:max(strings.LastIndexByte(path, '/'), 0)] }

// below reports whether a path is below another.
func below(path, other string) bool { return strings.HasPrefix(path, other+"/") }

// check sorts the document, and refuses what its parts say against each other.
func (d *Document) check() error {
	slices.SortStableFunc(d.Objects, func(a, b *Object) int { return compareKeys(a.Key, b.Key) })
	slices.SortStableFunc(d.Absent, func(a, b Named) int { return compareKeys(a.Key, b.Key) })
	for i, o := range d.Objects[min(1, len(d.Objects)):] {
		if first := d.Objects[i]; first.Key == o.Key {
			return o.At.Errorf("%s is named twice, first at %s; keep one", o.Key, first.At)
		}
	}
	for i, a := range d.Absent[min(1, len(d.Absent)):] {
		if first := d.Absent[i]; first.Key == a.Key {
			return a.At.Errorf("%s is absent twice, first at %s; keep one", a.Key, first.At)
		}
	}
	absent := map[Key]Position{}
	for _, a := range d.Absent {
		absent[a.Key] = a.At
	}
	for _, o := range d.Objects {
		if at, ok := absent[o.Key]; ok {
			return at.Errorf("%s is absent here, and is to exist at %s; keep one", o.Key, o.At)
		}
		above := o.Key
		switch o.Kind {
		case Node:
			for above.Node = parentOf(above.Node); above.Node != ""; above.Node = parentOf(above.Node) {
				if at, ok := absent[above]; ok {
					return at.Errorf("%s is absent here, and %s below it is to exist at %s; keep one", above,
						o.Key, o.At)
				}
			}
		case Limit:
			for above.Name = parentOf(above.Name); above.Name != ""; above.Name = parentOf(above.Name) {
				if at, ok := absent[above]; ok {
					return at.Errorf("%s is absent here, and %s below it is to exist at %s; keep one", above,
						o.Key, o.At)
				}
			}
		}
	}
	return nil
}

// find is an object of a sorted document.
func (d *Document) find(k Key) *Object {
	i, ok := slices.BinarySearchFunc(d.Objects, k, func(o *Object, k Key) int { return compareKeys(o.Key, k) })
	if !ok {
		return nil
	}
	return d.Objects[i]
}
