package gateway

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Scheme"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/protocol"
)

// tree is a list of nodes in order, which counts what is read of it.
type tree struct {
	paths []string
	read  int
}

func (t *tree) below(after string) iter.Seq2[admin.NodeInfo, error] {
	return func(yield func(admin.NodeInfo, error) bool) {
		for _, p := range t.paths {
			if p <= after {
				continue
			}
			if t.read++; !yield(admin.NodeInfo{Path: p}, nil) {
				return
			}
		}
	}
}

// TestDeepDirectories: of a directory in a directory no more is read than a page, and what follows
// it is listed.
func TestDeepDirectories(t *testing.T) {
	var x tree
	add := func(format string, args ...any) { x.paths = append(x.paths, fmt.Sprintf(format, args...)) }
	add("/d/a")
	add("/d/b")
	add("/d/b-2")
	for i := range 10 * maxBelow {
		add("/d/b/%06d", i)
	}
	add("/d/b0")
	add("/d/c/deep")
	for i := range 2 * maxBelow {
		add("/d/z/%06d", i)
	}
	children, err := listChildren("/d", x.below)
	if err != nil {
		t.Fatal(err)
	}
	var line strings.Builder
	for _, e := range children {
		fmt.Fprintf(&line, " %s", e.GetName())
		if e.GetType() == Ydb_Scheme.Entry_DIRECTORY {
			line.WriteByte('/')
		}
	}
	if want := " a b/ b-2 b0 c/ z/"; line.String() != want {
		t.Errorf("got%s, want%s", line.String(), want)
	}
	if x.read > 3*maxBelow {
		t.Errorf("%d nodes were read", x.read)
	}
}

// TestLongLists: a list with too many names, or too long ones, is refused and not read to its end.
func TestLongLists(t *testing.T) {
	for _, c := range []struct {
		names, length int
		ok            bool
	}{{maxNames, 8, true}, {maxNames + 1, 8, false}, {70_000, 1000, false}} {
		var x tree
		for i := range c.names {
			x.paths = append(x.paths, fmt.Sprintf("/d/%0*d", c.length, i))
		}
		children, err := listChildren("/d", x.below)
		if c.ok && (err != nil || len(children) != c.names) || !c.ok && protocol.StatusOf(err) != protocol.StatusPreconditionFailed {
			t.Errorf("%d nodes: %d are listed, %v", c.names, len(children), err)
		}
		read := 0
		names, err := semaphoreNames(func(yield func(client.SemaphoreInfo, error) bool) {
			for i := range 2 * c.names {
				if read++; c.ok && i == c.names || !yield(client.SemaphoreInfo{Name: fmt.Sprintf("%0*d", c.length, i)}, nil) {
					return
				}
			}
		})
		if c.ok && (err != nil || len(names) != c.names) ||
			!c.ok && (protocol.StatusOf(err) != protocol.StatusPreconditionFailed || read > maxNames+1) {
			t.Errorf("%d semaphores: %d are listed, %d read, %v", c.names, len(names), read, err)
		}
	}
	broken := errors.New("broken")
	fails := func(string) iter.Seq2[admin.NodeInfo, error] {
		return func(yield func(admin.NodeInfo, error) bool) { yield(admin.NodeInfo{}, broken) }
	}
	if _, err := listChildren("/d", fails); err != broken {
		t.Error(err)
	}
}

// TestListingsWait: a few lists are read at a time, and one that waits for too long is refused.
func TestListingsWait(t *testing.T) {
	l := newListings()
	var end func()
	for range maxListings {
		var err error
		if end, err = l.begin(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.begin(ctx); protocol.StatusOf(err) != protocol.StatusOverloaded {
		t.Fatal(err)
	}
	end()
	if _, err := l.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
}
