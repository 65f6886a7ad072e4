package protocol

import (
	"bytes"
	"reflect"
	"slices"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// TestAgainstOracle: for generated messages of every kind, a general msgpack library reads what
// this package writes, and this package reads what the library writes in its compact and in its
// wide form.
func TestAgainstOracle(t *testing.T) {
	form.Checks(t, form.Of(30, 100)) // of each kind
	seen := map[string]bool{}
	for _, e := range allMessages() {
		if seen[e.typeName()] {
			continue
		}
		seen[e.typeName()] = true
		t.Run(e.typeName(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { checkAgainstOracle(t, e) })
		})
	}
}

func checkAgainstOracle(t *rapid.T, e messageCase) {
	m := e.fresh()
	draw(t, reflect.ValueOf(m).Elem())

	if isWhole(reflect.ValueOf(m).Elem()) && !leavesOutLast(m) {
		theirs := e.fresh()
		body := AppendBody(nil, m)
		if err := msgpack.Unmarshal(body, theirs); err != nil {
			t.Fatalf("the oracle refuses % x: %v", body, err)
		}
		dropEmpty(reflect.ValueOf(theirs).Elem())
		if !reflect.DeepEqual(theirs, m) {
			t.Fatalf("the oracle reads %+v, want %+v", theirs, m)
		}
	}

	for _, compact := range []bool{true, false} {
		var buf bytes.Buffer
		enc := msgpack.NewEncoder(&buf)
		enc.UseArrayEncodedStructs(true)
		enc.UseCompactInts(compact)
		if err := enc.Encode(m); err != nil {
			t.Fatal(err)
		}
		if err := CheckBody(buf.Bytes()); err != nil {
			t.Fatalf("the oracle's bytes % x: %v", buf.Bytes(), err)
		}
		ours := e.fresh()
		if err := DecodeBody(ours, buf.Bytes()); err != nil {
			t.Fatalf("the oracle's bytes % x: %v", buf.Bytes(), err)
		}
		if !reflect.DeepEqual(ours, m) {
			t.Fatalf("read %+v, want %+v", ours, m)
		}
	}
}

// leavesOutLast reports whether a message leaves out its last field, a number, flag or text without a
// value.
func leavesOutLast(m Message) bool {
	switch x := m.(type) {
	case *Create:
		return x.Reason == ""
	case *Update:
		return x.Reason == ""
	case *Delete:
		return x.Expected == 0
	case *Resize:
		return x.Expected == 0
	case *LimitCreate:
		return x.Reason == ""
	case *LimitAlter:
		return x.Reason == ""
	case *LimitDelete:
		return x.Reason == ""
	case *Release:
		return x.Bound == 0
	case *ReleaseReply:
		return !x.Transferred
	case *LeaseLost:
		return x.Cause == 0
	case *SessionDescribe:
		return len(x.CreateID) == 0
	case *SessionStart:
		return x.Parent == 0
	case *SessionInfo:
		return x.Parent == 0
	case *SessionListReply:
		return slices.ContainsFunc(x.Sessions, func(s SessionInfo) bool { return s.Parent == 0 })
	}
	return false
}

// isWhole reports whether no part is left out. The oracle reads no struct that lacks fields.
func isWhole(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer:
		return !v.IsNil() && isWhole(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if !isWhole(v.Field(i)) {
				return false
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			if !isWhole(v.Index(i)) {
				return false
			}
		}
	}
	return true
}

// draw fills a value at random. Empty byte fields and lists are nil, as decoders leave them.
func draw(t *rapid.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			draw(t, v.Field(i))
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			n := rapid.SampledFrom([]int{0, 1, 15, 16, 31, 32, 255, 256, 65_535, 65_536}).Draw(t, "length")
			if n > 0 {
				v.SetBytes(bytes.Repeat([]byte{rapid.Byte().Draw(t, "byte")}, n))
			}
			return
		}
		n := rapid.SampledFrom([]int{0, 1, 2, 15, 16, 17}).Draw(t, "count")
		if n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			draw(t, v.Index(0))
			draw(t, v.Index(n-1))
		}
	case reflect.Pointer:
		if rapid.Bool().Draw(t, "there") {
			v.Set(reflect.New(v.Type().Elem()))
			draw(t, v.Elem())
		}
	case reflect.String:
		v.SetString(rapid.String().Draw(t, "text"))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, "flag"))
	default:
		v.SetUint(rapid.Uint64().Draw(t, "number") >> rapid.IntRange(64-v.Type().Bits(), 63).Draw(t, "shift"))
	}
}

// dropEmpty makes empty byte fields and lists nil.
func dropEmpty(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			dropEmpty(v.Field(i))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			dropEmpty(v.Elem())
		}
	case reflect.Slice:
		if v.Len() == 0 {
			v.SetZero()
		}
		for i := range v.Len() {
			if v.Type().Elem().Kind() == reflect.Struct {
				dropEmpty(v.Index(i))
			}
		}
	}
}
