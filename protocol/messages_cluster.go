package protocol

// Cluster is an operator's request to the cluster: a method, MethodStatus and the like, and its
// request in JSON. Needs the right admin, but for MethodStatus, MethodPlan and MethodHealth, which
// need read, both on the path "/". Reply: ClusterReply. Any instance answers; the meta shard
// decides changes, and a request whose reply was lost may be sent again.
//
// The documents are JSON, other than everything else here, because operators' tools want to print
// and keep them as they are, and speed is of no matter.
type Cluster struct {
	Method string
	Body   []byte
}

func (m *Cluster) fields(f *fields) {
	f.message("cluster")
	f.str("method", &m.Method)
	if f.checks() {
		m.checkMethod(f)
	}
	f.data("body", &m.Body)
}

// ClusterReply is the method's answer in JSON.
type ClusterReply struct {
	Body []byte
}

func (m *ClusterReply) fields(f *fields) {
	f.message("cluster reply")
	f.bytes("body", &m.Body)
}

func (m *Cluster) checkMethod(f *fields) {
	if n := len(m.Method); n == 0 || n > MaxMethodLen {
		f.refuse("method is %d bytes long; it must be 1 to %d", n, MaxMethodLen)
	}
	for _, r := range m.Method {
		if (r < 'a' || r > 'z') && r != '_' {
			f.refuse("method has characters other than a-z and _")
		}
	}
}

// Bounds of AuditLog.
const (
	DefaultAuditLines = 100
	MaxAuditLines     = 1000
)
