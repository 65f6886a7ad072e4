// Package peer carries everything instances say to each other: the raft engine's messages and snapshots, one-way messages, and calls with answers.
//
// It listens on one address, the raft address. Each connection begins with a mutual proof that both ends know the join token; nothing else is read before.
// A peer has one connection for the raft engine's messages, one for calls and one-way messages, and one for each snapshot that is on its way, so that
// none of them waits for another. Connections are made when there is something to say, and found dead by keep-alives.
//
//	m, err := peer.New(peer.Config{Advertise: "10.0.0.1:7001", Token: token})
//	m.Handle(methodJoin, func(ctx context.Context, from string, body []byte) ([]byte, error) { ... })
//	err = m.Start()
//	answer, err := m.Call(ctx, "10.0.0.2:7001", methodJoin, body)
package peer
