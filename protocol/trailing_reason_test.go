package protocol

import (
	"bytes"
	"reflect"
	"testing"
)

// TestTrailingReason: a reason is read back, and without one the request has the bytes that it had
// before there were reasons: those of the vectors.
func TestTrailingReason(t *testing.T) {
	head, name := Head{Session: MakeSessionID(0, 1234, 7), Seq: 300, Low: 298}, []byte("slots")
	options := &SemaphoreOptions{Policy: PolicyPriority}
	for _, x := range []struct {
		plain, reasoned, read Message
		more                  byte // values
	}{
		{&Create{Head: head, Name: name, Limit: 3}, &Create{Head: head, Name: name, Limit: 3, Reason: "why"}, &Create{}, 2},
		{&Create{Head: head, Name: name, Limit: 3, Options: options}, &Create{Head: head, Name: name, Limit: 3, Options: options, Reason: "why"}, &Create{}, 1},
		{&Update{Head: head, Name: name, Data: []byte("x")}, &Update{Head: head, Name: name, Data: []byte("x"), Reason: "why"}, &Update{}, 1},
		{&LimitCreate{Head: head, Path: name, Config: LimitConfig{Rate: 5}}, &LimitCreate{Head: head, Path: name, Config: LimitConfig{Rate: 5}, Reason: "why"}, &LimitCreate{}, 1},
		{&LimitAlter{Head: head, Path: name, Config: LimitConfig{Rate: 5}}, &LimitAlter{Head: head, Path: name, Config: LimitConfig{Rate: 5}, Reason: "why"}, &LimitAlter{}, 1},
		{&LimitDelete{Head: head, Path: name}, &LimitDelete{Head: head, Path: name, Reason: "why"}, &LimitDelete{}, 1},
		{&Delete{Head: head, Name: name}, &Delete{Head: head, Name: name, Reason: "why"}, &Delete{}, 1},
	} {
		plain, reasoned := AppendBody(nil, x.plain), AppendBody(nil, x.reasoned)
		if reasoned[0] != plain[0]+x.more || !bytes.HasPrefix(reasoned[1:], plain[1:]) || !bytes.HasSuffix(reasoned, []byte("\xa3why")) {
			t.Errorf("%T: % x\nis not what follows % x", x.plain, reasoned, plain)
		}
		for _, want := range []Message{x.reasoned, x.plain} {
			if err := DecodeBody(x.read, AppendBody(nil, want)); err != nil || !sameMessage(x.read, want) {
				t.Errorf("%T: read %+v, %v; want %+v", want, x.read, err, want)
			}
		}
	}
}

// sameMessage compares what messages encode: an empty field may be nil or not.
func sameMessage(a, b Message) bool { return reflect.DeepEqual(AppendBody(nil, a), AppendBody(nil, b)) }
