package metrics

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Write writes a value. A bool is 1 or 0.
func Write(w io.Writer, name, labels string, value any) {
	if yes, ok := value.(bool); ok {
		value = 0
		if yes {
			value = 1
		}
	}
	if labels != "" {
		labels = "{" + labels + "}"
	}
	fmt.Fprintf(w, "%s%s %v\n", name, labels, value)
}

// WriteAll writes pairs of a name, behind a prefix, and a value, with the same labels.
func WriteAll(w io.Writer, prefix, labels string, pairs ...any) {
	for i := 0; i+1 < len(pairs); i += 2 {
		Write(w, fmt.Sprint(prefix, pairs[i]), labels, pairs[i+1])
	}
}

// Labels are pairs of a name and a value as text. A value that a client has chosen needs [Label]
// first: it may be long.
func Labels(pairs ...any) string {
	var b strings.Builder
	for i := 0; i+1 < len(pairs); i += 2 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%v=%q", pairs[i], fmt.Sprint(pairs[i+1]))
	}
	return b.String()
}

// Label makes any bytes fit for a label's value: printable, and of a bounded length. What is cut
// short has a hash of the whole, so that two names that begin alike do not make the same series.
func Label(s string) string {
	const most = 128
	q := strconv.QuoteToASCII(s)
	q = q[1 : len(q)-1]
	if len(q) > most {
		q = fmt.Sprintf("%s...#%016x", q[:most], xxhash.Sum64String(s))
	}
	return q
}

// Budget bounds the series that are made from names.
type Budget struct {
	Left int
	Cut  bool // some series were left out
}

// Take takes so many series, or none if fewer are left.
func (b *Budget) Take(n int) bool {
	if b.Left < n {
		b.Cut = true
		return false
	}
	b.Left -= n
	return true
}
