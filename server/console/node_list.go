package console

import (
	"context"
	"iter"
	"net/url"

	"github.com/signalbox-dev/signalbox/client"
)

// nodeList is a page that lists what a node has of one kind, by name.
type nodeList[T any] struct {
	path  string // of the page
	page  page   // its section, title and lead
	noun  string // of the kind, if the names can be filtered by how they begin
	table table
	read  func(context.Context, *client.Node, string, ...client.ReadOption) iter.Seq2[T, error]
	name  func(*T) string
	row   func(ctx context.Context, n *client.Node, x *T) row
	rows  func(ctx context.Context, list []T, build func(*T) row) []row // nil: one after another
}

func (l *nodeList[T]) show(ctx context.Context, v *viewer, q url.Values) (*page, error) {
	p, n, after, err := l.page.ofNode(ctx, v, q, l.path, l.noun != "")
	if err != nil {
		return nil, err
	}
	t, prefix := l.table, ""
	if p.Filter != nil {
		if prefix = p.Filter.Prefix; prefix != "" {
			t.Empty = "No " + l.noun + " has a name that begins with “" + visible(prefix) + "”."
		}
	}
	if after != "" {
		t.First = address(l.path, "node", p.Node, "prefix", prefix)
	}
	found, more, err := pageOf(l.read(ctx, n, prefix, client.After(after), client.MaxItems(pageSize+1)))
	if err != nil {
		return nil, err
	}
	build := func(x *T) row { return l.row(ctx, n, x) }
	if l.rows != nil {
		t.Rows = l.rows(ctx, found, build)
	} else {
		for i := range found {
			t.Rows = append(t.Rows, build(&found[i]))
		}
	}
	if more {
		last := encodeName(l.name(&found[len(found)-1]))
		t.Next = address(l.path, "node", p.Node, "prefix", prefix, "after", last)
	}
	p.Tables = []table{t}
	return p, nil
}

// ofNode begins a page at a path that lists what a node has, with the name that its list begins
// behind.
func (p page) ofNode(
	ctx context.Context, v *viewer, q url.Values, path string, filtered bool,
) (_ *page, n *client.Node, after string, err error) {
	if text := q.Get("after"); text != "" {
		if after, err = decodeName(text); err != nil {
			return nil, nil, "", err
		}
	}
	if p.Node, n, err = v.nodeOf(ctx, q); err != nil {
		return nil, nil, "", err
	}
	p.Name, p.Crumbs = visible(p.Node), nodeCrumbs(p.Node)
	if filtered {
		prefix, err := prefixOf(q)
		if err != nil {
			return nil, nil, "", err
		}
		p.Filter = &filter{Action: path, Node: p.Node, Prefix: prefix}
	}
	return &p, n, after, nil
}

// pageOf reads a page of a list. One more item than a page has says that there is another.
func pageOf[T any](list iter.Seq2[T, error]) (found []T, more bool, err error) {
	for x, err := range list {
		if err != nil {
			return nil, false, err
		}
		if len(found) == pageSize {
			return found, true, nil
		}
		found = append(found, x)
	}
	return found, false, nil
}
