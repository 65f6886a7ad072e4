package main

import "testing"

// TestNumbersInJSON: programs that read JSON numbers as floating point lose nothing.
func TestNumbersInJSON(t *testing.T) {
	const max = ^uint64(0)
	r := row{
		{"count", "", amount(max)}, {"limit", "", labelled{"limit", amount(1<<53 + 1)}}, {"token", "", uint64(1 << 53)},
		{"revision", "", uint64(1<<53 + 1)}, {"timeout_ms", "", millis(max)}, {"session_id", "", sessionID(7)},
		{"owners", "", []row{{{"count", "", amount(3)}, {"other", "", labelled{"other", max}}}}},
	}
	b, err := r.MarshalJSON()
	want := `{"count":"max","limit":"9007199254740993","token":9007199254740992,"revision":"9007199254740993",` +
		`"timeout_ms":"forever","session_id":"7","owners":[{"count":3,"other":"18446744073709551615"}]}`
	if err != nil || string(b) != want {
		t.Errorf("%v\n%s, want\n%s", err, b, want)
	}
}
