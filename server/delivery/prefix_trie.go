package delivery

import (
	"cmp"
	"slices"
	"strings"
)

// prefixTrie finds the watched prefixes of a name in one walk over its bytes, however many are
// watched: a compressed trie. The zero value is empty.
type prefixTrie struct {
	root trieNode
}

// trieNode is reached by the bytes of the labels on the way to it. A node other than the root has a
// target or at least two children.
type trieNode struct {
	label    string
	target   *target
	children []*trieNode // by first byte of their labels, all different
}

func (t *prefixTrie) empty() bool { return t.root.target == nil && len(t.root.children) == 0 }

// match appends the targets of all prefixes of key, the shortest first.
func (t *prefixTrie) match(key []byte, to []*target) []*target {
	n := &t.root
	for {
		if n.target != nil {
			to = append(to, n.target)
		}
		if len(key) == 0 {
			return to
		}
		i, ok := n.find(key[0])
		if !ok {
			return to
		}
		n = n.children[i]
		if len(key) < len(n.label) || string(key[:len(n.label)]) != n.label {
			return to
		}
		key = key[len(n.label):]
	}
}

// get returns the target of exactly this prefix, and creates it if necessary.
func (t *prefixTrie) get(key string) *target {
	n := &t.root
	for key != "" {
		i, ok := n.find(key[0])
		if !ok {
			leaf := &trieNode{label: strings.Clone(key)}
			n.children = slices.Insert(n.children, i, leaf)
			n = leaf
			break
		}
		child := n.children[i]
		if same := common(child.label, key); same < len(child.label) {
			fork := &trieNode{label: child.label[:same], children: []*trieNode{child}}
			child.label = child.label[same:]
			n.children[i] = fork
			child = fork
		}
		key = key[len(child.label):]
		n = child
	}
	if n.target == nil {
		n.target = &target{}
	}
	return n.target
}

// remove removes a prefix that is there.
func (t *prefixTrie) remove(key string) {
	var parent *trieNode
	at := 0
	n := &t.root
	for key != "" {
		i, ok := n.find(key[0])
		if !ok {
			return
		}
		parent, at, n = n, i, n.children[i]
		key = key[len(n.label):]
	}
	n.target = nil
	if parent == nil {
		return
	}
	switch len(n.children) {
	case 0:
		parent.children = slices.Delete(parent.children, at, at+1)
		if parent != &t.root && parent.target == nil && len(parent.children) == 1 {
			parent.absorb()
		}
	case 1:
		n.absorb()
	}
}

// absorb merges a node that has no target with its only child.
func (n *trieNode) absorb() {
	child := n.children[0]
	n.label += child.label
	n.target, n.children = child.target, child.children
}

// find is the place of the child that begins with b, or where it would go.
func (n *trieNode) find(b byte) (int, bool) {
	return slices.BinarySearchFunc(n.children, b, func(c *trieNode, b byte) int { return cmp.Compare(c.label[0], b) })
}

func common(a, b string) int {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	return i
}
