package console

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"net/url"
	"slices"
	"strings"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/protocol"
)

// semaphoresPage lists the semaphores of a node.
func semaphoresPage(ctx context.Context, v *viewer, q url.Values) (p *page, err error) {
	order := q.Get("order")
	if order == byWaiters || order == byAge {
		if p, _, _, err = semaphores.page.ofNode(ctx, v, q, semaphores.path, true); err == nil {
			err = wantedSemaphores(ctx, v, p, order)
		}
	} else {
		p, err = semaphores.show(ctx, v, q)
	}
	if err != nil {
		return nil, err
	}
	p.Filter.Order, p.Filter.Orders = order, semaphoreOrders(p.Node, p.Filter.Prefix, order)
	return p, nil
}

var semaphores = &nodeList[client.SemaphoreInfo]{
	path: "/semaphores", noun: "semaphore", page: page{Section: "Semaphores", Title: "Semaphores in"},
	table: newTable("semaphores", "Semaphores", "No semaphore here.",
		col("Name"), col("Units held"), numCol("Owners"), numCol("Waiters"), col("Kind"), numCol("Data")),
	read: func(ctx context.Context, n *client.Node, prefix string, opts ...client.ReadOption,
	) iter.Seq2[client.SemaphoreInfo, error] {
		return n.List(ctx, prefix, opts...)
	},
	name: func(s *client.SemaphoreInfo) string { return s.Name },
	rows: rowsOf[client.SemaphoreInfo], row: semaphoreRow,
}

// prefixOf is how the names begin that a list shows.
func prefixOf(q url.Values) (string, error) {
	prefix := q.Get("prefix")
	if len(prefix) > protocol.MaxNameLen {
		text := fmt.Sprintf("The prefix is %d bytes long. Names have at most %d.", len(prefix), protocol.MaxNameLen)
		return "", &badRequestError{text}
	}
	return prefix, nil
}

func semaphoreRow(_ context.Context, n *client.Node, s *client.SemaphoreInfo) row {
	data := none()
	if s.DataLen > 0 {
		data = cell{Text: bytesText(s.DataLen)}
	}
	data.Kind += " num"
	return row{Key: encodeName(s.Name), Cells: []cell{
		nameCell(s.Name, semaphoreURL(n.Path(), s.Name)), heldCell(s.Used, s.Limit), zeroQuiet(s.NumOwners),
		waitersCell(s.NumWaiters), quiet(string(kindOfInfo(s))), data,
	}}
}

func heldCell(used, limit uint64) cell {
	return cell{Text: heldText(used, limit), Bar: usedBar(used, limit)}
}

func waitersCell(n uint64) cell {
	c := zeroQuiet(n)
	if n > 0 {
		c.Kind = "num warn"
	}
	return c
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

// Orders of the list of semaphores beside that of their names.
const (
	byWaiters = "waiters"
	byAge     = "age"
)

func semaphoreOrders(path, prefix, current string) (list []choice) {
	orders := []struct{ value, text string }{{"", "by name"}, {byWaiters, "most waiters"}, {byAge, "oldest wait"}}
	for _, o := range orders {
		href := address("/semaphores", "node", path, "prefix", prefix, "order", o.value)
		list = append(list, choice{Text: o.text, Href: href, Current: o.value == current})
	}
	return list
}

// wantedSemaphores lists the semaphores of a node that somebody waits for: those with the most
// waiters first, or those whose first waiter has waited longest. It asks for what the cluster is
// busiest with, whose cost does not grow with the number of semaphores.
func wantedSemaphores(ctx context.Context, v *viewer, p *page, order string) error {
	top, err := v.admin.Top(ctx, p.Node, pageSize)
	if err != nil {
		return err
	}
	missingInstances(p, top)
	wanted := 0 // of the nodes below this one, too
	list := slices.DeleteFunc(top.Semaphores, func(s admin.TopSemaphore) bool {
		if s.Waiters > 0 {
			wanted++
		}
		return s.Waiters == 0 || s.Path != p.Node || !strings.HasPrefix(s.Name, p.Filter.Prefix)
	})
	slices.SortFunc(list, func(a, b admin.TopSemaphore) int {
		waiters, age := cmp.Compare(b.Waiters, a.Waiters), cmp.Compare(b.OldestWait, a.OldestWait)
		if order == byAge {
			waiters, age = age, waiters
		}
		return cmp.Or(waiters, age, cmp.Compare(a.Name, b.Name))
	})
	t := newTable("semaphores", "Semaphores that somebody waits for", "Nobody waits for a semaphore here.",
		col("Name"), col("Units held"), numCol("Owners"), numCol("Waiters"), col("Oldest wait"), col("Kind"))
	if p.Filter.Prefix != "" {
		t.Empty = "Nobody waits for a semaphore whose name begins with “" + visible(p.Filter.Prefix) + "”."
	}
	if wanted >= pageSize {
		t.Count = fmt.Sprintf("of the %d longest queues and the %d oldest waits of each shard, "+
			"in this node and those below it", pageSize, pageSize)
	}
	for i := range list[:min(len(list), pageSize)] {
		s := &list[i]
		t.Rows = append(t.Rows, row{Key: encodeName(s.Name), Cells: []cell{
			nameCell(s.Name, semaphoreURL(p.Node, s.Name)), heldCell(s.Used, s.Limit), zeroQuiet(uint64(s.Owners)),
			waitersCell(uint64(s.Waiters)), ago(s.OldestWait), topKind(s),
		}})
	}
	p.Tables = []table{t}
	return nil
}
