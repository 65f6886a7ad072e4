package gateway

import (
	"fmt"
	"time"

	"github.com/signalbox-dev/signalbox/client"
)

// mostShown is how many holders, waiters and steps have a sentence.
const mostShown = 3

// Words quote names and texts of other clients in the sentences of Explain.
type Words struct {
	Session func(id uint64, description string) string
	Name    func(name string) string // of a semaphore
	Data    func(data []byte) string // of a holder or waiter; it has some
}

// Explain says who holds a semaphore and why its waiters wait, in sentences for the callers of a
// gateway, the most important first. Names and texts of others are shown by words alone. self is
// the session that asks, 0 for none.
func (words Words) Explain(name string, self uint64, q *client.QueueStatus) (lines []string) {
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	if d := q.Deadlock; d != nil {
		switch {
		case !d.Confirmed:
			add("It looks like a deadlock; ask again to be sure:")
		case d.Has(self):
			add("Deadlock, and the session that asks is in it: release what you hold, then lock all names in one call.")
		default:
			add("Deadlock: these sessions wait for each other until one gives up a wait, or what it holds.")
		}
		for _, s := range d.Steps[:min(2*mostShown, len(d.Steps))] {
			add("%s", words.step(s))
		}
	}
	if own := words.Session(q.Own.Session, q.Own.Description); q.Waiting && q.Position == 0 {
		add("%s waits since %s, behind the first of the queue.", own, clockText(q.Own.Since))
	} else if q.Waiting {
		add("%s waits since %s, at place %d of the queue.", own, clockText(q.Own.Since), q.Position)
	}
	for _, h := range q.Holders[:min(mostShown, len(q.Holders))] {
		add("%s holds %s since %s%s.", words.Session(h.Session, h.Description), words.Name(name), clockText(h.Since),
			words.note(h.Data))
	}
	if n := len(q.Holders) - mostShown; n > 0 {
		add("More that hold it: %d.", n)
	}
	if free := FreeSlots(q); q.Config != nil && len(q.Config.Slots) > 0 {
		text := ""
		for _, slot := range free[:min(mostShown, len(free))] {
			text += ", " + words.Data([]byte(slot))
		}
		add("Slots that are free for it: %d%s.", len(free), text)
	} else if q.Limit != client.Max {
		add("Free units: %d of %d.", q.Free, q.Limit)
	}
	if w, ok := q.NeverGranted(); ok {
		add("%s wants more than there is, and waits until an operator adds units or slots.",
			words.Session(w.Session, w.Description))
	}
	for _, w := range q.Ahead[:min(mostShown, len(q.Ahead))] {
		add("%s waits for it since %s%s.", words.Session(w.Session, w.Description), clockText(w.Since),
			words.note(w.Data))
	}
	if n := len(q.Ahead) - mostShown; n > 0 {
		add("More that wait: %d.", n)
	}
	for _, s := range q.Behind[:min(mostShown, len(q.Behind))] {
		add("In turn, %s", words.step(s))
	}
	if q.Unread != "" {
		add("Not read: %s.", words.Data([]byte(q.Unread)))
	}
	return lines
}

// step is [client.WaitStep]'s sentence in words.
func (words Words) step(s client.WaitStep) string {
	from, by := words.Session(s.Session, s.Description), words.Session(s.By, s.ByDescription)
	switch {
	case s.Name == "":
		return fmt.Sprintf("%s waits for the end of %s, which its command started.", from, by)
	case s.Holds:
		return fmt.Sprintf("%s waits for %s, which %s holds since %s.", from, words.Name(s.Name), by,
			clockText(s.BySince))
	}
	return fmt.Sprintf("%s waits for %s, where %s is ahead.", from, words.Name(s.Name), by)
}

func (words Words) note(data []byte) string {
	if len(data) == 0 {
		return ""
	}
	return ", with the note " + words.Data(data)
}

func clockText(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

// FreeSlots lists the names of the free slots: of those that the waiter takes, while one waits.
func FreeSlots(q *client.QueueStatus) (list []string) {
	if q.Config == nil {
		return nil
	}
	slots := q.Config.Slots
	if q.Waiting {
		slots = q.Config.Takes(&q.Own)
	}
	for _, s := range slots {
		if s.State == client.SlotFree {
			list = append(list, s.Name)
		}
	}
	return list
}
