package protocol

// SessionStart makes a session and attaches it to this connection with attach epoch 1. The create id makes it safe to send again. Reply:
// SessionReply.
type SessionStart struct {
	Node        uint64
	CreateID    []byte // 16 random bytes; their hash is the home bucket
	Key         []byte // 16 random bytes: the protection key
	Timeout     uint64 // ms, 0..30 min
	Description string
	Nonce       uint64 // random, not 0: the holder, see SessionAttach
}

// SessionAttach attaches an existing session to this connection. Reply: SessionReply.
type SessionAttach struct {
	Session     uint64
	Node        uint64
	Epoch       uint64 // attach epoch, higher than any before
	Key         []byte
	Timeout     uint64
	Description string
	// Nonce is the holder: random, not 0, the same in a start and in all attaches of one client object, another one in
	// each client that takes the session over. An attach with the session's own epoch is a repeat if it has the nonce
	// of the attach (or start) that made the epoch, and else BAD_SESSION.
	Nonce uint64
}

// SessionReply answers start and attach.
type SessionReply struct {
	Session uint64
	Epoch   uint64
	Shard   uint64 // home shard: its pongs vouch for the session
	Timeout uint64 // ms, in force
	Grace   uint64 // ms, the node's
	Ticket  []byte // opaque, for PresentTicket
}

// SessionStop ends a session now. A session that is gone already answers SESSION_EXPIRED. Reply: Empty.
type SessionStop struct {
	Session uint64
	Epoch   uint64
}

// SessionKill is the operator's stop; needs the right admin. Reply: Empty.
type SessionKill struct {
	Session uint64
	Node    uint64
	Reason  string // not empty
}

// SessionDescribe reads one session at its home. Reply: SessionInfo.
type SessionDescribe struct {
	Session uint64
	Node    uint64
}

// SessionList lists the sessions of a node that live in one shard; in order of id. Reply: SessionListReply.
type SessionList struct {
	Shard  uint64
	Node   uint64
	Cursor []byte
	Limit  uint32
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
}

// SessionListReply is a page. An empty cursor is the end. What a session holds and waits for is asked with List.Session on every shard.
type SessionListReply struct {
	Sessions []SessionInfo
	Cursor   []byte
}

// EndReason says why a session ended.
type EndReason uint8

const (
	EndStopped     EndReason = 1
	EndExpired     EndReason = 2
	EndKilled      EndReason = 3
	EndNodeDropped EndReason = 4
)

// SessionEnded tells an attached client that its session is gone for good.
type SessionEnded struct {
	Session uint64
	Reason  EndReason
	Message string
}

// TakenOver tells a connection that the session was attached elsewhere: pongs that come here do not vouch for it any more.
type TakenOver struct {
	Session uint64
	Epoch   uint64 // the new one; the one it had here if the same start or attach was sent again from elsewhere
}

// Detached tells a connection that a session is attached on it no more: its home moves to another shard, or the home shard has another leader. From here on no pong
// on this connection renews an attach of it up to Epoch. The session lives: it is to be attached again, with a higher epoch, at the instance that the map names; until
// the move is done that is answered WRONG_SHARD. It may come before the reply to the attach that it is about.
type Detached struct {
	Session uint64
	Epoch   uint64 // the attach epoch it had here
}
