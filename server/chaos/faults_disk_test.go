package chaos

import (
	"os"
	"os/exec"
	"time"
)

// freeze lets a disk take no writes until thaw. False: it cannot be frozen here.
func freeze(disk string) bool { return exec.Command("fsfreeze", "--freeze", disk).Run() == nil }

func thaw(disk string) { _ = exec.Command("fsfreeze", "--unfreeze", disk).Run() }

// freezeDisk is a fault in which a disk does not finish its writes for a while.
func freezeDisk(pick func(x *faultCluster) (*instance, bool), least, most time.Duration) func(x *faultCluster) bool {
	return func(x *faultCluster) bool {
		in, ok := pick(x)
		if !ok || !freeze(x.disks[x.name(in)]) {
			return false
		}
		x.sleepBetween(least, most)
		thaw(x.disks[x.name(in)])
		return true
	}
}

// fillDisk is a fault in which a disk is filled up to this many MiB. The instance ends by itself,
// and is restarted when there is room.
func fillDisk(left int64) func(x *faultCluster) bool {
	return onInstance((*faultCluster).any, func(x *faultCluster, in *instance) {
		filler := fill(x.t, x.disks[x.name(in)], left<<20)
		select {
		case <-in.ended:
		case <-time.After(waitLimit):
			x.t.Fatalf("%s did not end on a full disk:\n%s", x.name(in), in.log())
		}
		if err := os.Remove(filler); err != nil {
			x.t.Fatal(err)
		}
		in.start()
	})
}

var diskFaults = []fault{
	{name: "the leader's disk stands still", disks: true, do: freezeDisk((*faultCluster).leader, 200*time.Millisecond, 4*time.Second)},
	{name: "the disk of any instance stands still", disks: true, do: freezeDisk((*faultCluster).any, 200*time.Millisecond, 4*time.Second)},
	{name: "a slow disk: it stands still for half of the time", disks: true, do: func(x *faultCluster) bool {
		in, _ := x.leader()
		if in == nil {
			return false
		}
		disk := x.disks[x.name(in)]
		for until := now() + 3*time.Second; now() < until; {
			if !freeze(disk) {
				return false
			}
			x.sleepBetween(20*time.Millisecond, 200*time.Millisecond)
			thaw(disk)
			x.sleepBetween(20*time.Millisecond, 200*time.Millisecond)
		}
		return true
	}},
	{name: "a disk that is full", disks: true, do: fillDisk(8)},
	{name: "a disk that is nearly full", disks: true, do: fillDisk(80)}, // of one GiB; the instance drains first
}
