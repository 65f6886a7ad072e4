package container

import (
	"strings"
	"testing"
	"unsafe"
)

// TestIntern: equal texts are one string, whatever came in between shows in none of them.
func TestIntern(t *testing.T) {
	var x Interner
	list := []string{"", "127.0.0.1:7070", "127.0.0.1:7071", strings.Repeat("long", 100)}
	for i := range 1000 {
		list = append(list, strings.Repeat("x", i%70)+string(rune('a'+i%26)))
	}
	for _, want := range list {
		if got := x.String(strings.Clone(want)); got != want {
			t.Fatalf("%q for %q", got, want)
		}
		if got := x.Bytes([]byte(want)); got != want {
			t.Fatalf("%q for the bytes of %q", got, want)
		}
	}
	a, b := x.String("127.0.0.1:7070"), x.Bytes([]byte("127.0.0.1:7070"))
	if unsafe.StringData(a) != unsafe.StringData(b) {
		t.Error("equal texts are two strings")
	}
}
