package client

import (
	"bytes"
	"testing"
	"time"

	"github.com/signalbox-dev/signalbox/protocol"
	"pgregory.net/rapid"
)

// TestConfigForm: what is written is read again, the present value whole, the others as far as the
// bounds allow, and never in part.
func TestConfigForm(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		values := make([]Value, rapid.IntRange(1, 15).Draw(t, "values"))
		for i := range values {
			size := rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(0, maxConfigHistoryBytes),
				rapid.IntRange(MaxConfigLen-3, MaxConfigLen)).Draw(t, "size")
			values[i] = Value{
				Exists: true, Author: rapid.StringN(-1, -1, 256).Draw(t, "author"), Reason: rapid.StringN(-1, -1, 256).Draw(t, "reason"), Version: rapid.Uint64().Draw(t, "version"), Time: time.UnixMilli(rapid.Int64Range(1, 1<<53).Draw(t, "time")),
				Data: bytes.Repeat([]byte{byte(i)}, size),
			}
		}
		b := appendConfig(values)
		got, err := readConfig(b, values[0].Version)
		if err != nil || len(b) > protocol.MaxDataLen || len(got) > maxConfigHistory+1 {
			t.Fatalf("%d values of %d in %d bytes, %v", len(got), len(values), len(b), err)
		}
		before := 0
		for i, v := range got {
			if w := values[i]; v.Version != w.Version || !v.Time.Equal(w.Time) || !bytes.Equal(v.Data, w.Data) || !v.Exists {
				t.Fatalf("value %d: version %d, %d bytes", i, v.Version, len(v.Data))
			}
			if i > 0 {
				before += len(v.Data)
			}
		}
		if before > maxConfigHistoryBytes {
			t.Fatalf("%d bytes of old values", before)
		}
		if next := len(got); next < len(values) && next <= maxConfigHistory && before+len(values[next].Data)+100 < maxConfigHistoryBytes &&
			len(b)+len(values[next].Data)+100 < protocol.MaxDataLen {
			t.Fatalf("value %d of %d bytes has room, and is not kept", next, len(values[next].Data))
		}
	})
}

// FuzzReadConfig: any bytes are a configuration or an error.
func FuzzReadConfig(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{configFormat})
	f.Add(appendConfig([]Value{{Version: 2, Data: []byte("b")}, {Version: 1, Data: []byte("a")}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		values, err := readConfig(b, 7)
		if (err == nil) != (len(values) > 0) {
			t.Fatalf("%d values, %v", len(values), err)
		}
	})
}

// TestConfigPrefix: the server's audit log knows configurations by the prefix that clients use.
func TestConfigPrefix(t *testing.T) {
	t.Parallel()
	if ConfigPrefix != protocol.ConfigPrefix {
		t.Errorf("the prefix is %q here, and %q in the protocol", ConfigPrefix, protocol.ConfigPrefix)
	}
}
