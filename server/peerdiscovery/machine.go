package peerdiscovery

import (
	"fmt"
	"maps"
	"slices"
)

// Limits of the known peers. A request beyond them is refused, which delays an election and never
// splits it.
const (
	MaxPeers      = 1024
	MaxAddressLen = 255
)

// Request is sent to each address of an instance's list, with the sender's knowledge.
type Request struct {
	ID      string   // random, new with each start of a process; an instance recognizes its own requests by it
	Voter   bool     // may become the leader
	Peers   []string // every address it knows, sorted
	Votable []string // those that are known to lead to a voter, sorted
}

// Response is the other instance's knowledge, the request's content included.
type Response struct {
	// Leader is the address of the cluster's leader, or of an instance that accepts joins; empty
	// while neither is known.
	Leader string
	// Retry reports that nothing may be concluded: the other instance is about to lead and accepts
	// no joins yet, or its cluster has no leader now.
	Retry   bool
	Peers   []string // as in Question
	Votable []string
}

// Result is the result of a discovery.
type Result struct {
	Bootstrap bool   // this instance makes the cluster
	Leader    string // otherwise: the address at which to join
}

// Call is one request on its way. Invariant: the visit counts only by HandleResponse with the same
// Call.
type Call struct {
	Address string
	Request Request
	round   uint64 // how many peers were known: the response to an older request is no visit
}

// Machine is the discovery of one instance as a pure step machine: no clock, no network, no
// goroutine. It is not safe for concurrent use.
//
// There is at most one leader if every two instances have an address of one third (or of each
// other) in their lists, and addresses mean the same everywhere. Proof: peers only grow, and an
// elected instance has visited every address of its final list, with that list in the request. Let
// A and B be elected, and let both have visited C, A first. Then B's list includes A's, with A's
// address, so B has visited A. If that was after A's election, B learned of it and is not elected.
// If it was before, A learned all of B's final list. So both lists are equal. Both have visited
// every address of it, so their sets of voters' addresses are equal, and so is the smallest of
// them, which leads to one process alone. An instance that belongs to a cluster is finished from
// its start on, see Finish: else B could visit it after a restart, as if it knew nothing of A's
// election.
type Machine struct {
	id    string
	voter bool

	peers   map[string]bool // every address known; only grows
	votable map[string]bool // Invariant: a subset of peers
	// Invariant: a subset of peers, each asked with all of peers in the question; empty again when
	// peers grows
	visited      map[string]bool
	ownAddresses map[string]bool // addresses at which this process answered itself
	undecided    map[string]bool // addresses whose last answer was to retry

	result   Result
	decided  bool
	notReady bool // elected and not accepting joins yet, or a member without a leader: responses say Retry
}

// NewMachine makes a machine. ID is random. Advertise is the address under which others reach this
// instance. Peers is its list of addresses; if it is empty, only its own address: a cluster of its
// own.
func NewMachine(id string, voter bool, advertise string, peers []string) (*Machine, error) {
	m := &Machine{id: id, voter: voter, peers: map[string]bool{}, votable: map[string]bool{},
		visited: map[string]bool{}, ownAddresses: map[string]bool{}, undecided: map[string]bool{}}
	list := slices.Clone(peers)
	if advertise != "" && (voter || len(peers) == 0) {
		list = append(list, advertise)
	}
	if id == "" {
		return nil, fmt.Errorf("discovery needs a random id")
	}
	if err := check(list); err != nil {
		return nil, err
	}
	m.addPeers(list, nil)
	if len(m.peers) == 0 {
		return nil, fmt.Errorf("there is no address to ask; name at least one peer, or the address to advertise")
	}
	return m, nil
}

func check(addresses []string) error {
	if len(addresses) > MaxPeers {
		return fmt.Errorf("%d addresses of peers are more than the %d allowed", len(addresses), MaxPeers)
	}
	for _, a := range addresses {
		if a == "" || len(a) > MaxAddressLen {
			return fmt.Errorf("an address of a peer has %d bytes; it must have 1 to %d", len(a), MaxAddressLen)
		}
	}
	return nil
}

// NextCalls are the calls of the next round: to all addresses that were not visited with the
// present knowledge, or, if all were, to all again. None if there is a result.
func (m *Machine) NextCalls() []Call {
	if m.decided {
		return nil
	}
	q := Request{ID: m.id, Voter: m.voter, Peers: m.Peers(), Votable: keys(m.votable)}
	var calls []Call
	all := len(m.visited) == len(m.peers)
	for _, a := range q.Peers {
		if all || !m.visited[a] {
			calls = append(calls, Call{Address: a, Request: q, round: uint64(len(m.peers))})
		}
	}
	return calls
}

// HandleResponse takes the response to a call, however late. An error is a response that breaks the
// limits; it changes nothing.
func (m *Machine) HandleResponse(c Call, a Response) error {
	if m.decided {
		return nil
	}
	if a.Leader != "" {
		if err := check([]string{a.Leader}); err != nil {
			return err
		}
		m.result, m.decided = Result{Leader: a.Leader}, true
		return nil
	}
	if err := m.checkLimits(a.Peers, a.Votable); err != nil {
		return err
	}
	m.addPeers(a.Peers, a.Votable)
	if delete(m.undecided, c.Address); a.Retry {
		m.undecided[c.Address] = true
	}
	if a.Retry || c.round != uint64(len(m.peers)) {
		return nil // not a visit, or the request did not carry all known addresses
	}
	m.visited[c.Address] = true
	if len(m.visited) < len(m.peers) || len(m.votable) == 0 {
		return nil
	}
	if m.ownAddresses[slices.Min(keys(m.votable))] {
		m.result, m.decided, m.notReady = Result{Bootstrap: true}, true, true
	}
	return nil
}

// HandleRequest answers a request that was sent to the given address. An error refuses a request
// that breaks the limits.
func (m *Machine) HandleRequest(q Request, addressedAs string) (Response, error) {
	if err := check([]string{addressedAs}); err != nil {
		return Response{}, err
	}
	if m.notReady {
		return Response{Retry: true}, nil
	}
	if m.decided {
		return Response{Leader: m.result.Leader}, nil
	}
	if err := m.checkLimits(q.Peers, q.Votable, []string{addressedAs}); err != nil {
		return Response{}, err
	}
	m.addPeers(q.Peers, q.Votable)
	m.addPeers([]string{addressedAs}, nil)
	if m.voter {
		m.votable[addressedAs] = true
	}
	if q.ID == m.id {
		m.ownAddresses[addressedAs] = true
	}
	return Response{Peers: m.Peers(), Votable: keys(m.votable)}, nil
}

// Finish ends the election for good: this instance belongs to a cluster. leader is the address of
// its leader, or empty if it has none now.
func (m *Machine) Finish(leader string) {
	m.decided, m.notReady = true, leader == ""
	m.result.Leader = leader
}

// Result is the result, once there is one. It does not change.
func (m *Machine) Result() (Result, bool) { return m.result, m.decided }

// Peers are all known addresses, sorted.
func (m *Machine) Peers() []string { return keys(m.peers) }

// Alone reports whether every known address led back to this process.
func (m *Machine) Alone() bool { return len(m.ownAddresses) == len(m.peers) }

// Waiting returns why there is no result yet.
func (m *Machine) Waiting() string {
	var missing []string
	for _, a := range m.Peers() {
		if !m.visited[a] {
			missing = append(missing, a)
		}
	}
	switch {
	case m.decided:
		return ""
	case len(m.undecided) > 0:
		return fmt.Sprintf("the instances at %v belong to a cluster that names no leader now, or are about to make one; wait for it, "+
			"and if too few of its instances are left, see `cluster recover`", keys(m.undecided))
	case len(missing) > 0:
		return fmt.Sprintf("no answer yet that counts from %v; start them. If one is a mistake, correct the lists of peers, and "+
			"start all instances that wait with empty data folders: the old ones keep the address, and nothing else yet",
			missing)
	case len(m.votable) == 0:
		return "no peer may make the cluster; start an instance of the tier that has the data"
	}
	return fmt.Sprintf("the instance at %s is to make the cluster and has not done so yet", slices.Min(keys(m.votable)))
}

// checkLimits checks addresses against the limits, together with the known ones.
func (m *Machine) checkLimits(lists ...[]string) error {
	more := 0
	for _, l := range lists {
		if err := check(l); err != nil {
			return err
		}
		for _, a := range l {
			if !m.peers[a] {
				more++ // duplicates count twice: it is a bound
			}
		}
	}
	if len(m.peers)+more > MaxPeers {
		return fmt.Errorf("more than %d addresses of peers", MaxPeers)
	}
	return nil
}

// addPeers merges addresses. A new one undoes all visits: the visited instances do not know of it.
func (m *Machine) addPeers(peers, votable []string) {
	before := len(m.peers)
	for _, a := range peers {
		m.peers[a] = true
	}
	for _, a := range votable {
		m.peers[a] = true
		m.votable[a] = true
	}
	if len(m.peers) > before {
		clear(m.visited)
	}
}

func keys(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }
