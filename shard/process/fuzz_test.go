package process

import (
	"bytes"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// drive makes calls out of bytes.
func drive(t *testing.T, p *Process, script []byte) {
	at := Now{Log: 1 << 40}
	var out Out
	for len(script) >= 3 {
		op, s, e := script[0], uint64(script[1]%8), uint64(script[2])
		script = script[3:]
		epoch := p.Epoch() + e%3 - 1
		switch op % 14 {
		case 0, 1:
			_, _ = p.Join(at, Join{Session: s, Key: string([]byte{byte(e % 4)})[:e%2]}, &out)
		case 2:
			_, _ = p.Leave(at, s, &out)
		case 3:
			p.SessionEnded(at, s, &out)
		case 4, 5:
			_ = p.Prepared(at, s, epoch, &out)
		case 6:
			_ = p.Fail(at, s, epoch, string(script), &out)
		case 7:
			_ = p.Complete(at, s, epoch, script, &out)
		case 8, 9:
			_ = p.Completed(at, s, epoch, &out)
		case 10:
			_ = p.Force(at, string(script), &out)
		case 11:
			_ = p.Evict(at, s, string(script), &out)
		case 12:
			at.Log += e * e
		case 13:
			_ = p.Alter(at, protocol.ProcessOptions{Debounce: e, RoundTimeout: uint64(op) * 10,
				Return: e * 100, Election: protocol.ProcessElection(e % 4)}, &out)
		}
		if op&0x80 != 0 {
			p.Tick(at, &out)
		}
		p.Resend(s, &out)
		p.Next()
		p.Describe()
		if err := p.Check(); err != nil {
			t.Fatalf("after call %d: %v", op%14, err)
		}
	}
	q, err := Decode(p.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	if q.Digest() != p.Digest() {
		t.Fatal("digests differ")
	}
}

// FuzzDecode: any bytes are refused, or are exactly the record of a process that goes on soundly.
func FuzzDecode(f *testing.F) {
	p, _ := New(Now{}, 5, protocol.ProcessOptions{Return: 100, RoundTimeout: 50})
	var out Out
	f.Add(p.Append(nil), []byte{0x80, 1, 1})
	for i := range uint64(4) {
		_, _ = p.Join(Now{Log: i}, Join{Session: i + 1, Key: string(rune('a' + i)), Data: []byte("data")}, &out)
		p.Tick(Now{Log: i}, &out)
		f.Add(p.Append(nil), []byte{0x84, byte(i), 1})
	}
	for i := range uint64(4) {
		_ = p.Prepared(Now{Log: 5}, i+1, p.Epoch(), &out)
	}
	f.Add(p.Append(nil), []byte{0x87, 1, 1, 7, 1, 1})
	_ = p.Complete(Now{Log: 6}, 1, p.Epoch(), []byte("result"), &out)
	_, _ = p.Join(Now{Log: 6}, Join{Session: 9}, &out)
	f.Add(p.Append(nil), []byte{8, 2, 1, 8, 3, 1, 8, 4, 1, 0x88, 1, 1})
	_, _ = p.Leave(Now{Log: 6}, 9, &out)
	for _, i := range []uint64{2, 3, 4, 1} {
		_ = p.Completed(Now{Log: 7}, i, p.Epoch(), &out)
	}
	p.SessionEnded(Now{Log: 8}, 2, &out)
	f.Add(p.Append(nil), []byte{0x80, 2, 1})
	f.Fuzz(func(t *testing.T, record, script []byte) {
		p, err := Decode(record)
		if err != nil {
			return
		}
		if !bytes.Equal(p.Append(nil), record) {
			t.Fatal("another record")
		}
		drive(t, p, script)
	})
}

// FuzzCalls: any calls keep the invariants.
func FuzzCalls(f *testing.F) {
	f.Add([]byte{0x80, 1, 0, 0x80, 2, 1, 4, 1, 1, 0x84, 2, 1, 0x87, 1, 1, 8, 2, 1, 0x88, 1, 1, 0x83, 2, 1})
	f.Fuzz(func(t *testing.T, script []byte) {
		p, err := New(Now{Log: 1 << 40}, 0, protocol.ProcessOptions{Return: 100, RoundTimeout: 1000})
		if err != nil {
			t.Fatal(err)
		}
		drive(t, p, script)
	})
}
