package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestVerbs(t *testing.T) {
	for args, want := range map[string]struct {
		code int
		text string
	}{
		"":                   {2, "adopt REPORT"},
		"limit":              {1, "give raft, echo or version"},
		"limit cake":         {1, "give raft, echo or version"},
		"limit version cake": {1, "not built with cake"},
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), strings.Fields(args), &out, &errs)
		if text := out.String() + errs.String(); code != want.code || !strings.Contains(text, want.text) {
			t.Errorf("%q: %d, %s", args, code, text)
		}
	}
}
