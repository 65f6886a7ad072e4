package main

import "testing"

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "1000": 1000, "512MiB": 512 << 20, "2 GiB": 2 << 30, "1KiB": 1024, "1TiB": 1 << 40} {
		if got, ok := parseSize(text); !ok || got != want {
			t.Errorf("%q is %d, %v; want %d", text, got, ok, want)
		}
	}
	for _, text := range []string{"", "-1", "1GB", "MiB", "1.5GiB", "9223372036854775807KiB", "8388608TiB", "1e9"} {
		if got, ok := parseSize(text); ok {
			t.Errorf("%q is %d", text, got)
		}
	}
}

func TestSizeText(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1 << 19: "512 KiB",
		5 << 20: "5.0 MiB", 3 << 40: "3.0 TiB", 5000 << 40: "5000 TiB"} {
		if got := sizeText(n); got != want {
			t.Errorf("%d bytes are %q, want %q", n, got, want)
		}
	}
}
