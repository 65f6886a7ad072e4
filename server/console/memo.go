package console

import (
	"context"
	"sync"
)

// memo keeps the rows that a view has made, so that it makes none twice of what has not changed.
// One read at a time uses it.
type memo struct {
	before, now map[any]row // by what a row was made of, in the last read and in this one
}

type memoKey struct{}

// remembering has a read use the rows of the one before.
func (m *memo) remembering(ctx context.Context) context.Context {
	m.before, m.now = m.now, make(map[any]row, len(m.now))
	return context.WithValue(ctx, memoKey{}, m)
}

// rowsOf returns the rows that build makes of a list. Whatever else a row depends on is the same in
// all reads of a view, such as the address of its page. Several are built at a time, because building
// one may ask the cluster.
func rowsOf[T comparable](ctx context.Context, list []T, build func(*T) row) []row {
	m, _ := ctx.Value(memoKey{}).(*memo)
	rows := make([]row, len(list))
	var building sync.WaitGroup
	turns := make(chan struct{}, 16)
	for i := range list {
		if m != nil {
			if r, known := m.before[list[i]]; known {
				rows[i] = r
				continue
			}
		}
		building.Go(func() {
			turns <- struct{}{}
			rows[i] = build(&list[i])
			<-turns
		})
	}
	building.Wait()
	if m != nil {
		for i := range list {
			m.now[list[i]] = rows[i]
		}
	}
	return rows
}
