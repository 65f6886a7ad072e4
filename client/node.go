package client

import (
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/signalbox-dev/signalbox/client/internal/handle"
	"github.com/signalbox-dev/signalbox/client/internal/millis"
	"github.com/signalbox-dev/signalbox/protocol"
)

// Node is a handle of a coordination node, for reading without a session. Its path was resolved
// once: if the node is dropped and created again, the handle's operations return ErrNotFound.
type Node struct {
	c *Client
	h handle.Node
}

// Node resolves a path. Errors: ErrNotFound.
func (c *Client) Node(ctx context.Context, path string) (*Node, error) {
	info, err := c.handle().Node(ctx, path)
	if err != nil {
		return nil, withOp("open node", path, err)
	}
	n := c.node(path, info)
	return &n, nil
}

func (c *Client) node(path string, info *protocol.NodeInfo) Node {
	return Node{c, handle.Node{
		Driver: c.d, ID: info.ID, Tier: info.Tier, Path: path,
		Relaxed: info.Config.ReadConsistency == protocol.Relaxed, Grace: millis.Duration(info.Config.GracePeriod),
	}}
}

// Path is the path that the node was opened with.
func (n *Node) Path() string { return n.h.Path }

// ID is the node's id, which is never reused.
func (n *Node) ID() uint64 { return n.h.ID }

// checkLives tells a semaphore that does not exist from a node that does not: it returns nil if the
// node lives, and else notFound, or why that could not be told.
func (n *Node) checkLives(ctx context.Context, notFound error) error {
	info, err := n.c.handle().Node(ctx, n.h.Path)
	switch {
	case err == nil && info.ID == n.h.ID:
		return nil
	case err != nil && !isNotFound(err):
		return withOp("look up node", n.h.Path, err)
	}
	return notFound
}

// Config is the configuration with this name, for reading it.
func (n *Node) Config(name string) ConfigReader { return ConfigReader{n, name} }

// Configs lists the configurations whose name begins with prefix, in order of name; After and
// MaxItems limit it, and ReadConsistency counts. The sequence ends after its first error.
func (n *Node) Configs(ctx context.Context, prefix string, opts ...ReadOption) iter.Seq2[ConfigInfo, error] {
	if o, _ := readOptionsOf(opts, listOptions); o.after != "" {
		opts = append(slices.Clone(opts), After(ConfigPrefix+o.after))
	}
	return func(yield func(ConfigInfo, error) bool) {
		for s, err := range n.List(ctx, ConfigPrefix+prefix, opts...) {
			if err != nil {
				yield(ConfigInfo{}, err)
				return
			}
			if !yield(ConfigInfo{Name: strings.TrimPrefix(s.Name, ConfigPrefix), Version: s.Version}, nil) {
				return
			}
		}
	}
}

// Election is the election with this name, by priority or not, for observing it.
func (n *Node) Election(name string) ElectionReader { return ElectionReader{n, name} }

// Service is the service with this name, for finding its members.
func (n *Node) Service(name string) ServiceReader { return ServiceReader{n, name} }
