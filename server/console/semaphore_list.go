package console

import (
	"context"
	"fmt"
	"net/url"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/protocol"
)

// semaphoresPage lists the semaphores of a node.
func semaphoresPage(ctx context.Context, v *viewer, q url.Values) (*page, error) {
	path, n, after, err := listOf(ctx, v, q)
	if err != nil {
		return nil, err
	}
	prefix, err := prefixOf(q)
	if err != nil {
		return nil, err
	}
	order := q.Get("order")
	p := &page{
		Section: "Semaphores", Node: path, Title: "Semaphores in", Name: visible(path), Crumbs: nodeCrumbs(path),
		Filter: &filter{Action: "/semaphores", Node: path, Prefix: prefix, Order: order,
			Orders: semaphoreOrders(path, prefix, order)},
	}
	if order == byWaiters || order == byAge {
		return p, wantedSemaphores(ctx, v, p, order)
	}
	t := semaphoreTable("Semaphores", "No semaphore here.")
	if prefix != "" {
		t.Empty = "No semaphore has a name that begins with “" + visible(prefix) + "”."
	}
	if after != "" {
		t.First = address("/semaphores", "node", path, "prefix", prefix)
	}
	err = fill(&t, n.List(ctx, prefix, client.After(after), client.MaxItems(pageSize+1)),
		func(s *client.SemaphoreInfo) row {
			return rowOf(ctx, *s, func(s *client.SemaphoreInfo) row { return semaphoreRow(path, s) })
		}, func(last *client.SemaphoreInfo) string {
			return address("/semaphores", "node", path, "prefix", prefix, "after", encodeName(last.Name))
		})
	p.Tables = []table{t}
	return p, err
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

func semaphoreTable(title, empty string) table {
	return newTable("semaphores", title, empty,
		col("Name"), col("Units held"), numCol("Owners"), numCol("Waiters"), col("Kind"), numCol("Data"))
}

func semaphoreRow(path string, s *client.SemaphoreInfo) row {
	data := none()
	if s.DataLen > 0 {
		data = cell{Text: bytesText(s.DataLen)}
	}
	data.Kind += " num"
	return row{Key: encodeName(s.Name), Cells: []cell{
		nameCell(s.Name, semaphoreURL(path, s.Name)), heldCell(s.Used, s.Limit), zeroQuiet(s.NumOwners),
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
