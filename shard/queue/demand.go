package queue

import (
	"slices"
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
)

// Demand is the part of an acquire beyond its units.
type Demand struct {
	Level    uint8
	Key      string
	Selector string // of slots, see selectorOf
	Flags    uint8  // of protocol.AcquireOptions
	Hold     uint64 // of a waiter: ms that its hold may last; 0: the semaphore's
}

// plainDemand is the demand of a request without options.
var plainDemand = Demand{Level: protocol.DefaultPriority}

// DemandOf returns the demand of a request's options, which may be nil.
func DemandOf(o *protocol.AcquireOptions) Demand {
	if o == nil {
		return plainDemand
	}
	return Demand{o.Level(), string(o.Key), selectorOf(o.Labels, o.Names), o.Flags, o.Hold}
}

// IsPlain reports whether it is the demand of a request without options.
func (d *Demand) IsPlain() bool { return *d == plainDemand }

// KnowsBounds reports whether the holder ends by itself before a bound.
func (d *Demand) KnowsBounds() bool { return d.Flags&protocol.KnowsBounds != 0 }

// held returns the part of a demand that an owner keeps.
func (d Demand) held() Demand {
	d.Selector, d.Hold = "", 0
	return d
}

// A selector is a text: empty for any slot, + and labels that a slot must have, or @ and the names
// of the slots. They are sorted, so that equal selectors are equal texts. Neither names nor labels
// have commas.
func selectorOf(labels, names []string) string {
	mark, list := "+", labels
	if len(names) > 0 {
		mark, list = "@", names
	}
	if len(list) == 0 {
		return ""
	}
	return mark + strings.Join(slices.Sorted(slices.Values(list)), ",")
}

// selected splits a selector into its labels or names.
func selected(selector string) (labels, names []string) {
	switch {
	case selector == "":
	case selector[0] == '@':
		names = strings.Split(selector[1:], ",")
	default:
		labels = strings.Split(selector[1:], ",")
	}
	return labels, names
}
