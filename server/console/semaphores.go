package console

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/protocol"
)

// semaphoresPage lists the semaphores of a node.
func semaphoresPage(ctx context.Context, v *viewer, q url.Values) (*page, error) {
	path, err := nodeOf(q)
	if err != nil {
		return nil, err
	}
	prefix := q.Get("prefix")
	if len(prefix) > protocol.MaxNameLen {
		return nil, &badRequestError{fmt.Sprintf("The prefix is %d bytes long. Names have at most %d.", len(prefix), protocol.MaxNameLen)}
	}
	after := ""
	if text := q.Get("after"); text != "" {
		if after, err = decodeName(text); err != nil {
			return nil, err
		}
	}
	n, err := v.client.Node(ctx, path)
	if err != nil {
		return nil, err
	}
	p := &page{Section: "Semaphores", Node: path, Title: "Semaphores in", Name: visible(path), Crumbs: nodeCrumbs(path), Filter: &filter{Node: path, Prefix: prefix}}
	t := semaphoreTable("Semaphores", "No semaphore here.")
	if prefix != "" {
		t.Empty = "No semaphore has a name that begins with “" + visible(prefix) + "”."
	}
	if after != "" {
		t.First = address("/semaphores", "node", path, "prefix", prefix)
	}
	last := ""
	for s, err := range n.List(ctx, prefix, client.After(after), client.MaxItems(pageSize+1)) {
		if err != nil {
			return nil, err
		}
		if len(t.Rows) == pageSize {
			t.Next = address("/semaphores", "node", path, "prefix", prefix, "after", encodeName(last))
			break
		}
		last = s.Name
		t.Rows = append(t.Rows, semaphoreRow(path, &s))
	}
	p.Tables = []table{t}
	return p, nil
}

func semaphoreTable(title, empty string) table {
	return table{ID: "semaphores", Title: title, Empty: empty, Columns: []column{{Title: "Name"}, {Title: "Units held"}, {"Owners", "num"}, {"Waiters", "num"}, {Title: "Kind"}, {"Data", "num"}}}
}

func semaphoreRow(path string, s *client.SemaphoreInfo) row {
	kind := quiet("persistent")
	if s.Ephemeral {
		kind = quiet("ephemeral")
	}
	waiters := zeroQuiet(s.NumWaiters)
	if s.NumWaiters > 0 {
		waiters.Kind = "num warn"
	}
	data := quiet("–")
	if s.DataLen > 0 {
		data = cell{Text: bytesText(s.DataLen)}
	}
	data.Kind += " num"
	return row{Key: encodeName(s.Name), Cells: []cell{
		nameCell(s.Name, semaphoreURL(path, s.Name)), {Text: heldText(s.Used, s.Limit), Bar: usedBar(s.Used, s.Limit)}, zeroQuiet(s.NumOwners), waiters, kind, data,
	}}
}

// heldText says in words what the bar shows. A lock is held or free.
func heldText(used, limit uint64) string {
	switch {
	case limit == 1 && used == 1, limit == client.Max && used == client.Max:
		return "held"
	case used == 0:
		if limit == client.Max || limit == 1 {
			return "free"
		}
		return "0 of " + amount(limit)
	case limit == client.Max:
		return group(used) + ", shared"
	}
	return amount(used) + " of " + amount(limit)
}

// semaphorePage shows one semaphore: who holds it, who waits, since when and why.
func semaphorePage(ctx context.Context, v *viewer, q url.Values) (*page, error) {
	path, err := nodeOf(q)
	if err != nil {
		return nil, err
	}
	name, err := decodeName(q.Get("name"))
	if err != nil {
		return nil, err
	}
	n, err := v.client.Node(ctx, path)
	if err != nil {
		return nil, err
	}
	p := &page{
		Section: "Semaphores", Node: path, Title: "Semaphore", Name: visible(name),
		Crumbs: nodeCrumbs(path, link{"Semaphores", address("/semaphores", "node", path)}),
	}
	owners := table{ID: "owners", Title: "Owners", Empty: "Nobody holds it.", Columns: []column{
		{Title: "Session"}, {Title: "Description"}, {"Units", "num"}, {Title: "Held for"}, {"Token", "num"}, {Title: "Data"},
	}}
	queue := table{ID: "queue", Title: "Queue", Empty: "Nobody waits.", Columns: []column{
		{Title: "Place"}, {Title: "Session"}, {Title: "Description"}, {"Wants", "num"}, {Title: "Waiting for"}, {"Gives up after", "num"}, {Title: "Why it waits"}, {"Token", "num"},
	}}
	here := func(pairs ...string) string {
		return address("/semaphore", append([]string{"node", path, "name", encodeName(name)}, pairs...)...)
	}
	opts := []client.ReadOption{client.MaxItems(pageSize)}
	ownersAfter, queueAfter := number64(q.Get("owners")), number64(q.Get("queue"))
	sem, err := n.Describe(ctx, name, append(opts, client.IncludeOwners(), ownersFrom(ownersAfter))...)
	if errors.Is(err, client.NotFound) {
		p.missing = true
		p.Notes = []note{{"warn", "There is no such semaphore now. An ephemeral one, such as a lock, exists only while somebody holds it or waits for it. This page shows it as soon as it is there."}}
		p.Tables = []table{owners, queue}
		return p, nil
	}
	if err != nil {
		return nil, err
	}
	waiting, err := n.Describe(ctx, name, append(opts, client.IncludeWaiters(), client.AfterToken(queueAfter))...)
	if errors.Is(err, client.NotFound) {
		waiting, err = &client.Semaphore{}, nil
	}
	if err != nil {
		return nil, err
	}
	operates := v.mayOperate(ctx, path)
	if operates {
		owners.Columns = append(owners.Columns, column{Title: "Action"})
		if !sem.Ephemeral {
			p.offer(ctx, v, "Resize", "resize", "node", path, "name", encodeName(name))
		}
	}
	shown := sem.Owners
	for i := range shown {
		o := &shown[i]
		owners.Rows = append(owners.Rows, row{Key: strconv.FormatUint(o.Token, 10), Cells: []cell{
			sessionCell(path, o.Session), text(visible(o.Description)), units(o.Count), since(o.Since), number(o.Token), dataCell(path, name, o.Token, o.Data),
		}})
		if operates {
			cells := &owners.Rows[i].Cells
			*cells = append(*cells, cell{Text: "Force release", Href: actionURL("force-release", "node", path, "name", encodeName(name), "token", strconv.FormatUint(o.Token, 10))})
		}
	}
	if uint64(len(shown)) < sem.NumOwners {
		owners.Count = fmt.Sprintf("%s of %s", group(uint64(len(shown))), group(sem.NumOwners))
		if len(shown) > 0 && (ownersAfter > 0 || len(shown) < int(sem.NumOwners)) && len(shown) == pageSize {
			owners.Next = here("owners", strconv.FormatUint(shown[len(shown)-1].Token, 10))
		}
		if ownersAfter > 0 {
			owners.First = here()
		}
	}
	queueRows(&queue, path, sem, waiting, int(number64(q.Get("place"))), here)
	if queueAfter > 0 {
		queue.First = here()
	}

	p.Figure = &figure{Bar: ownerBar(sem, ownersAfter == 0), Text: holdsText(sem)}
	p.Notes = whyNotes(sem, waiting, queueAfter == 0)
	p.Facts = []fact{
		{"limit", "Limit", text(amount(sem.Limit))},
		{"used", "Units held", text(amount(sem.Used))},
		{"owners", "Owners", text(group(sem.NumOwners))},
		{"waiters", "Waiters", text(group(sem.NumWaiters))},
		{"kind", "Kind", text(kindText(sem.Ephemeral))},
		{"created", "Created", since(sem.CreatedAt)},
	}
	if len(sem.Data) > 0 {
		d := dataCell(path, name, 0, sem.Data)
		p.Facts = append(p.Facts, fact{"data", "Data, version " + group(sem.Version), d})
	}
	p.Tables = []table{owners, queue}
	return p, nil
}

// ownersFrom begins the list of owners; the first page has the semaphore's data too.
func ownersFrom(after uint64) client.ReadOption {
	if after == 0 {
		return client.MaxItems(pageSize)
	}
	return client.AfterToken(after)
}

func number64(s string) uint64 {
	n, _ := strconv.ParseUint(s, 10, 64)
	return n
}

func kindText(ephemeral bool) string {
	if ephemeral {
		return "ephemeral"
	}
	return "persistent"
}

// queueRows are the waiters, each with the reason why it waits. place is how many are ahead of the
// first row, as of when the page before was shown.
func queueRows(t *table, path string, sem, waiting *client.Semaphore, place int, here func(pairs ...string) string) {
	free := uint64(0)
	if sem.Limit > sem.Used {
		free = sem.Limit - sem.Used
	}
	never := false
	for i := range waiting.Waiters {
		w := &waiting.Waiters[i]
		why := ""
		switch at := place + i + 1; {
		case w.Count > sem.Limit:
			why = fmt.Sprintf("It wants %s of a limit of %s: it is never granted unless the limit is raised.", amount(w.Count), amount(sem.Limit))
			never = true
		case never:
			why = "It is behind a waiter that is never granted. The queue is strict."
		case at == 1 && sem.Used > sem.Limit:
			why = "The limit was lowered below what is held. Units have to be released first."
		case at == 1 && free == 0:
			why = "It is next. All units are held."
		case at == 1:
			why = fmt.Sprintf("It is next. It wants %s, and %s free.", amount(w.Count), isAre(free))
		case at == 2:
			why = "It is behind 1 waiter. The queue is strict: first come, first served."
		default:
			why = fmt.Sprintf("It is behind %s waiters.", group(uint64(at-1)))
		}
		ends := quiet("never")
		if w.Timeout != client.Forever {
			ends = cell{Text: durationText(w.Timeout)}
			if left := w.Timeout - time.Since(w.Since); left > 0 {
				ends.Note = "until " + w.Since.Add(w.Timeout).UTC().Format("15:04:05") + " UTC"
			}
		}
		ends.Kind = "num " + ends.Kind
		r := row{Key: strconv.FormatUint(w.Token, 10), Cells: []cell{
			text(group(uint64(place + i + 1))), sessionCell(path, w.Session), {Text: visible(w.Description), Kind: "about"}, units(w.Count), since(w.Since), ends, {Text: why, Kind: "wide"}, number(w.Token),
		}}
		if len(w.Data) > 0 {
			r.Cells[2].Note = "data: " + visible(string(cut(w.Data, 120)))
		}
		t.Rows = append(t.Rows, r)
	}
	if n := len(waiting.Waiters); n > 0 && uint64(place+n) < sem.NumWaiters {
		t.Count = fmt.Sprintf("%s to %s of %s", group(uint64(place+1)), group(uint64(place+n)), group(sem.NumWaiters))
		t.Next = here("queue", strconv.FormatUint(waiting.Waiters[n-1].Token, 10), "place", strconv.Itoa(place+n))
	}
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
	case s.Used == 0:
		return "Free: nobody holds it" + waiters
	case s.Used == s.Limit && s.NumOwners == 1:
		return "Held by 1 owner, whole" + waiters
	case s.Limit == client.Max:
		return "Shared by " + plural(s.NumOwners, "owner") + waiters
	case s.Used > s.Limit:
		return fmt.Sprintf("%s units held, above the limit of %s, by %s%s", amount(s.Used), amount(s.Limit), plural(s.NumOwners, "owner"), waiters)
	}
	return fmt.Sprintf("%s of %s units held by %s; %s free%s", amount(s.Used), amount(s.Limit), plural(s.NumOwners, "owner"), amount(s.Limit-s.Used), waiters)
}

// whyNotes say why the queue does not get on, if there is more to it than the owners.
func whyNotes(sem, waiting *client.Semaphore, first bool) (notes []note) {
	if sem.Used > sem.Limit {
		notes = append(notes, note{"warn", fmt.Sprintf("%s units are held and the limit is %s: it was lowered. Nothing is granted until what is held fits.", amount(sem.Used), amount(sem.Limit))})
	}
	for i := range waiting.Waiters {
		if w := &waiting.Waiters[i]; w.Count > sem.Limit {
			behind := ""
			if uint64(i+1) < sem.NumWaiters || !first {
				behind = ", and nobody behind it"
			}
			notes = append(notes, note{"bad", fmt.Sprintf("The waiter with token %s wants %s of a limit of %s. It can never be granted%s, unless the limit is raised or it leaves the queue.", group(w.Token), amount(w.Count), amount(sem.Limit), behind)})
			break
		}
	}
	return notes
}

// ownerBar has a part for each owner, as far as they can be told apart.
func ownerBar(s *client.Semaphore, all bool) bar {
	b := *usedBar(s.Used, s.Limit)
	if s.Used > s.Limit || !all || len(s.Owners) < 2 || len(s.Owners) > 40 || uint64(len(s.Owners)) != s.NumOwners || s.Limit == client.Max {
		return b
	}
	b.Parts = nil
	from, sum := 0, uint64(0)
	for i := range s.Owners {
		sum += s.Owners[i].Count
		to := thousandths(sum, s.Limit)
		if to > from {
			b.Parts = append(b.Parts, barPart{from, to - from, "held"})
		}
		from = to
	}
	return b
}

// dataCell shows the first of data, with a link to all of it if it is long.
func dataCell(node, name string, token uint64, data []byte) cell {
	if len(data) == 0 {
		return quiet("–")
	}
	c := cell{Text: visibleLines(string(cut(data, maxShown))), Kind: "data"}
	if token > 0 {
		c.Text = visible(string(cut(data, 200)))
		if len(data) > 200 {
			c.Text += "…"
		}
	}
	if len(data) > len(c.Text) && (token == 0 && len(data) > maxShown || token > 0 && len(data) > 200) {
		c.Note = "The first part of " + bytesText(uint64(len(data))) + "; follow the text to download all of it."
		pairs := []string{"node", node, "name", encodeName(name)}
		if token > 0 {
			pairs = append(pairs, "token", strconv.FormatUint(token, 10))
		}
		c.Href = address("/data", pairs...)
	}
	return c
}

func readData(ctx context.Context, v *viewer, q url.Values) ([]byte, error) {
	path, err := nodeOf(q)
	if err != nil {
		return nil, err
	}
	name, err := decodeName(q.Get("name"))
	if err != nil {
		return nil, err
	}
	n, err := v.client.Node(ctx, path)
	if err != nil {
		return nil, err
	}
	token := number64(q.Get("token"))
	if token == 0 {
		sem, err := n.Describe(ctx, name, client.MaxItems(1))
		if err != nil {
			return nil, err
		}
		return sem.Data, nil
	}
	sem, err := n.Describe(ctx, name, client.IncludeOwners(), client.AfterToken(token-1), client.MaxItems(1))
	if err != nil {
		return nil, err
	}
	if len(sem.Owners) == 0 || sem.Owners[0].Token != token {
		return nil, &notFoundError{"This owner has released what it held."}
	}
	return sem.Owners[0].Data, nil
}
