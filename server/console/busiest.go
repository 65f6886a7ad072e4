package console

import (
	"cmp"
	"context"
	"slices"

	"github.com/signalbox-dev/signalbox/client/admin"
)

// busiestRows is how many semaphores the overview shows of each list.
const busiestRows = 10

// addBusiest shows what waits longest and what is granted most often, over all nodes that the viewer
// may read.
func addBusiest(ctx context.Context, v *viewer, p *page) {
	top, err := v.admin.Top(ctx, "", busiestRows)
	if err != nil {
		p.detail("warn", "What waits longest cannot be read now: "+sentence(visibleText(err.Error())))
		return
	}
	missingInstances(p, top)
	waits := newTable("waits", "Waits longest", "Nobody waits for a semaphore.",
		col("Name"), col("Node"), col("Oldest wait"), numCol("Waiters"), col("Units held"), col("Kind"))
	busy := newTable("busy", "Granted most often", "No semaphore is granted often now.",
		col("Name"), col("Node"), numCol("Grants per second"), numCol("Waiters"), col("Units held"), col("Kind"))
	slices.SortFunc(top.Semaphores, func(a, b admin.TopSemaphore) int {
		return cmp.Or(cmp.Compare(b.OldestWait, a.OldestWait), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Name, b.Name))
	})
	for i := range top.Semaphores {
		s := &top.Semaphores[i]
		if s.Waiters == 0 || len(waits.Rows) == busiestRows {
			break
		}
		if kindOfTop(s) == kindWhole {
			waits.Count = "others than the leader of an election wait for as long as it leads"
		}
		waits.Rows = append(waits.Rows, busiestRow(s, ago(s.OldestWait)))
	}
	slices.SortFunc(top.Semaphores, func(a, b admin.TopSemaphore) int {
		return cmp.Or(cmp.Compare(b.GrantsPerSecond, a.GrantsPerSecond), cmp.Compare(a.Path, b.Path),
			cmp.Compare(a.Name, b.Name))
	})
	for i := range top.Semaphores {
		s := &top.Semaphores[i]
		if s.GrantsPerSecond < 0.1 || // shown with one digit behind the point
			len(busy.Rows) == busiestRows {
			break
		}
		busy.Rows = append(busy.Rows, busiestRow(s, rate(s.GrantsPerSecond)))
	}
	p.Tables = append(p.Tables, waits, busy)
}

func busiestRow(s *admin.TopSemaphore, by cell) row {
	return row{Key: encodeName(s.Path + "\x00" + s.Name), Cells: []cell{
		nameCell(s.Name, semaphoreURL(s.Path, s.Name)), {Text: visible(s.Path), Href: address("/node", "node", s.Path)}, by,
		waitersCell(uint64(s.Waiters)), heldCell(s.Used, s.Limit), topKind(s),
	}}
}

// missingInstances says which instances have not answered: what they lead is not listed.
func missingInstances(p *page, top *admin.Top) {
	for _, x := range top.Instances {
		if x.Err != nil {
			p.detail("warn", "What "+visible(x.Name)+" leads is not shown: it does not answer.")
		}
	}
}

func kindOfTop(s *admin.TopSemaphore) semaphoreKind {
	return kindOf(s.Name, s.Limit, s.Used, s.Ephemeral)
}

func topKind(s *admin.TopSemaphore) cell {
	if s.Stuck {
		return cell{Text: "stuck", Kind: "bad", Note: "its next waiter wants more than the limit"}
	}
	return quiet(string(kindOfTop(s)))
}

// rate is a number of events a second. It has two digits that count: more would change all the time.
func rate(f float64) cell {
	c := cell{Text: trimFloat(f, 1), Kind: "num"}
	if f >= 10 {
		c.Text = group(uint64(f + 0.5))
	}
	return c
}
