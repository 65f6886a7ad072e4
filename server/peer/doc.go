// Package peer carries everything between instances: the raft engine's messages and snapshots,
// one-way messages, and calls with replies.
//
// A [Transport] listens on one address, the raft address. Each connection begins with a mutual
// proof that both ends know the join token; nothing else is read before. A peer has one connection
// for raft messages, one for calls and one-way messages, and one for each snapshot on its way, so
// that none of them waits for another. Connections are made on demand, and keep-alives find dead
// ones.
//
//	t, err := peer.New(peer.Config{Advertise: "10.0.0.1:7001", Tokens: [][]byte{token}})
//	t.HandleCall(methodJoin, join) // join(ctx, from, body) returns the body of the reply
//	err = t.Start()
//	reply, err := t.Call(ctx, "10.0.0.2:7001", methodJoin, body)
package peer
