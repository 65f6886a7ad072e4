package console

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/discovery"
)

// A list of one kind of semaphores looks at so many names for a page, and describes so many of them.
const (
	scannedNames = 1000
	scannedRows  = 25
)

// scan is a list of the semaphores of a node that are of one kind.
type scan struct {
	path   string // of the page
	prefix string // of the names that are looked at, before the one of the address
	table  table
	want   func(s *client.SemaphoreInfo) bool
	read   []client.ReadOption                                // what a row needs of each
	row    func(node string, s *client.Semaphore) (row, bool) // false: it is none of the list
}

// page reads the list. The server has no index of kinds, so a page goes through names.
func (x *scan) page(ctx context.Context, v *viewer, q url.Values, p *page) (*page, error) {
	p, n, after, err := p.ofNode(ctx, v, q, x.path, true)
	if err != nil {
		return nil, err
	}
	path, prefix, t := p.Node, p.Filter.Prefix, x.table
	if after != "" {
		t.First = address(x.path, "node", path, "prefix", prefix)
	}
	var found []string
	looked, last := 0, ""
	for s, err := range n.List(ctx, x.prefix+prefix, client.After(after), client.MaxItems(scannedNames+1)) {
		if err != nil {
			return nil, err
		}
		if looked == scannedNames || len(found) == scannedRows {
			t.Next = address(x.path, "node", path, "prefix", prefix, "after", encodeName(last))
			t.Count = fmt.Sprintf("among the names up to “%s”", visible(last))
			t.Empty = fmt.Sprintf("None is among the %s names that this page has looked at.", group(scannedNames))
			break
		}
		looked, last = looked+1, s.Name
		if x.want(&s) {
			found = append(found, s.Name)
		}
	}
	rows, errs := make([]*row, len(found)), make([]error, len(found))
	var reading sync.WaitGroup
	for i, name := range found {
		reading.Go(func() {
			var s *client.Semaphore
			if s, errs[i] = n.Describe(ctx, name, x.read...); errs[i] == nil {
				if r, ok := x.row(path, s); ok {
					rows[i] = &r
				}
			} else if errors.Is(errs[i], client.ErrNotFound) {
				errs[i] = nil // it is gone meanwhile
			}
		})
	}
	reading.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for _, r := range rows {
		if r != nil {
			t.Rows = append(t.Rows, *r)
		}
	}
	p.Tables = []table{t}
	return p, nil
}

func electionsPage(ctx context.Context, v *viewer, q url.Values) (*page, error) {
	p := &page{
		Section: "Elections", Title: "Locks and elections in",
		Lead: "One session holds each of these whole: it leads, or has the lock. The others wait for their turn.",
	}
	list := &scan{
		path: "/elections", read: []client.ReadOption{client.IncludeOwners(), client.MaxItems(1)},
		table: newTable("elections", "Locks and elections", "Nobody holds a lock or leads here.",
			col("Name"), col("Held by"), col("Held for"), numCol("Waiters"), numCol("Token")),
		want: func(s *client.SemaphoreInfo) bool { return kindOfInfo(s) == kindWhole },
		row: func(node string, s *client.Semaphore) (row, bool) {
			if len(s.Owners) != 1 || s.Used != client.Max {
				return row{}, false
			}
			o := &s.Owners[0]
			return row{Key: encodeName(s.Name), Cells: []cell{
				nameCell(s.Name, semaphoreURL(node, s.Name)), sessionCell(node, o.Session, o.Description),
				since(o.Since), zeroQuiet(s.NumWaiters), number(o.Token),
			}}, true
		},
	}
	return list.page(ctx, v, q, p)
}

// semaphoreKind is what programs use a semaphore as. Recipes are conventions over semaphores, so it
// is known by the name, the limit and how units are held.
type semaphoreKind string

const (
	kindEphemeral     semaphoreKind = "ephemeral"
	kindPersistent    semaphoreKind = "persistent"
	kindConfiguration semaphoreKind = "configuration"
	// One session holds all units of the limit Max. The leader of an election does nothing else than
	// the holder of a lock, so they are one kind.
	kindWhole semaphoreKind = "lock or election"
	// Sessions hold single units of the limit Max: members, or readers of a lock.
	kindShared semaphoreKind = "service or shared lock"
)

func kindOf(name string, limit, used uint64, ephemeral bool) semaphoreKind {
	switch {
	case strings.HasPrefix(name, client.ConfigPrefix):
		return kindConfiguration
	case limit == client.Max && used == client.Max:
		return kindWhole
	case limit == client.Max && used > 0:
		return kindShared
	case ephemeral:
		return kindEphemeral
	}
	return kindPersistent
}

func kindOfInfo(s *client.SemaphoreInfo) semaphoreKind {
	return kindOf(s.Name, s.Limit, s.Used, s.Ephemeral)
}

// isService reports whether any owner is a member of a service: its data is an address.
func isService(limit, used uint64, owners []client.Owner) bool {
	return limit == client.Max && used != client.Max && slices.ContainsFunc(owners, func(o client.Owner) bool {
		_, err := discovery.ParseEndpoint(o.Data)
		return err == nil
	})
}
