package waitgraph

import (
	"fmt"
	"slices"
)

// What Read reads at most.
const (
	MaxSessions   = 64
	MaxSemaphores = 256
	MaxSteps      = 16 // from a session to one that blocks it
)

// Source reads one thing at a time, each at least as new as the call.
type Source interface {
	// Waits are the names of the semaphores that a session waits for, and the sessions that its
	// command started.
	Waits(session uint64) (names []string, children []uint64, err error)
	Semaphore(name string) (*Semaphore, error)
}

// Read follows the graph from some sessions: what they wait for, who holds that and who is ahead,
// what those and their children wait for. cut says what was not read, empty if all was.
func Read(src Source, from []uint64) (g *Graph, cut string) {
	g = &Graph{Semaphores: make(map[string]*Semaphore), Waits: make(map[uint64][]string),
		Children: make(map[uint64][]uint64)}
	missed := func(format string, args ...any) {
		if cut == "" {
			cut = fmt.Sprintf(format, args...)
		}
	}
	type step struct {
		session uint64
		depth   int
	}
	seen := make(map[uint64]bool)
	var next []step
	add := func(session uint64, depth int) {
		switch {
		case seen[session]:
		case len(seen) == MaxSessions:
			missed("more than %d sessions are involved", MaxSessions)
		case depth > MaxSteps:
			missed("session %d is more than %d steps away", session, MaxSteps)
		default:
			seen[session] = true
			next = append(next, step{session, depth})
		}
	}
	for _, session := range from {
		add(session, 0)
	}
	for ; len(next) > 0; next = next[1:] {
		at := next[0]
		names, children, err := src.Waits(at.session)
		if err != nil {
			missed("what session %d waits for is not known: %v", at.session, err)
			continue
		}
		whole := true
		for _, name := range names {
			if g.Semaphores[name] == nil {
				s, err := readSemaphore(src, name, len(g.Semaphores))
				if err != nil {
					missed("%v", err)
					whole = false
					continue
				}
				g.Semaphores[name] = s
			}
			for _, b := range g.Blockers(name, at.session, nil) {
				add(b.Session, at.depth+1)
			}
		}
		for _, child := range children {
			add(child, at.depth+1)
		}
		g.Children[at.session] = slices.Clone(children)
		if whole {
			g.Waits[at.session] = slices.Clone(names)
			g.Order = append(g.Order, at.session)
		}
	}
	return g, cut
}

func readSemaphore(src Source, name string, read int) (*Semaphore, error) {
	if read == MaxSemaphores {
		return nil, fmt.Errorf("more than %d semaphores are involved", MaxSemaphores)
	}
	s, err := src.Semaphore(name)
	if err != nil {
		return nil, fmt.Errorf("who has %q is not known: %w", name, err)
	}
	return s, nil
}

// Confirmed reports whether two reads found the same deadlock: it existed at the end of the first
// one. The second one began after that.
func Confirmed(first, second *Graph) bool {
	set := first.Core()
	return len(set) > 0 && slices.Equal(set, second.Core()) && first.Facts(set) == second.Facts(set)
}
