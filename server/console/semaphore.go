package console

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/signalbox-dev/signalbox/client"
)

// semaphoreView is one semaphore as its page reads it.
type semaphoreView struct {
	path, name string

	sem                     *client.Semaphore
	owners                  []client.Owner
	waiters                 []client.Waiter
	moreOwners, moreWaiters bool // behind those shown

	// Where the page's parts begin: behind these tokens, 0 for the first owners and waiters. place
	// is how many waiters are ahead.
	ownersAfter, queueAfter uint64
	place                   int
}

// semaphorePage shows one semaphore: who holds it, who waits, since when and why.
func semaphorePage(ctx context.Context, v *viewer, q url.Values) (*page, error) {
	path, n, name, err := objectOf(ctx, v, q)
	if err != nil {
		return nil, err
	}
	p := &page{
		Section: "Semaphores", Node: path, Title: "Semaphore", Name: visible(name),
		Crumbs: nodeCrumbs(path, link{"Semaphores", address("/semaphores", "node", path)}),
	}
	s := &semaphoreView{
		path: path, name: name,
		ownersAfter: number64(q.Get("owners")), queueAfter: number64(q.Get("queue")), place: int(number64(q.Get("place"))),
	}
	if err := s.read(ctx, n); errors.Is(err, client.ErrNotFound) {
		p.missing = true
		p.Notes = []note{{Tone: "warn",
			Text: "There is no such semaphore now. An ephemeral one, such as a lock, exists only while " +
				"somebody holds it or waits for it. This page shows it as soon as it is there."}}
		p.Tables = []table{ownersTable(), queueTable()}
		return p, nil
	} else if err != nil {
		return nil, err
	}
	kind := kindOf(name, s.sem.Limit, s.sem.Used, s.sem.Ephemeral)
	if kind == kindConfiguration {
		if values, err := n.Config(strings.TrimPrefix(name, client.ConfigPrefix)).History(ctx,
			client.ReadConsistency(client.Relaxed)); err == nil {
			s.configuration(p, values)
			return p, nil
		}
		p.note("bad", "Its data is no configuration: something else than a configuration's Set has changed it.")
	}
	operates := v.mayOperate(ctx, path)
	if operates && !s.sem.Ephemeral && (!s.slotted() || s.sem.Config.Numbered) { // other slots are altered by name
		p.offer(ctx, v, "Resize", "resize", "node", path, "name", encodeName(name))
	}
	p.Figure = &figure{Bar: ownerBar(s.sem, s.owners), Text: holdsText(s.sem)}
	p.Notes = append(p.Notes, s.whyNotes()...)
	p.Facts = []fact{
		{"limit", "Limit", text(amount(s.sem.Limit))},
		{"used", "Units held", text(amount(s.sem.Used))},
		{"owners", "Owners", text(group(s.sem.NumOwners))},
		{"waiters", "Waiters", text(group(s.sem.NumWaiters))},
		{"kind", "Kind", text(string(kind))},
		{"created", "Created", since(s.sem.CreatedAt)},
	}
	p.Facts = append(p.Facts, s.optionFacts()...)
	if len(s.sem.Data) > 0 {
		label := "Data, version " + group(s.sem.Version)
		p.Facts = append(p.Facts, fact{"data", label, dataCell(path, name, 0, s.sem.Data)})
	}
	owners, queue := s.ownerRows(operates), s.queueRows()
	p.Tables = []table{owners, queue}
	if s.slotted() {
		p.Tables = slices.Insert(p.Tables, 0, s.slotRows(operates))
	}
	if s.sem.Config != nil && s.sem.Config.History > 0 {
		holds, err := n.History(ctx, s.name)
		if err != nil {
			return nil, err
		}
		if len(holds) > 0 {
			l := timeline{s.sem.Config.Slots, s.owners, holds}
			p.Tables = append(p.Tables, l.table(time.Now()))
		}
		p.Tables = append(p.Tables, s.historyRows(holds))
	}
	if isService(s.sem.Limit, s.sem.Used, s.owners) {
		if err := s.service(ctx, v, n, q, p); err != nil {
			return nil, err
		}
		if len(queue.Rows) > 0 {
			p.Tables = append(p.Tables, queue)
		}
	}
	if kind == kindWhole {
		p.Section, p.Title = "Elections", "Lock or election"
		p.Crumbs = nodeCrumbs(path, link{"Elections", address("/elections", "node", path)})
	}
	return p, nil
}

// read reads the semaphore in one request if the first owners and waiters are shown, and there are
// not too many owners; otherwise in two.
func (s *semaphoreView) read(ctx context.Context, n *client.Node) (err error) {
	opts := []client.ReadOption{client.IncludeOwners(), client.IncludeWaiters(), client.IncludeSlots(),
		client.MaxItems(2 * pageSize)}
	if s.sem, err = n.Describe(ctx, s.name, opts...); err != nil {
		return err
	}
	s.owners = s.sem.Owners[:min(len(s.sem.Owners), pageSize)]
	s.waiters = s.sem.Waiters[:min(len(s.sem.Waiters), pageSize)]
	s.moreOwners = uint64(len(s.owners)) < s.sem.NumOwners
	s.moreWaiters = uint64(len(s.waiters)) < s.sem.NumWaiters
	if s.ownersAfter > 0 {
		later, more, err := s.behind(ctx, n, client.IncludeOwners(), s.ownersAfter)
		if err != nil {
			return err
		}
		s.owners, s.moreOwners = later.Owners, more
	}
	if s.laned() {
		return s.readLanes(ctx, n)
	}
	if s.queueAfter > 0 || s.sem.NumWaiters > 0 && len(s.waiters) == 0 {
		later, more, err := s.behind(ctx, n, client.IncludeWaiters(), s.queueAfter)
		if err != nil {
			return err
		}
		s.waiters, s.moreWaiters = later.Waiters, more
	}
	s.place = s.ahead()
	return nil
}

// ahead is how many waiters are ahead of the page's. The address says how many they were; waiters
// only leave, so what is known of the first and of the last page corrects it.
func (s *semaphoreView) ahead() int {
	if len(s.waiters) == 0 {
		return s.place
	}
	first := s.waiters[0].Place
	if i := slices.IndexFunc(s.sem.Waiters, func(w client.Waiter) bool { return w.Place == first }); i >= 0 {
		return i
	}
	most := max(0, int(s.sem.NumWaiters)-len(s.waiters))
	if s.moreWaiters {
		return max(0, min(s.place, most-1))
	}
	return most
}

// behind reads a page of the owners or of the waiters behind a token; more: there is another page.
// A server cuts a page of much data short, so fewer than were asked for may not be the last.
func (s *semaphoreView) behind(
	ctx context.Context, n *client.Node, part client.ReadOption, token uint64,
) (page *client.Semaphore, more bool, err error) {
	page, err = n.Describe(ctx, s.name, part, client.AfterToken(token), client.MaxItems(pageSize+1))
	if err != nil {
		return nil, false, err
	}
	owners, waiters := len(page.Owners), len(page.Waiters) // one of them is 0
	switch {
	case owners > pageSize || waiters > pageSize:
		page.Owners, page.Waiters = page.Owners[:min(owners, pageSize)], page.Waiters[:min(waiters, pageSize)]
		return page, true, nil
	case owners > 0:
		token = page.Owners[owners-1].Token
	case waiters > 0:
		token = page.Waiters[waiters-1].Place
	default:
		return page, false, nil
	}
	next, err := n.Describe(ctx, s.name, part, client.AfterToken(token), client.MaxItems(1))
	if err != nil {
		return nil, false, err
	}
	return page, len(next.Owners)+len(next.Waiters) > 0, nil
}

// at is the address of the page from other owners or waiters on.
func (s *semaphoreView) at(pairs ...string) string {
	return address("/semaphore", append([]string{"node", s.path, "name", encodeName(s.name)}, pairs...)...)
}

func ownersTable() table {
	return newTable("owners", "Owners", "Nobody holds it.",
		col("Session"), numCol("Units"), col("Held for"), numCol("Token"), col("Data"))
}

// ownerUnits is the column of an owner's units.
const ownerUnits = 1

func queueTable() table {
	return newTable("queue", "Queue", "Nobody waits.",
		col("Place"), col("Session"), numCol("Wants"), col("Waiting for"), numCol("Gives up in"),
		col("Why it waits"), numCol("Token"))
}

func (s *semaphoreView) ownerRows(operates bool) table {
	t := ownersTable()
	if s.slotted() {
		t.Columns = append(t.Columns, col("Slots"))
	}
	if s.laned() {
		t.Columns = append(t.Columns, col("Asked with"))
	}
	if s.hasBounds() {
		t.Columns = append(t.Columns, numCol("Ends in"))
	}
	if s.mayBePreempted() {
		t.Columns = append(t.Columns, col("Preempted"))
	}
	if operates {
		t.Columns = append(t.Columns, col(actionColumn))
	}
	for i := range s.owners {
		o := &s.owners[i]
		token := strconv.FormatUint(o.Token, 10)
		r := row{Key: token, Cells: []cell{
			sessionCell(s.path, o.Session, o.Description), units(o.Count), since(o.Since), number(o.Token),
			dataCell(s.path, s.name, o.Token, o.Data),
		}}
		if s.slotted() {
			r.Cells = append(r.Cells, text(strings.Join(o.Slots, ", ")))
		}
		if s.laned() {
			r.Cells = append(r.Cells, s.laneCell(o.Priority, o.Key, nil, nil))
		}
		if s.hasBounds() {
			r.Cells = append(r.Cells, leftCell(o))
		}
		if s.mayBePreempted() {
			r.Cells = append(r.Cells, preemptedCell(o))
		}
		if operates {
			release := actionURL("force-release", "node", s.path, "name", encodeName(s.name), "token", token)
			r.Cells = append(r.Cells, cell{Text: "Force release", Href: release})
		}
		t.Rows = append(t.Rows, r)
	}
	if shown := len(s.owners); uint64(shown) < s.sem.NumOwners {
		t.Count = fmt.Sprintf("%s of %s", group(uint64(shown)), group(s.sem.NumOwners))
		if s.moreOwners && shown > 0 {
			t.Next = s.at("owners", strconv.FormatUint(s.owners[shown-1].Token, 10))
		}
	}
	if s.ownersAfter > 0 {
		t.First = s.at()
	}
	return t
}

// queueRows are the waiters, each with the reason why it waits.
func (s *semaphoreView) queueRows() table {
	t := queueTable()
	if s.laned() {
		t.Columns[0].Title, t.Columns[len(t.Columns)-1].Title = "Served", "Place" // the token is given with the grant
		t.Columns = slices.Insert(t.Columns, 1, col("Lane"))
	}
	first := s.firstNever()
	for i := range s.waiters {
		w := &s.waiters[i]
		place, never := s.place+i+1, first != nil && w.Place > first.Place
		r := row{Key: strconv.FormatUint(w.Place, 10), Cells: []cell{
			{Text: group(uint64(place)), Kind: "place"}, sessionCell(s.path, w.Session, w.Description),
			units(w.Count), since(w.Since), givesUp(w), {Text: s.why(w, place, never), Kind: "wide"}, number(w.Place),
		}}
		if len(w.Data) > 0 {
			r.Cells[1].Note = "data: " + visibleData(string(cut(w.Data, 120)))
		}
		if s.laned() {
			r.Cells[0].Text = "later"
			if w.Rank > 0 {
				r.Cells[0].Text = strconv.Itoa(w.Rank)
			}
			r.Cells = slices.Insert(r.Cells, 1, s.laneCell(w.Priority, w.Key, w.Labels, w.Slots))
		}
		t.Rows = append(t.Rows, r)
	}
	if n := len(s.waiters); n > 0 && uint64(n) < s.sem.NumWaiters {
		t.Count = fmt.Sprintf("%s to %s of %s",
			group(uint64(s.place+1)), group(uint64(s.place+n)), group(s.sem.NumWaiters))
		if s.moreWaiters {
			t.Next = s.at("queue", strconv.FormatUint(s.waiters[n-1].Place, 10), "place", strconv.Itoa(s.place+n))
		}
	}
	if s.queueAfter > 0 {
		t.First = s.at()
	}
	return t
}

// why is the reason for which a waiter waits. never: one ahead of it is never granted.
func (s *semaphoreView) why(w *client.Waiter, place int, never bool) string {
	limit, used := s.sem.Limit, s.sem.Used
	free := limit - min(used, limit)
	switch {
	case w.Count > limit:
		return fmt.Sprintf("It wants %s of a limit of %s: it is never granted unless the limit is raised.",
			amount(w.Count), amount(limit))
	case s.laned():
		return s.laneWhy(w)
	case never:
		return "It is behind a waiter that is never granted. The queue is strict."
	case place == 1 && used > limit:
		return "The limit was lowered below what is held. Units have to be released first."
	case place == 1 && free == 0:
		return "It is next. All units are held."
	case place == 1:
		return fmt.Sprintf("It is next. It wants %s, and %s free.", amount(w.Count), isAre(free))
	case place == 2:
		return "It is behind 1 waiter. The queue is strict: first come, first served."
	}
	return fmt.Sprintf("It is behind %s waiters.", group(uint64(place-1)))
}

func givesUp(w *client.Waiter) cell {
	if w.Timeout == client.Forever {
		return cell{Text: "never", Kind: "num quiet"}
	}
	return cell{At: millis(w.Since.Add(w.Timeout)), Left: true, Kind: "num"}
}

func isAre(n uint64) string {
	if n == 1 {
		return "1 is"
	}
	return amount(n) + " are"
}

// holdsText is the state of a semaphore in a sentence.
func holdsText(s *client.Semaphore) string {
	waiters := ""
	if s.NumWaiters > 0 {
		waiters = "; " + plural(s.NumWaiters, "waiter")
	}
	switch {
	case s.Config != nil && len(s.Config.Slots) > 0: // a slot that nobody holds may be drained
		return fmt.Sprintf("%s: %s; %s%s", plural(uint64(len(s.Config.Slots)), "slot"), slotCounts(s.Config),
			plural(s.NumOwners, "owner"), waiters)
	case s.Used == 0:
		return "Free: nobody holds it" + waiters
	case s.Used == s.Limit && s.NumOwners == 1:
		return "Held by 1 owner, whole" + waiters
	case s.Limit == client.Max:
		return "Shared by " + plural(s.NumOwners, "owner") + waiters
	case s.Used > s.Limit:
		return fmt.Sprintf("%s units held, above the limit of %s, by %s%s",
			amount(s.Used), amount(s.Limit), plural(s.NumOwners, "owner"), waiters)
	}
	return fmt.Sprintf("%s of %s units held by %s; %s free%s",
		amount(s.Used), amount(s.Limit), plural(s.NumOwners, "owner"), amount(s.Limit-s.Used), waiters)
}

// firstNever is the first waiter, of those that are known, that wants more than the limit.
func (s *semaphoreView) firstNever() *client.Waiter {
	for _, list := range [][]client.Waiter{s.sem.Waiters, s.waiters} {
		for i := range list {
			if list[i].Count > s.sem.Limit {
				return &list[i]
			}
		}
	}
	return nil
}

// whyNotes say why the queue does not get on, if there is more to it than the owners.
func (s *semaphoreView) whyNotes() (notes []note) {
	notes = s.silentNotes()
	if s.sem.Used > s.sem.Limit {
		notes = append(notes, note{Tone: "warn", Text: fmt.Sprintf(
			"%s units are held and the limit is %s: it was lowered. Nothing is granted until what is held fits.",
			amount(s.sem.Used), amount(s.sem.Limit))})
	}
	if w := s.firstNever(); w != nil && !s.laned() {
		behind := ", and nobody behind it"
		if n := len(s.sem.Waiters); n > 0 && uint64(n) == s.sem.NumWaiters && s.sem.Waiters[n-1].Place == w.Place {
			behind = ""
		}
		notes = append(notes, note{Tone: "bad", Text: fmt.Sprintf(
			"The waiter at place %s wants %s of a limit of %s. It can never be granted%s, "+
				"unless the limit is raised or it leaves the queue.",
			group(w.Place), amount(w.Count), amount(s.sem.Limit), behind)})
	}
	return notes
}

// ownerBar has a part for each owner, as far as they are all shown and can be told apart.
func ownerBar(s *client.Semaphore, owners []client.Owner) bar {
	b := *usedBar(s.Used, s.Limit)
	all := uint64(len(owners)) == s.NumOwners
	if s.Used > s.Limit || s.Limit == client.Max || len(owners) < 2 || len(owners) > 40 || !all {
		return b
	}
	b.Parts = nil
	from, sum := 0, uint64(0)
	for i := range owners {
		sum += owners[i].Count
		to := thousandths(sum, s.Limit)
		if to > from {
			b.Parts = append(b.Parts, barPart{From: from, Size: to - from, Kind: "held"})
		}
		from = to
	}
	return b
}
