package chaos

import (
	"slices"
	"time"
)

// clientsHost is the host of the history clients.
const clientsHost = 3

// host is the host of an instance.
func (x *faultCluster) host(in *instance) int { return slices.Index(x.c.names(), x.name(in)) }

// peersOf are the hosts of the other instances.
func (x *faultCluster) peersOf(host int) []int {
	return slices.DeleteFunc([]int{0, 1, 2}, func(k int) bool { return k == host })
}

// cutOff is a fault in which something is cut for a while.
func cutOff(pick func(x *faultCluster) (*instance, bool), cut func(x *faultCluster, host int)) func(x *faultCluster) bool {
	return onInstance(pick, func(x *faultCluster, in *instance) {
		cut(x, x.host(in))
		x.sleepBetween(500*time.Millisecond, 4*time.Second)
		x.net.healAll()
	})
}

// losePackets is a fault in which packets are lost for a while: between one in a hundred and one in
// five.
func losePackets(pick func(x *faultCluster) (*instance, bool)) func(x *faultCluster) bool {
	return func(x *faultCluster) bool {
		in, ok := pick(x)
		if !ok || !x.net.lose(x.host(in), 0.01+0.19*x.r.Float64()) {
			return false
		}
		x.sleepBetween(time.Second, 4*time.Second)
		x.net.healAll()
		return true
	}
}

// killedWhileLate kills the leader while another instance lacks what was acknowledged last. Clients
// may ask that instance next. It answers relaxed reads all the time, since the grace period is
// longer, but none of a client that has read something newer. So only what a client wrote and has
// not read yet can be hidden from it, and the time has to be short.
func killedWhileLate(x *faultCluster) bool {
	in, ok := x.leader()
	if !ok {
		return false
	}
	leader := x.host(in)
	x.net.cut(leader, x.peersOf(leader)[x.r.IntN(2)])
	x.sleepBetween(20*time.Millisecond, 120*time.Millisecond)
	_ = in.cmd.Process.Kill()
	x.sleepBetween(200*time.Millisecond, 500*time.Millisecond)
	x.net.healAll()
	restart(in)
	return true
}

var networkFaults = []fault{
	{name: "SIGKILL of the leader while nothing of it arrives at another instance", network: true, do: killedWhileLate},
	{name: "the leader cut off from the other instances, not from clients", network: true, do: cutOff((*faultCluster).leader, func(x *faultCluster, host int) { x.net.part(host, x.peersOf(host)...) })},
	{name: "any instance cut off from the others, not from clients", network: true, do: cutOff((*faultCluster).any, func(x *faultCluster, host int) { x.net.part(host, x.peersOf(host)...) })},
	{name: "the leader cut off from everybody", network: true, do: cutOff((*faultCluster).leader, func(x *faultCluster, host int) { x.net.part(host, append(x.peersOf(host), clientsHost)...) })},
	{name: "the leader cut off from clients", network: true, do: cutOff((*faultCluster).leader, func(x *faultCluster, host int) { x.net.part(host, clientsHost) })},
	{name: "two instances cut off from each other, the third reaches both", network: true, do: cutOff((*faultCluster).leader, func(x *faultCluster, host int) { x.net.part(host, x.peersOf(host)[x.r.IntN(2)]) })},
	{name: "all instances cut off from each other", network: true, do: cutOff((*faultCluster).any, func(x *faultCluster, host int) {
		others := x.peersOf(host)
		x.net.part(host, others...)
		x.net.part(others[0], others[1])
	})},
	{name: "nothing arrives from the leader at the others", network: true, do: cutOff((*faultCluster).leader,
		func(x *faultCluster, host int) {
			for _, other := range x.peersOf(host) {
				x.net.cut(host, other)
			}
		})},
	{name: "nothing arrives from the others at the leader", network: true, do: cutOff((*faultCluster).leader,
		func(x *faultCluster, host int) {
			for _, other := range x.peersOf(host) {
				x.net.cut(other, host)
			}
		})},
	{name: "no answer of the leader arrives at clients", network: true, do: cutOff((*faultCluster).leader, func(x *faultCluster, host int) { x.net.cut(host, clientsHost) })},
	{name: "packets lost at the leader", network: true, do: losePackets((*faultCluster).leader)},
	{name: "packets lost at any instance", network: true, do: losePackets((*faultCluster).any)},
	{name: "packets lost at the clients", network: true, do: func(x *faultCluster) bool {
		if !x.net.lose(clientsHost, 0.01+0.19*x.r.Float64()) {
			return false
		}
		x.sleepBetween(time.Second, 4*time.Second)
		x.net.healAll()
		return true
	}},
}
