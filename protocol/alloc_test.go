package protocol

import (
	"bytes"
	"reflect"
	"runtime"
	"testing"

	"github.com/signalbox-dev/signalbox/server/servertest/form"
)

// TestAllocs holds the budgets: what happens for every request allocates nothing once buffers have
// grown.
func TestAllocs(t *testing.T) {
	if form.Race {
		t.Skip("the race detector allocates")
	}
	var buf []byte
	var acquire Acquire
	in := benchAcquire()
	frame := AppendFrame(nil, KindAcquire, 7, 4000, in)
	reply := AppendFrame(nil, KindAcquire|KindReply, 7, 0, &AcquireReply{State: Acquired, OrderID: 41})
	result := AppendFrame(nil, KindAcquireResult, 0, 1, &AcquireResult{Session: 1, Seq: 2, State: Acquired, OrderID: 41})
	delta := AppendFrame(nil, KindDelta, 0, 1, &Delta{Node: 1, Name: in.Name, Index: 9,
		Changes: []SemaphoreChange{{Kind: ChangeData, Version: 9, Data: in.Name}, {Kind: ChangeLimit, Limit: 2}}})
	var deltaAgain Delta
	var acquireReply AcquireReply
	var acquireResult AcquireResult
	budgets := []struct {
		name   string
		allocs float64
		run    func()
	}{
		{"encode an acquire", 0, func() { buf = AppendFrame(buf[:0], KindAcquire, 7, 4000, in) }},
		{"encode an acquire that lives on the stack", 0, func() {
			m := Acquire{Head: in.Head, Name: in.Name, Count: 1}
			buf = beginFrame(buf[:0], KindAcquire, 7, 4000)
			buf = endFrame(m.AppendBody(buf), 0)
		}},
		{"split, parse, decode and validate an acquire", 0, func() {
			f, _, _ := SplitFrame(frame, MaxFrameLen)
			h, _ := ParseFrame(f)
			if err := acquire.DecodeBody(h.Body); err != nil {
				t.Fatal(err)
			}
			if err := acquire.Validate(); err != nil {
				t.Fatal(err)
			}
		}},
		{"decode an acquire's reply", 0, func() {
			h, _ := ParseFrame(reply[lengthSize:])
			if err := acquireReply.DecodeBody(h.Body); err != nil {
				t.Fatal(err)
			}
		}},
		{"decode an acquire's result", 0, func() {
			h, _ := ParseFrame(result[lengthSize:])
			if err := acquireResult.DecodeBody(h.Body); err != nil {
				t.Fatal(err)
			}
		}},
		{"decode a delta again", 0, func() {
			h, _ := ParseFrame(delta[lengthSize:])
			if err := deltaAgain.DecodeBodyAgain(h.Body); err != nil {
				t.Fatal(err)
			}
		}},
		{"encode a ping", 0, func() { buf = AppendFrame(buf[:0], KindPing, 7, 0, nil) }},
		{"name a kind", 0, func() { _ = KindAcquire.String() }},
		{"bucket of a name", 0, func() { _ = Bucket(7, in.Name, DefaultBuckets) }},
	}
	for _, b := range budgets {
		b.run() // let buffers grow
		if n := testing.AllocsPerRun(100, b.run); n > b.allocs {
			t.Errorf("%s allocates %v times, want %v", b.name, n, b.allocs)
		}
	}
}

// TestListAllocation: a list costs memory in proportion to its bytes, whatever its count says and
// however small its items are.
func TestListAllocation(t *testing.T) {
	const size = 1 << 18
	lists := 0
	for _, e := range allMessages() {
		parts := split(t, AppendBody(nil, e.fresh()))
		for i := range parts {
			field := wireField(reflect.ValueOf(e.fresh()).Elem(), i)
			if field.Kind() != reflect.Slice || field.Type().Elem().Kind() == reflect.Uint8 {
				continue
			}
			lists++
			// One item with nothing set, as this package writes it: the smallest there is.
			m := e.fresh()
			one := wireField(reflect.ValueOf(m).Elem(), i)
			one.Set(reflect.MakeSlice(one.Type(), 1, 1))
			smallest := split(t, AppendBody(nil, m))[i][1:]
			for _, item := range [][]byte{smallest, {0x90}, {0xc0}, {0x01}} {
				n := size / len(item)
				changed := append([][]byte(nil), parts...)
				changed[i] = append(appendArray(nil, n), bytes.Repeat(item, n)...)
				body := join(changed)
				if err := CheckBody(body); err != nil {
					t.Fatal(err)
				}
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				err := DecodeBody(e.fresh(), body)
				runtime.ReadMemStats(&after)
				if cost := after.TotalAlloc - before.TotalAlloc; cost > 25*size && !form.Race {
					t.Errorf("%s field %d: %d items of %d bytes cost %d bytes of memory", e.typeName(), i, n, len(item), cost)
				}
				if &item[0] == &smallest[0] && err != nil {
					t.Errorf("%s field %d: %v", e.typeName(), i, err)
				}
			}
		}
	}
	if lists < 8 {
		t.Errorf("only %d lists were tried", lists)
	}
}
