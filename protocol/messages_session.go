package protocol

// HomeOfCreateID stands for the bucket in the frame of a [SessionStart]: the server finds the home
// bucket, by the create id and the node's tier. A client that has no map yet sends such a start
// right behind its hello. It is answered WRONG_SHARD where another instance serves the bucket.
const HomeOfCreateID uint64 = 1 << 32

// SessionStart makes a session and attaches it to this connection with attach epoch 1. The create
// id makes it safe to send again. Reply: SessionReply.
type SessionStart struct {
	Node        uint64 // 0: Path names it
	CreateID    []byte // 16 random bytes; their hash is the home bucket
	Key         []byte // 16 random bytes: the protection key
	Timeout     uint64 // ms, 0..30 min
	Description string
	Nonce       uint64 // random, not 0: the holder, see SessionAttach

	// Path is the node's, instead of its id. The server resolves it as
	// NodeDescribe does.
	Path string

	// Parent is the session whose command starts this one; 0: none. The parent is taken to give
	// nothing back before this session ends.
	Parent uint64
}

func (m *SessionStart) fields(f *fields) {
	f.message("session start")
	f.uint("node", &m.Node)
	f.bytes("create id", &m.CreateID)
	if len(m.CreateID) != KeyLen {
		f.refuse("create id is %d bytes long; it must be %d random bytes", len(m.CreateID), KeyLen)
	}
	f.sessionKey(&m.Key)
	f.millis("timeout", &m.Timeout, "session timeout", MaxSessionTimeout)
	f.text("description", &m.Description, "session description", MaxDescriptionLen)
	f.nonce(&m.Nonce)
	f.str("path", &m.Path)
	if f.checks() && m.Path != "" {
		f.keep(ValidatePath(m.Path))
		if m.Node != 0 {
			f.refuse("both the id and the path of the node are given; give one of them")
		}
	}
	f.trailingUint("parent", &m.Parent)
}

// SessionAttach attaches an existing session to this connection. Reply: SessionReply.
type SessionAttach struct {
	Session     uint64
	Node        uint64
	Epoch       uint64 // attach epoch, higher than any before
	Key         []byte
	Timeout     uint64
	Description string
	// Nonce is the holder: random, not 0, the same in a start and in all attaches of one client
	// object, another one in each client that takes the session over. An attach with the session's
	// own epoch is a repeat if it has the nonce of the attach (or start) that made the epoch, and
	// else BAD_SESSION.
	Nonce uint64
}

func (m *SessionAttach) fields(f *fields) {
	f.message("session attach")
	f.uint("session", &m.Session)
	f.uint("node", &m.Node)
	f.uint("epoch", &m.Epoch)
	f.sessionKey(&m.Key)
	f.millis("timeout", &m.Timeout, "session timeout", MaxSessionTimeout)
	f.text("description", &m.Description, "session description", MaxDescriptionLen)
	f.nonce(&m.Nonce)
}

// SessionReply answers start and attach.
type SessionReply struct {
	Session uint64
	Epoch   uint64
	Shard   uint64 // home shard: its pongs renew the session
	Timeout uint64 // ms, in force
	Grace   uint64 // ms, the node's
	Ticket  []byte // opaque, for PresentTicket

	// The node's id, and how it is read when a request does not say.
	Node            uint64
	ReadConsistency Consistency
}

func (m *SessionReply) fields(f *fields) {
	f.message("session reply")
	f.uint("session", &m.Session)
	f.uint("epoch", &m.Epoch)
	f.uint("shard", &m.Shard)
	f.uint("timeout", &m.Timeout)
	f.uint("grace", &m.Grace)
	f.bytes("ticket", &m.Ticket)
	f.uint("node", &m.Node)
	small(f, "read consistency", &m.ReadConsistency)
}

// SessionStop ends a session now. A session that is gone already answers SESSION_EXPIRED. Reply:
// Empty.
type SessionStop struct {
	Session uint64
	Epoch   uint64
}

func (m *SessionStop) fields(f *fields) {
	f.message("session stop")
	f.uint("session", &m.Session)
	f.uint("epoch", &m.Epoch)
}

// SessionKill is the operator's stop; needs the right admin. Reply: Empty.
type SessionKill struct {
	Session uint64
	Node    uint64
	Reason  string // not empty
}

func (m *SessionKill) fields(f *fields) {
	f.message("session kill")
	f.uint("session", &m.Session)
	f.uint("node", &m.Node)
	f.reason(&m.Reason)
}

// SessionDescribe reads one session at its home. Reply: SessionInfo.
type SessionDescribe struct {
	Session uint64 // 0: CreateID names it
	Node    uint64
	// CreateID is the create id of the session, instead of its id. The frame names the home bucket.
	CreateID []byte
}

func (m *SessionDescribe) fields(f *fields) {
	f.message("session describe")
	f.uint("session", &m.Session)
	f.uint("node", &m.Node)
	f.trailingBytes("create id", &m.CreateID)
	if f.checks() && len(m.CreateID) > 0 {
		switch {
		case len(m.CreateID) != KeyLen:
			f.refuse("create id is %d bytes long; it must be the %d bytes of the start", len(m.CreateID), KeyLen)
		case m.Session != 0:
			f.refuse("both the id and the create id of the session are given; give one of them")
		}
	}
}

// SessionList lists the sessions of a node that live in one shard; in order of id. Reply:
// SessionListReply.
type SessionList struct {
	Shard  uint64
	Node   uint64
	Cursor []byte
	Limit  uint32
}

func (m *SessionList) fields(f *fields) {
	f.message("session list")
	f.uint("shard", &m.Shard)
	f.uint("node", &m.Node)
	f.bytes("cursor", &m.Cursor)
	f.uint32("limit", &m.Limit)
}

// SessionState as the server sees it.
type SessionState uint8

const (
	SessionAttached SessionState = 1
	SessionDetached SessionState = 2
)

// SessionInfo describes a session.
type SessionInfo struct {
	Session     uint64
	Node        uint64
	State       SessionState
	Epoch       uint64
	Timeout     uint64 // ms
	Remaining   uint64 // ms until it expires, when detached
	Description string
	Client      string // client address, as the instance saw it
	CreatedAt   uint64 // wall clock, ms since 1970
	Parent      uint64 // the session whose command started it; 0: none
}

func (m *SessionInfo) fields(f *fields) {
	f.message("session info")
	f.uint("session", &m.Session)
	f.uint("node", &m.Node)
	small(f, "state", &m.State)
	f.uint("epoch", &m.Epoch)
	f.uint("timeout", &m.Timeout)
	f.uint("remaining", &m.Remaining)
	f.str("description", &m.Description)
	f.str("client", &m.Client)
	f.uint("created at", &m.CreatedAt)
	f.trailingUint("parent", &m.Parent)
}

// SessionListReply is a page. An empty cursor is the end. List.Session on every shard lists a
// session's semaphores and waiters, and SessionObjects the other objects it takes part in.
type SessionListReply struct {
	Sessions []SessionInfo
	Cursor   []byte
	Runs     []BucketRun // which buckets the page is about
}

func (m *SessionListReply) fields(f *fields) {
	f.message("session list reply")
	for l := list(f, "sessions", 9, &m.Sessions); l.next(f); {
		l.item().fields(f)
	}
	f.bytes("cursor", &m.Cursor)
	bucketRuns(f, &m.Runs)
}

// SessionObjects lists the objects besides semaphores that a session takes part in, in one shard:
// first the processes that it is a member of, then the tracks that it has instances of, then rate
// limits, each in order of name, then the sessions whose parent it is. Reply: SessionObjectsReply.
type SessionObjects struct {
	Shard   uint64
	Node    uint64
	Session uint64
	Cursor  []byte
	Limit   uint32
}

func (m *SessionObjects) fields(f *fields) {
	f.message("session objects")
	f.uint("shard", &m.Shard)
	f.uint("node", &m.Node)
	f.uint("session", &m.Session)
	f.bytes("cursor", &m.Cursor)
	f.uint32("limit", &m.Limit)
}

// ObjectType is a type of object in a shard, besides semaphores.
type ObjectType uint8

const (
	ObjectProcess ObjectType = 1
	ObjectTrack   ObjectType = 2
	ObjectLimit   ObjectType = 3
	ObjectSession ObjectType = 4 // a session that a command of this one started
)

// SessionObject is one object that a session takes part in.
type SessionObject struct {
	Type  ObjectType
	Name  []byte // of a session its id, 8 bytes, big-endian
	Label string // the member's key, which may be empty; the first of the instances' ids; a session's description
	Count uint64 // of instances; of a process 1
}

func (m *SessionObject) fields(f *fields) {
	small(f, "objects.type", &m.Type)
	f.bytes("objects.name", &m.Name)
	f.str("objects.label", &m.Label)
	f.uint("objects.count", &m.Count)
}

// SessionObjectsReply is a page. An empty cursor is the end.
type SessionObjectsReply struct {
	Objects []SessionObject
	Cursor  []byte
	Runs    []BucketRun // which buckets the page is about
}

func (m *SessionObjectsReply) fields(f *fields) {
	f.message("session objects reply")
	for l := list(f, "objects", 4, &m.Objects); l.next(f); {
		l.item().fields(f)
	}
	f.bytes("cursor", &m.Cursor)
	bucketRuns(f, &m.Runs)
}

// NodeDropped is the message of a refusal for a node that was dropped with its sessions.
const NodeDropped = "coordination node was deleted; a node created under the same path is another one, with new sessions"

// EndReason is why a session ended.
type EndReason uint8

const (
	EndStopped     EndReason = 1
	EndExpired     EndReason = 2
	EndKilled      EndReason = 3
	EndNodeDropped EndReason = 4
)

// SessionEnded notifies an attached client that its session is gone for good.
type SessionEnded struct {
	Session uint64
	Reason  EndReason
	Message string
}

func (m *SessionEnded) fields(f *fields) {
	f.message("session ended")
	f.uint("session", &m.Session)
	small(f, "reason", &m.Reason)
	f.str("message", &m.Message)
}

// TakenOver notifies a connection that the session was attached elsewhere: pongs on this connection
// no longer renew it.
type TakenOver struct {
	Session uint64
	Epoch   uint64 // the new one; the one it had here if the same start or attach was sent again from elsewhere
}

func (m *TakenOver) fields(f *fields) {
	f.message("taken over")
	f.uint("session", &m.Session)
	f.uint("epoch", &m.Epoch)
}

// Detached notifies a connection that a session is no longer attached on it: its home moves to
// another shard, or the home shard has another leader. From here on no pong on this connection
// renews an attach of it up to Epoch. The session lives: attach it again, with a higher epoch, at
// the instance that the map names; until the move is done the answer is WRONG_SHARD. It may come
// before the reply to the attach that it is about.
type Detached struct {
	Session uint64
	Epoch   uint64 // the attach epoch it had here
}

func (m *Detached) fields(f *fields) {
	f.message("detached")
	f.uint("session", &m.Session)
	f.uint("epoch", &m.Epoch)
}
