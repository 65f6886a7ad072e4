package console

import (
	"context"
	"fmt"
	"iter"
	"net/url"

	"github.com/signalbox-dev/signalbox/client"
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
