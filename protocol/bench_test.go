package protocol

import (
	"bytes"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

// benchAcquire is a typical hot request: a lock by a short name, waiting for ever.
func benchAcquire() *Acquire {
	return &Acquire{
		Head: Head{Session: MakeSessionID(0, 1234, 56789), Seq: 300, Low: 290},
		Name: []byte("locks/billing-run"), Count: Forever, Timeout: 30_000, Ephemeral: true,
	}
}

func BenchmarkEncodeAcquire(b *testing.B) {
	m := benchAcquire()
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendFrame(buf[:0], KindAcquire, 7, 4000, m)
	}
}

func BenchmarkParseAcquire(b *testing.B) {
	frame := AppendFrame(nil, KindAcquire, 7, 4000, benchAcquire())[lengthSize:]
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseFrame(frame); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeAcquire(b *testing.B) {
	body := benchAcquire().AppendBody(nil)
	var m Acquire
	b.ReportAllocs()
	for b.Loop() {
		if err := m.DecodeBody(body); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOracleDecodeAcquire is what a general msgpack library takes for the same body: the
// reason, beside safety, for codecs by hand.
func BenchmarkOracleDecodeAcquire(b *testing.B) {
	body := benchAcquire().AppendBody(nil)
	r := bytes.NewReader(nil)
	dec := msgpack.NewDecoder(r)
	var m Acquire
	b.ReportAllocs()
	for b.Loop() {
		r.Reset(body)
		dec.Reset(r)
		if err := dec.Decode(&m); err != nil {
			b.Fatal(err)
		}
	}
}
