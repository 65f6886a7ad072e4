package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/signalbox-dev/signalbox/client"
)

// What the page of a semaphore shows beyond that of a plain one: its policy, its slots, its lanes
// and the holds that ended.

// laned reports whether waiters are served in another order than that in which they came.
func (s *semaphoreView) laned() bool {
	o := s.sem.Config
	return o != nil && (o.Policy != client.PolicyFIFO || len(o.Slots) > 0)
}

func (s *semaphoreView) slotted() bool { return s.sem.Config != nil && len(s.sem.Config.Slots) > 0 }

// readLanes reads the waiters of a semaphore with lanes: those that are served next, by rank, before
// the others, lane by lane. A lane's cursor is the server's own, so there is one page.
func (s *semaphoreView) readLanes(ctx context.Context, n *client.Node) error {
	if uint64(len(s.sem.Waiters)) < s.sem.NumWaiters {
		all, err := n.Describe(ctx, s.name, client.IncludeWaiters(), client.MaxItems(maxHoldings))
		if err != nil {
			return err
		}
		s.sem.Waiters = all.Waiters
	}
	behind := func(w *client.Waiter) int { return cmp.Or(w.Rank, 1<<16) }
	s.waiters = slices.Clone(s.sem.Waiters)
	slices.SortStableFunc(s.waiters, func(a, b client.Waiter) int { return cmp.Compare(behind(&a), behind(&b)) })
	s.queueAfter, s.place, s.moreWaiters = 0, 0, false
	return nil
}

// optionFacts are the facts of a semaphore that is no plain one.
func (s *semaphoreView) optionFacts() (facts []fact) {
	o := s.sem.Config
	if o == nil {
		return nil
	}
	facts = append(facts, fact{"policy", "Who is next", policyCell(o)})
	if o.MaxHold > 0 {
		facts = append(facts, maxHoldFact(o))
	}
	if s.mayBePreempted() {
		facts = append(facts, preemptedFact(o))
	}
	return facts
}

// slotCounts is how many slots are in each state.
func slotCounts(o *client.SemaphoreConfig) string {
	n := map[client.SlotState]int{}
	for i := range o.Slots {
		n[o.Slots[i].State]++
	}
	var words []string
	for _, state := range []client.SlotState{client.SlotHeld, client.SlotFree, client.SlotDraining, client.SlotDrained,
		client.SlotLeaving} {
		if n[state] > 0 {
			words = append(words, fmt.Sprintf("%d %s", n[state], state))
		}
	}
	return strings.Join(words, ", ")
}

func policyCell(o *client.SemaphoreConfig) cell {
	switch o.Policy {
	case client.PolicyPriority:
		c := cell{Text: "the highest level", Note: "levels do not rise with waiting"}
		if o.Aging > 0 {
			c.Note = "a level up for each " + strings.Replace(o.Aging.String(), "m0s", "m", 1) + " of waiting"
		}
		return c
	case client.PolicyFair:
		c := cell{Text: "keys in turn, by weight", Note: "all keys weigh the same"}
		var list []string
		for key, weight := range o.Weights {
			list = append(list, visible(key)+" "+strconv.FormatUint(weight, 10))
		}
		if slices.Sort(list); len(list) > 0 {
			c.Note = strings.Join(list, ", ") + "; others 1"
		}
		return c
	}
	return text("who came first")
}

// slotKinds are the colours of slots' states; others have none.
var slotKinds = map[client.SlotState]string{
	client.SlotHeld: "", client.SlotFree: "good", client.SlotDraining: "warn", client.SlotDrained: "warn",
	client.SlotLeaving: "warn",
}

// slotRows are the slots as tiles: who holds each, since when, and what is not granted any more.
func (s *semaphoreView) slotRows(operates bool) table {
	t := newTable("slots", "Slots", "It has no slots.",
		col("Slot"), col("State"), col("Held by"), col("Held for"), col("Ends in"), col("Labels"), numCol("Token"))
	t.Kind = "tiles"
	if operates {
		t.Columns = append(t.Columns, col(actionColumn))
	}
	holders := make(map[uint64]*client.Owner, len(s.owners)) // by session
	for i := range s.owners {
		holders[s.owners[i].Session] = &s.owners[i]
	}
	for i := range s.sem.Config.Slots {
		if i == maxHoldings {
			t.Count = fmt.Sprintf("%s of %s", group(maxHoldings), group(uint64(len(s.sem.Config.Slots))))
			break
		}
		x := &s.sem.Config.Slots[i]
		holder, held, ends, labels, token := none(), none(), none(), none(), none()
		if x.Session != 0 {
			holder, held = sessionCell(s.path, x.Session, ""), since(x.Since)
			holder.Kind = "id"
		}
		if o := holders[x.Session]; o != nil {
			holder, ends = sessionCell(s.path, x.Session, o.Description), leftCell(o)
		}
		if len(x.Labels) > 0 {
			labels = text(strings.Join(x.Labels, ", "))
		}
		if x.Token > 0 {
			token = number(x.Token)
		}
		state := cell{Text: x.State.String(), Kind: slotKinds[x.State]}
		if o := holders[x.Session]; o != nil && (o.Preempted || o.Silent) {
			state.Kind, state.Note = preemptedCell(o).Kind, preemptedCell(o).Text
		}
		verb, word := "drain-slot", "Drain"
		switch x.State {
		case client.SlotDraining:
			verb, word, state.Note = "undrain-slot", "Undrain", "not granted once it is given back"
		case client.SlotDrained:
			verb, word, state.Note = "undrain-slot", "Undrain", "not granted"
		case client.SlotLeaving:
			verb, state.Note = "", "gone once it is given back"
		}
		r := row{Key: x.Name, Tone: x.State.String(), Cells: []cell{{Text: x.Name, Kind: "name"}, state, holder, held, ends,
			labels, token}}
		if operates {
			action := none()
			if verb != "" {
				action = cell{Text: word, Href: actionURL(verb, "node", s.path, "name", encodeName(s.name), "slot", x.Name)}
			}
			r.Cells = append(r.Cells, action)
		}
		t.Rows = append(t.Rows, r)
	}
	return t
}

// laneCell is where a waiter stands: its level or key, and what it asks for beyond a number of units.
func (s *semaphoreView) laneCell(priority int, key string, labels, names []string) cell {
	c := none()
	switch s.sem.Config.Policy {
	case client.PolicyPriority:
		c = text("level " + strconv.Itoa(priority))
	case client.PolicyFair:
		c = text("key “" + visible(key) + "”")
		if key == "" {
			c = text("no key")
		}
	}
	switch {
	case len(labels) > 0:
		c.Note = "only slots with " + strings.Join(labels, ", ")
	case len(names) > 0:
		c.Note = "only " + strings.Join(names, ", ")
	}
	return c
}

// admits reports whether a waiter can be granted a slot at all, even if another session holds it now.
func admits(w *client.Waiter, x *client.Slot) bool {
	switch {
	case x.State != client.SlotFree && x.State != client.SlotHeld:
		return false
	case len(w.Slots) > 0:
		return slices.Contains(w.Slots, x.Name)
	}
	return !slices.ContainsFunc(w.Labels, func(l string) bool { return !slices.Contains(x.Labels, l) })
}

// laneWhy is the reason for which a waiter of a semaphore with lanes waits.
func (s *semaphoreView) laneWhy(w *client.Waiter) string {
	asked := ""
	turn := "More than 16 are served before it."
	switch {
	case w.Rank == 1:
		turn, asked = "It is next.", s.askedText()
	case w.Rank > 1:
		turn = fmt.Sprintf("It is number %d to be served.", w.Rank)
	}
	if !s.slotted() {
		if free := s.sem.Limit - min(s.sem.Used, s.sem.Limit); w.Rank == 1 && free > 0 {
			return fmt.Sprintf("%s It wants %s, and %s free.%s", turn, amount(w.Count), isAre(free), asked)
		} else if w.Rank == 1 {
			return turn + " All units are held." + asked
		}
		return turn
	}
	slots, free := uint64(0), uint64(0)
	for i := range s.sem.Config.Slots {
		if x := &s.sem.Config.Slots[i]; admits(w, x) {
			slots++
			if x.State == client.SlotFree {
				free++
			}
		}
	}
	switch {
	case slots < w.Count:
		return fmt.Sprintf("It wants %s, and %s that it may have: it is not granted unless slots are added or undrained.",
			plural(w.Count, "slot"), thereAre(slots))
	case free == 0 && slots == 1:
		return turn + " The only slot that it may have is held." + asked
	case free == 0:
		return fmt.Sprintf("%s It wants %s; all %s that it may have are held.%s", turn, plural(w.Count, "slot"),
			group(slots), asked)
	case free < w.Count:
		return fmt.Sprintf("%s It wants %s; of the %s that it may have %s free.%s",
			turn, plural(w.Count, "slot"), group(slots), isAre(free), asked)
	}
	return turn + " The free slots that it may have are kept for those before it."
}

func thereAre(n uint64) string {
	if n == 1 {
		return "there is 1"
	}
	return "there are " + group(n)
}

// historyRows are the holds that ended last.
func (s *semaphoreView) historyRows(holds []client.Hold) table {
	t := newTable("history", "Holds that ended", "No hold has ended yet.",
		column{"Token", "num id"}, col("Session"), numCol("Units"), numCol("Held for"), col("Ended"), col("Because"))
	if s.slotted() {
		t.Columns = append(t.Columns, col("Slots"))
	}
	for i := range holds {
		h := &holds[i]
		cause := text(strings.ReplaceAll(h.Cause, "_", " "))
		if h.Cause != "released" {
			cause.Kind = "warn"
		}
		r := row{Key: strconv.FormatUint(h.Token, 10), Cells: []cell{
			{Text: group(h.Token), Kind: "num id"}, sessionCell(s.path, h.Session, h.Description), units(h.Count),
			duration(max(0, h.Until.Sub(h.Since))), since(h.Until), cause,
		}}
		if s.slotted() {
			r.Cells = append(r.Cells, text(strings.Join(h.Slots, ", ")))
		}
		t.Rows = append(t.Rows, r)
	}
	return t
}

// aboutSlot is about a slot that is drained, or free again.
func aboutSlot(ctx context.Context, v *viewer, q url.Values) (*target, error) {
	t, err := about(ctx, v, q, semaphorePage, "/semaphore", "name", "slot")
	if err != nil {
		return nil, err
	}
	if !t.only("slots", "Slot that is meant", func(key string) bool { return key == q.Get("slot") }) {
		return nil, &notFoundError{"The semaphore has no such slot now."}
	}
	t.page.Facts = append([]fact{{"semaphore", "Semaphore", text(t.page.Name)}}, t.page.Facts...)
	t.name = q.Get("slot")
	t.page.Name = visible(t.name)
	t.saw("the slot's state", t.page.Tables[0].Rows[0].Cells[slotState].Text)
	return t, nil
}

// slotState is the column of a slot's state.
const slotState = 1

// markFunc is Drain or Undrain of a session.
type markFunc = func(*client.Session, context.Context, string, []string, ...client.ReasonOption) error

// markSlot drains a slot, or ends that.
func markSlot(done string, mark markFunc) doFunc {
	return func(ctx context.Context, v *viewer, t *target, reason string) (string, error) {
		slot := t.q.Get("slot")
		if slot == "" {
			return "", errors.New("the form names no slot")
		}
		return done, v.withSession(ctx, t.path, func(s *client.Session) error {
			return mark(s, ctx, nameOf(t.q), []string{slot}, client.Reason(reason))
		})
	}
}

// maxHoldFact says how long a hold lasts at most.
func maxHoldFact(o *client.SemaphoreConfig) fact {
	c := cell{Text: durationText(o.MaxHold), Note: "then it ends by itself"}
	if o.Extend {
		c.Note = "then it ends by itself, unless its owner asks for more time"
	}
	return fact{"max-hold", "Longest hold", c}
}

// leftCell is how long it takes until an owner's hold ends by itself.
func leftCell(o *client.Owner) cell {
	if o.Left == 0 {
		return cell{Text: "–", Kind: "num quiet none"}
	}
	return until(o.Left)
}

// mayBePreempted reports whether waiters may preempt owners.
func (s *semaphoreView) mayBePreempted() bool {
	return s.sem.Config != nil && s.sem.Config.Preempt != client.PreemptOff
}

// hasBounds reports whether a hold that is shown ends by itself, or may.
func (s *semaphoreView) hasBounds() bool {
	return s.sem.Config != nil && (s.sem.Config.MaxHold > 0 || s.sem.Config.Grace > 0) ||
		slices.ContainsFunc(s.owners, func(o client.Owner) bool { return o.Left > 0 })
}

// preemptedFact says which owners waiters may preempt, and how long the owners have.
func preemptedFact(o *client.SemaphoreConfig) fact {
	c := text("any owner")
	if o.Preempt == client.PreemptLower {
		c = text("owners of a lower level")
	}
	if c.Note = "if a waiter needs their units; they are only asked"; o.Grace > 0 {
		c.Note = "if a waiter needs their units, within " + durationText(o.Grace)
	}
	if o.MinHold > 0 {
		c.Note += " after " + durationText(o.MinHold) + " of holding"
	}
	return fact{"preempt", "Waiters may preempt", c}
}

// preemptedCell shows that a waiter preempts an owner.
func preemptedCell(o *client.Owner) cell {
	switch {
	case o.Silent && o.Preempted:
		return cell{Text: "preempted, silent", Kind: "bad", Note: "it does not answer, and keeps its units"}
	case o.Silent:
		return cell{Text: "silent", Kind: "warn", Note: "it did not answer when it was preempted"}
	case o.Preempted:
		return cell{Text: "preempted", Kind: "warn"}
	}
	return none()
}

// askedText says how many owners are preempted; empty: none is.
func (s *semaphoreView) askedText() string {
	n := uint64(0)
	for i := range s.owners {
		if s.owners[i].Preempted {
			n++
		}
	}
	switch n {
	case 0:
		return ""
	case 1:
		return " 1 owner is preempted."
	}
	return " " + group(n) + " owners are preempted."
}

// silentNotes name the owners that are preempted and do not answer: somebody has to see to them.
func (s *semaphoreView) silentNotes() (notes []note) {
	for i := range s.owners {
		if o := &s.owners[i]; o.Silent && o.Preempted {
			notes = append(notes, note{Tone: "bad",
				Text: fmt.Sprintf("The owner with token %s, “%s”, was preempted, and does not answer. "+
					"It keeps its units until it releases them, its session ends, or an operator releases them by force.",
					group(o.Token), visible(o.Description))})
		}
	}
	return notes
}
