package chaos

import (
	"os"
	"os/exec"
	"time"
)

// freeze has a disk take no writes until thaw. False: it cannot be frozen here.
func freeze(disk string) bool { return exec.Command("fsfreeze", "--freeze", disk).Run() == nil }

func thaw(disk string) { _ = exec.Command("fsfreeze", "--unfreeze", disk).Run() }

// stuck is a fault in which a disk does not finish what it is told, for a while.
func stuck(pick func(x *trial) (*instance, bool), least, most time.Duration) func(x *trial) bool {
	return func(x *trial) bool {
		in, ok := pick(x)
		if !ok || !freeze(x.disks[x.name(in)]) {
			return false
		}
		x.hold(least, most)
		thaw(x.disks[x.name(in)])
		return true
	}
}

// full is a fault in which others use up a disk but for so many MiB; the instance ends by itself, and is started again when there is room.
func full(left int64) func(x *trial) bool {
	return to((*trial).any, func(x *trial, in *instance) {
		filler := fill(x.t, x.disks[x.name(in)], left<<20)
		select {
		case <-in.ended:
		case <-time.After(patience):
			x.t.Fatalf("%s did not end on a full disk:\n%s", x.name(in), in.log())
		}
		if err := os.Remove(filler); err != nil {
			x.t.Fatal(err)
		}
		in.start()
	})
}

var diskFaults = []fault{
	{name: "the leader's disk stands still", disks: true, do: stuck((*trial).leader, 200*time.Millisecond, 4*time.Second)},
	{name: "the disk of any instance stands still", disks: true, do: stuck((*trial).any, 200*time.Millisecond, 4*time.Second)},
	{name: "a slow disk: it stands still for half of the time", disks: true, do: func(x *trial) bool {
		in, _ := x.leader()
		if in == nil {
			return false
		}
		disk := x.disks[x.name(in)]
		for until := now() + 3*time.Second; now() < until; {
			if !freeze(disk) {
				return false
			}
			x.hold(20*time.Millisecond, 200*time.Millisecond)
			thaw(disk)
			x.hold(20*time.Millisecond, 200*time.Millisecond)
		}
		return true
	}},
	{name: "a disk that is full", disks: true, do: full(8)},
	{name: "a disk that is nearly full", disks: true, do: full(80)}, // of one GiB; the instance hands over first
}
