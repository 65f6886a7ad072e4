package console

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/signalbox-dev/signalbox/client/admin"
)

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
