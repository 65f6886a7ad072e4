package terminal

import (
	"slices"
	"testing"
)

// TestKeys: what terminals send for keys.
func TestKeys(t *testing.T) {
	for text, want := range map[string][]Key{
		"q":              {'q'},
		"\x1b":           {KeyEscape},
		"\x1b[A\x1bOB":   {KeyUp, KeyDown},
		"\x1b[5~\x1b[6~": {KeyPageUp, KeyPageDown},
		"\x1b[1~\x1b[F":  {KeyHome, KeyEnd},
		"\x1b[1;5A":      {KeyUp},
		"\x1b[200~x":     {KeyUnknown, 'x'},
		"é\r\n\b\t":      {'é', KeyEnter, KeyEnter, KeyBackspace, KeyTab},
		"\xff":           {KeyUnknown},
		"\x1b[":          {KeyEscape, '['},
		"\x1b[1;":        {KeyUnknown},
	} {
		if got := parseKeys([]byte(text)); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
