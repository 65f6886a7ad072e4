package protocol

// Cluster is what an operator asks of the cluster, or tells it: a method, MethodStatus and the like, and its request in JSON. Needs the right admin, but for
// MethodStatus, MethodPlan and MethodHealth, which need read, both on the path "/". Reply: ClusterReply. Any instance answers; what changes something
// is decided by the meta shard, and a request whose reply was lost may be sent again.
//
// The documents are JSON, other than everything else here, because operators' tools want to print and keep them as they are, and speed is of no
// matter.
type Cluster struct {
	Method string
	Body   []byte
}

// ClusterReply is the method's answer in JSON.
type ClusterReply struct {
	Body []byte
}
