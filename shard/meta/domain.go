package meta

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// maxLabels and maxLabel bound a failure domain. Part of format version 1.
const (
	maxLabels = 32
	maxLabel  = 256
)

// Label is one key of a failure domain with its value, like DC=MSK. A failure domain is a list of
// labels in order of key, in upper case. Two instances that share a label may fail together.
type Label struct {
	Key   string
	Value string
}

// Domain makes a failure domain of labels: in upper case, in order. An error names the invalid
// label.
func Domain(labels ...Label) ([]Label, error) {
	domain := make([]Label, 0, len(labels))
	for _, l := range labels {
		l = Label{strings.ToUpper(strings.TrimSpace(l.Key)), strings.ToUpper(strings.TrimSpace(l.Value))}
		if l.Key == "" || l.Value == "" || len(l.Key) > maxLabel || len(l.Value) > maxLabel {
			return nil, fmt.Errorf("failure domain: key %q with value %q; both must have 1 to %d bytes",
				l.Key, l.Value, maxLabel)
		}
		domain = append(domain, l)
	}
	slices.SortFunc(domain, func(a, b Label) int { return cmp.Compare(a.Key, b.Key) })
	for i := 1; i < len(domain); i++ {
		if domain[i].Key == domain[i-1].Key {
			return nil, fmt.Errorf("failure domain: key %s is given twice", domain[i].Key)
		}
	}
	if len(domain) > maxLabels {
		return nil, fmt.Errorf("failure domain: %d keys; there may be %d", len(domain), maxLabels)
	}
	return domain, nil
}

// ParseDomain reads a failure domain written as KEY=VALUE,KEY=VALUE. An empty text is the empty
// domain.
func ParseDomain(text string) ([]Label, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var labels []Label
	for part := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(part, "=")
		if !ok {
			return nil, errors.New("failure domain: write it as KEY=VALUE,KEY=VALUE")
		}
		labels = append(labels, Label{key, value})
	}
	return Domain(labels...)
}

// Distance of two failure domains is the number of keys for which they do not share a value. Both
// are in order of key.
func Distance(a, b []Label) int {
	equal := 0
	common := 0
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch c := cmp.Compare(a[i].Key, b[j].Key); {
		case c < 0:
			i++
		case c > 0:
			j++
		default:
			common++
			if a[i].Value == b[j].Value {
				equal++
			}
			i++
			j++
		}
	}
	return len(a) + len(b) - common - equal
}

// Intersect reports whether two failure domains share a label. The empty one shares none.
func Intersect(a, b []Label) bool {
	return slices.ContainsFunc(a, func(l Label) bool {
		value, ok := domainValue(b, l.Key)
		return ok && value == l.Value
	})
}

func domainValue(domain []Label, key string) (string, bool) {
	i, ok := slices.BinarySearchFunc(domain, key, func(l Label, key string) int { return cmp.Compare(l.Key, key) })
	if !ok {
		return "", false
	}
	return domain[i].Value, true
}

// canonical reports whether a domain is in order of key without duplicates, as the state requires.
func canonical(domain []Label) bool {
	for i, l := range domain {
		if l.Key == "" || (i > 0 && domain[i-1].Key >= l.Key) {
			return false
		}
	}
	return true
}

func (l *Label) fields(f *varint.Fields) {
	f.Text(&l.Key, maxLabel)
	f.Text(&l.Value, maxLabel)
}
