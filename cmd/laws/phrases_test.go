package laws

import (
	"regexp"
	"strings"
	"testing"
)

// gap is what stands between two words, at the end of a comment's line too.
const gap = `(?:\s|//)+`

// phrases are those of which a reader has to find out what they mean. What is right of each is what
// to write.
var phrases = []struct {
	written *regexp.Regexp
	better  string
}{
	{regexp.MustCompile(`(?i)\b(says|answers|tells)` + gap + `whether\b`), "a function reports whether something is so; a page has, shows or knows it"},
	{regexp.MustCompile(`(?i)\bthat` + gap + `one[.,;:)?!]`), "the noun"},
	{regexp.MustCompile(`(?i)\bthe` + gap + `other` + gap + `one\b`), "the noun"},
	{regexp.MustCompile(`(?i)\bwhat` + gap + `it` + gap + `came` + gap + `to\b`), "the result"},
	{regexp.MustCompile(`(?i)\banew\b`), "again"},
	{regexp.MustCompile(`(?i)\bvouch(es|ed)?\b`), "renew, or confirm"},
	{regexp.MustCompile(`(?i)\bwhoever\b`), "the client, the instance, the program"},
	{regexp.MustCompile(`(?i)\bseams?\b`), "interface, or border"},
	{regexp.MustCompile(`(?i)\bwho` + gap + `is` + gap + `who\b`), "whose it is, or the identity"},
}

// TestPhrasesAreSaidPlainly: comments, messages and pages have none of the phrases.
func TestPhrasesAreSaidPlainly(t *testing.T) {
	eachText(t, func(name string, text []byte) {
		if !strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, ".md") ||
			strings.HasPrefix(name, "bench/results/") || name == "cmd/laws/phrases_test.go" || name == "cmd/laws/words_test.go" {
			return
		}
		for _, p := range phrases {
			for _, at := range p.written.FindAllIndex(text, -1) {
				line := 1 + strings.Count(string(text[:at[0]]), "\n")
				t.Errorf("%s:%d: %q; say %s", name, line, text[at[0]:at[1]], p.better)
			}
		}
	})
}
