package shard

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/signalbox-dev/signalbox/protocol"
)

// listWords reads a list with commas.
func (a scriptArgs) list(key string) []string {
	if a.vals[key] == "" {
		return nil
	}
	return strings.Split(a.vals[key], ",")
}

// word reads one of these words, and returns its number; without the key the first one's.
func (a scriptArgs) word(key string, words ...string) int {
	if _, ok := a.vals[key]; !ok {
		return 0
	}
	at := slices.Index(words, a.vals[key])
	if at < 0 {
		panic(fmt.Sprintf("%s=%s: it is one of %v", key, a.vals[key], words))
	}
	return at
}

// options reads those of a semaphore, and which the line gives: policy=fair aging=ms
// weights=KEY:n,KEY:n slots=numbered or slots=NAME+LABEL+LABEL,NAME or slots=none, history=n
// max-hold=ms extend=yes preempt=off|lower|any grace=ms min-hold=ms.
func (a scriptArgs) options() (o protocol.SemaphoreOptions, fields uint64) {
	for bit, key := range []string{"policy", "aging", "weights", "slots", "history", "max-hold", "extend", "preempt", "grace", "min-hold"} {
		if _, ok := a.vals[key]; ok {
			fields |= 1 << bit
		}
	}
	o.Policy = protocol.QueuePolicy(a.word("policy", "fifo", "priority", "fair"))
	o.Aging, o.History = a.num("aging", 0), a.num("history", 0)
	o.MaxHold, o.Extend = a.num("max-hold", 0), a.vals["extend"] == "yes"
	o.Preempt = protocol.PreemptMode(a.word("preempt", "off", "lower", "any"))
	o.Grace, o.MinHold = a.num("grace", 0), a.num("min-hold", 0)
	for _, w := range a.list("weights") {
		key, n, _ := strings.Cut(w, ":")
		weight, _ := strconv.ParseUint(n, 10, 64)
		o.Weights = append(o.Weights, protocol.Weight{Key: []byte(key), Weight: weight})
	}
	switch a.vals["slots"] {
	case "numbered":
		o.Numbered = true
	case "none":
	default:
		for _, s := range a.list("slots") {
			words := strings.Split(s, "+")
			o.Slots = append(o.Slots, protocol.Slot{Name: words[0], Labels: words[1:]})
		}
	}
	return o, fields
}

// asked reads the options of an acquire; nil without any. priority= is the level, "knows" the flag of
// a client that knows bounds.
func (a scriptArgs) asked() *protocol.AcquireOptions {
	o := protocol.AcquireOptions{Key: a.data("key"), Labels: a.list("labels"), Names: a.list("names")}
	if _, ok := a.vals["priority"]; ok {
		o.Priority = uint8(a.num("priority", 0) + 1)
	}
	if a.has("deadlock") {
		o.Flags = protocol.AskDeadlock
	}
	if a.has("knows") {
		o.Flags |= protocol.KnowsBounds
	}
	o.Hold, o.Known = a.num("hold", 0), a.num("known", 0)
	if o.Priority == 0 && o.Flags == 0 && o.Hold == 0 && o.Known == 0 && len(o.Key)+len(o.Labels)+len(o.Names) == 0 {
		return nil
	}
	return &o
}

func grantWord(g *protocol.Grant) string {
	if g == nil {
		return ""
	}
	text := ""
	if len(g.Slots) > 0 {
		text = " slots=" + strings.Join(g.Slots, ",")
	}
	if g.Now != 0 || g.Until != 0 {
		text += fmt.Sprintf(" now=%d until=%d", g.Now, g.Until)
	}
	if g.Preemption != 0 {
		text += fmt.Sprintf(" preemption=%d", g.Preemption)
	}
	return text
}

func (x *scriptRunner) describeOptions(b *strings.Builder, d *protocol.SemaphoreDetails) {
	if d == nil {
		return
	}
	o := d.Options
	fmt.Fprintf(b, "  policy=%d aging=%d history=%d", o.Policy, o.Aging, o.History)
	if o.MaxHold != 0 {
		fmt.Fprintf(b, " max-hold=%d extend=%v", o.MaxHold, o.Extend)
	}
	if o.Preempt != protocol.PreemptOff {
		fmt.Fprintf(b, " preempt=%d grace=%d min-hold=%d", o.Preempt, o.Grace, o.MinHold)
	}
	for _, w := range o.Weights {
		fmt.Fprintf(b, " %s:%d", w.Key, w.Weight)
	}
	b.WriteString("\n")
	for _, s := range d.Slots {
		word := [...]string{"", "free", "held", "draining", "drained", "leaving"}[s.State]
		fmt.Fprintf(b, "  slot %s %v %s token=%d", s.Name, s.Labels, word, s.Token)
		if s.Session != 0 {
			fmt.Fprintf(b, " %s", x.sessionName(s.Session))
		}
		b.WriteString("\n")
	}
}

func ownerWord(o *protocol.OwnerOptions) string {
	if o == nil {
		return ""
	}
	text := fmt.Sprintf(" level=%d key=%q slots=%v", o.Priority-1, o.Key, o.Slots)
	if o.Left != 0 {
		text += fmt.Sprintf(" left=%d", o.Left)
	}
	if o.Preempted {
		text += " preempted"
	}
	if o.Silent {
		text += " silent"
	}
	return text
}

func waiterWord(o *protocol.WaiterOptions) string {
	if o == nil {
		return ""
	}
	text := fmt.Sprintf(" level=%d key=%q labels=%v names=%v rank=%d", o.Priority-1, o.Key, o.Labels, o.Names, o.Rank)
	if o.Flags != 0 {
		text += fmt.Sprintf(" flags=%d", o.Flags)
	}
	return text
}

func (x *scriptRunner) history(b *strings.Builder, a scriptArgs, node uint64) {
	var r protocol.SemaphoreHistoryReply
	if err := x.m.Semaphores().History(&protocol.SemaphoreHistory{Node: node, Name: []byte(a.words[0])}, &r); err != nil {
		fmt.Fprintf(b, "%v\n", err)
		return
	}
	for _, h := range r.Holds {
		word := [...]string{"", "released", "session ended", "forced", "transferred", "max hold", "preempted"}[h.Cause]
		fmt.Fprintf(b, "#%d %s desc=%q count=%d slots=%v %d..%d %s\n", h.Token, x.sessionName(h.Session), h.Description,
			h.Count, h.Slots, h.Since-1_700_000_000_000, h.Until-1_700_000_000_000, word)
		if x := h.Ending; x != nil {
			fmt.Fprintf(b, "  %s, its connection was %s, silent=%d stood=%d steady=%v\n", reasonWords[x.Reason], x.Link, x.Silent, x.Stood, x.Steady)
		}
	}
}
