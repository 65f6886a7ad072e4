package gateway

import (
	"context"
	"iter"
	"strings"

	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Coordination"
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Scheme"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/protocol"
)

// YDB's API has no pages: a list is whole or refused.
const (
	// maxNames bounds the names of a list. YDB's directories have at most as many entries.
	maxNames = 100_000
	// maxListings bounds the lists that the gateway reads at a time: each may have up to
	// maxDescription bytes. Further ones wait.
	maxListings = 8
	// maxBelow is how many nodes below one child are read in a row: about a page. The list then
	// goes on behind the child.
	maxBelow = 10_000
)

// listings has one element for each list that is being read.
type listings chan struct{}

func newListings() listings { return make(listings, maxListings) }

// begin waits until a list may be read. The caller calls end when it is done.
func (l listings) begin(ctx context.Context) (end func(), err error) {
	select {
	case l <- struct{}{}:
		return func() { <-l }, nil
	case <-ctx.Done():
		return nil, protocol.Errorf(protocol.StatusOverloaded,
			"%d other lists are being read, the most that may be; list again later", maxListings)
	}
}

// listBound counts the entries of a list so far.
type listBound struct{ names, bytes int }

// add counts a name; the error names the listed objects, what, and a command to list them all.
func (b *listBound) add(name, what, command string) error {
	b.names++
	b.bytes += len(name)
	if b.names > maxNames || b.bytes > maxDescription {
		return protocol.Errorf(protocol.StatusPreconditionFailed,
			"there are more than %d %s, or their names have more than %d bytes; list them with `%s`", maxNames, what,
			maxDescription, command)
	}
	return nil
}

// semaphoreNames gives the names of a node's semaphores, which are in order.
func semaphoreNames(semaphores iter.Seq2[client.SemaphoreInfo, error]) (names []string, err error) {
	var bound listBound
	for sem, err := range semaphores {
		name := validText(sem.Name)
		if err == nil {
			err = bound.add(name, "semaphores", "signalbox sem ls")
		}
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

// listChildren gives the nodes right below a path. below yields all nodes below it that come after
// a path, in order.
func listChildren(
	path string, below func(after string) iter.Seq2[admin.NodeInfo, error],
) (children []*Ydb_Scheme.Entry, err error) {
	var bound listBound
	byName := make(map[string]*Ydb_Scheme.Entry)
	for after, more := "", true; more; {
		more = false
		var last string // the child that inRow nodes were below
		inRow := 0
		for n, err := range below(after) {
			if err != nil {
				return nil, err
			}
			name, _, deeper := strings.Cut(n.Path[len(path)+1:], "/")
			e := byName[name]
			if e == nil {
				if err := bound.add(name, "nodes", "signalbox node ls"); err != nil {
					return nil, err
				}
				e = &Ydb_Scheme.Entry{Name: name, Type: Ydb_Scheme.Entry_COORDINATION_NODE}
				byName[name] = e
				children = append(children, e)
			}
			if !deeper {
				continue
			}
			e.Type = Ydb_Scheme.Entry_DIRECTORY
			if name != last {
				last, inRow = name, 0
			}
			if inRow++; inRow == maxBelow {
				after, more = path+"/"+name+"/\xff", true
				break
			}
		}
	}
	return children, nil
}

// validText replaces invalid UTF-8: names of semaphores may have any bytes, and YDB's may not.
func validText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// YDB's DescribeNode has two fields that the Go protobufs do not know yet: the request's
// include_semaphore_names and the result's semaphore_names. They are read and written as unknown
// fields, which a client with newer protobufs sees under their names.
const (
	fieldIncludeSemaphoreNames protowire.Number = 3 // bool
	fieldSemaphoreNames        protowire.Number = 3 // repeated string
)

// wantsSemaphoreNames reports whether a request has include_semaphore_names set.
func wantsSemaphoreNames(req *Ydb_Coordination.DescribeNodeRequest) (wants bool) {
	for b := req.ProtoReflect().GetUnknown(); len(b) > 0; {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return wants
		}
		b = b[n:]
		if number == fieldIncludeSemaphoreNames && kind == protowire.VarintType {
			v, _ := protowire.ConsumeVarint(b)
			wants = v != 0
		}
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return wants
		}
		b = b[n:]
	}
	return wants
}

// appendSemaphoreNames sets semaphore_names.
func appendSemaphoreNames(result *Ydb_Coordination.DescribeNodeResult, names []string) {
	b := result.ProtoReflect().GetUnknown()
	for _, name := range names {
		b = protowire.AppendTag(b, fieldSemaphoreNames, protowire.BytesType)
		b = protowire.AppendString(b, name)
	}
	result.ProtoReflect().SetUnknown(b)
}
