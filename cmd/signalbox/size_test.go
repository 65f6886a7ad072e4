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
