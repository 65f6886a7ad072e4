// Package container has the data structures of package shard and its rooms: a hash set of records
// that find themselves, an ordered index, a heap with positions, a ranking, a set whose keys expire
// in order, and a table of shared texts. They know nothing of what is kept in them.
//
//	var sessions container.PartitionedSet[session]
//	hash := container.HashID(id)
//	s := sessions.Of(hash).Get(hash, func(s *session) bool { return s.id == id })
//
// They are for one goroutine; reads may run beside each other. Where an order is not documented, it
// must decide nothing.
package container
