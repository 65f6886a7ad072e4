// Package fieldtest checks, for tests, that a record has every field of a state: a change of a
// field changes the record, and what is read from the record has the field's value. A new field
// fails the test until it is in the record, or in the list of those that need not be.
//
// A field that a record lacks is lost at the next restart or move, and random histories rarely show
// it. So tests walk the fields:
//
//	law := &fieldtest.Law{Derived: map[string]string{"Process.cached": "made from the members"}, Write: write, Read: read}
//	law.Look(t, state) // for many states
//	law.Whole(t)
//
// Look changes one field at a time. What is read from the record must have the new value, or Read
// must refuse the record, because there can be no such state. Whole fails for a field of which no
// value other than zero was ever read back. Of a long list only the elements at its ends are looked
// at. A field that decides where a record goes is in Keys.
package fieldtest

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// Law is what a record must keep. Fields are named "type.field".
type Law struct {
	// Derived says of each field that is not in the record why it need not be.
	Derived map[string]string
	// Keys are the fields that decide where a record goes: with another value it is found
	// elsewhere, or nowhere.
	Keys map[string]bool
	// Write gives the record of the state that Look was called with, as the state is now.
	Write func() []byte
	// Read gives a pointer to the state of a record, of the same type as Look was called with.
	// An error says that there can be no such state.
	Read func(record []byte) (any, error)

	walked map[string]bool // there is such a field
	kept   map[string]bool // a value other than zero was read back
	open   map[uintptr]bool
}

// enough elements of a list are looked at from either end.
const enough = 2

// step leads from a value to a part of it: a field, an element, or the value of a key.
type step struct {
	index int
	key   reflect.Value
}

// Look walks all fields of the state that a pointer points to, changes one at a time to a value
// that it does not have, and compares what is written and read. It leaves the state as it was.
func (l *Law) Look(t testing.TB, state any) {
	t.Helper()
	if l.walked == nil {
		l.walked, l.kept = map[string]bool{}, map[string]bool{}
	}
	l.open = map[uintptr]bool{}
	plain := bytes.Clone(l.Write())
	back, err := l.Read(bytes.Clone(plain))
	if err != nil {
		t.Fatalf("the record cannot be read: %v", err)
	}
	l.walk(t, reflect.ValueOf(state), reflect.ValueOf(back), "", nil, plain)
}

// Walked reports whether a state that was looked at has the field.
func (l *Law) Walked(field string) bool { return l.walked[field] }

// Whole fails the test for fields that were nowhere read back, and for names in Derived that no
// field has.
func (l *Law) Whole(t testing.TB) {
	t.Helper()
	for key := range l.walked {
		if l.Derived[key] == "" && !l.kept[key] {
			t.Errorf("%s: no value other than zero was read back", key)
		}
	}
	for key := range l.Derived {
		if !l.walked[key] {
			t.Errorf("%s: there is no such field, or no state has one", key)
		}
	}
}

// walk looks at a value and at the same place of what was read back.
func (l *Law) walk(t testing.TB, v, back reflect.Value, name string, path []step, plain []byte) {
	t.Helper()
	switch {
	case v.Kind() == reflect.Pointer:
		if v.IsNil() || l.open[v.Pointer()] {
			return
		}
		l.open[v.Pointer()] = true
		if back.IsNil() {
			t.Errorf("%s: it is not read back", name)
			return
		}
		l.walk(t, v.Elem(), back.Elem(), name, path, plain)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			key := v.Type().Name() + "." + v.Type().Field(i).Name
			l.walked[key] = true
			if l.Derived[key] != "" {
				continue
			}
			f := settable(v.Field(i))
			if nested(f.Type()) && f.Kind() != reflect.Slice && f.Kind() != reflect.Map {
				l.kept[key] = true // its own fields are looked at
			}
			l.walk(t, f, settable(back.Field(i)), key, append(slices.Clone(path), step{index: i}), plain)
		}
	case v.Kind() == reflect.Slice && nested(v.Type().Elem()):
		if v.Len() == 0 {
			return
		}
		if v.Len() != back.Len() {
			t.Errorf("%s: %d of them are read back as %d", name, v.Len(), back.Len())
			return
		}
		l.kept[name] = true
		l.change(t, v, v.Slice(0, v.Len()-1), name, nil, plain)
		for i := range v.Len() {
			if i < enough || i >= v.Len()-enough {
				l.walk(t, v.Index(i), back.Index(i), name, append(slices.Clone(path), step{index: i}), plain)
			}
		}
	case v.Kind() == reflect.Map && v.Type().Elem().Kind() == reflect.Pointer:
		if v.Len() != back.Len() {
			t.Errorf("%s: %d of them are read back as %d", name, v.Len(), back.Len())
			return
		}
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		for i, key := range keys {
			l.kept[name] = true
			if i >= 2*enough {
				return
			}
			if o := back.MapIndex(key); !o.IsValid() {
				t.Errorf("%s: %v is not read back", name, key)
			} else {
				l.walk(t, v.MapIndex(key), o, name, append(slices.Clone(path), step{key: key}), plain)
			}
		}
	default:
		if !same(v, back) {
			t.Errorf("%s: %v is read back as %v", name, v, back)
		} else if !v.IsZero() {
			l.kept[name] = true
		}
		next, err := another(v)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		l.change(t, v, next, name, path, plain)
	}
}

// change gives a value another one for the time that it takes to write and read.
func (l *Law) change(t testing.TB, v, next reflect.Value, name string, path []step, plain []byte) {
	t.Helper()
	was := reflect.New(v.Type()).Elem()
	was.Set(v)
	v.Set(next)
	defer v.Set(was)
	b := bytes.Clone(l.Write())
	if bytes.Equal(b, plain) {
		t.Errorf("%s: the record does not change with it", name)
		return
	}
	state, err := l.Read(b)
	if err != nil || path == nil {
		return // there can be no such state, and it was noticed; or a list, whose elements are looked at
	}
	back, ok := follow(reflect.ValueOf(state), path)
	switch {
	case !ok || l.Keys[name]: // it has another place now
	case !same(v, back):
		t.Errorf("%s: %v is read back as %v", name, v, back)
	default:
		l.kept[name] = true
	}
}

// follow finds the place that a path leads to.
func follow(v reflect.Value, path []step) (reflect.Value, bool) {
	for _, s := range path {
		for v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return v, false
			}
			v = v.Elem()
		}
		switch v.Kind() {
		case reflect.Struct:
			v = settable(v.Field(s.index))
		case reflect.Map:
			if v = v.MapIndex(s.key); !v.IsValid() {
				return v, false
			}
		default:
			if s.index >= v.Len() {
				return v, false
			}
			v = v.Index(s.index)
		}
	}
	return v, true
}

// nested reports whether a value has fields, or elements with fields, which are looked at.
func nested(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct:
		return true
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return nested(t.Elem())
	}
	return false
}

// settable is the field even if it is not exported.
func settable(v reflect.Value) reflect.Value {
	return reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem()
}

// same compares; an empty list is a missing one.
func same(a, b reflect.Value) bool {
	if a.Kind() == reflect.Slice && a.Len() == 0 && b.Len() == 0 {
		return true
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

// another is a value that is not v.
func another(v reflect.Value) (reflect.Value, error) {
	next := reflect.New(v.Type()).Elem()
	next.Set(v)
	switch v.Kind() {
	case reflect.Bool:
		next.SetBool(!v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		next.SetInt(v.Int() + 1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		next.SetUint(v.Uint() + 1)
	case reflect.String:
		next.SetString(v.String() + "x")
	case reflect.Array:
		for i := range v.Len() {
			e, err := another(v.Index(i))
			if err != nil {
				return next, err
			}
			next.Index(i).Set(e)
		}
	case reflect.Slice:
		e, err := another(reflect.New(v.Type().Elem()).Elem())
		if err != nil {
			return next, err
		}
		next.Set(reflect.Append(v.Slice3(0, v.Len(), v.Len()), e))
	default:
		return next, fmt.Errorf("a field of type %v: say in fieldtest how it is changed", v.Type())
	}
	return next, nil
}
