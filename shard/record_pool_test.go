package shard

import (
	"fmt"
	"testing"

	"github.com/signalbox-dev/signalbox/protocol"
)

// TestSpareRecords: what has left an Apply stays as it was when its record is used again.
func TestSpareRecords(t *testing.T) {
	x := newBenchMachine(1)
	pair := func(name string) []byte {
		x.begin()
		x.acquire(0, []byte(name), true)
		x.release(0, []byte(name))
		x.commit()
		return x.out.SemaphoreChanges[0].Name
	}
	kept := pair("first")
	if len(x.m.spares.semaphores.gone) != 1 || len(x.m.spares.entries.gone) != 1 {
		t.Fatal("the records of the pair were not kept")
	}
	record := x.m.spares.semaphores.gone[0]
	for i := range 3 {
		kept2 := pair(fmt.Sprintf("other/%d", i))
		if x.m.spares.semaphores.gone[0] != record {
			t.Fatal("the record was not used again")
		}
		defer func() {
			if want := fmt.Sprintf("other/%d", i); string(kept2) != want {
				t.Errorf("a name that was kept is %q, was %q", kept2, want)
			}
		}()
	}
	if string(kept) != "first" {
		t.Errorf("a name that was kept is %q", kept)
	}

	x.begin()
	x.acquire(0, []byte("held"), true)
	x.commit()
	snapshot := x.m.BeginSnapshot()
	x.begin()
	x.release(0, []byte("held"))
	x.commit()
	if len(x.m.spares.semaphores.gone)+len(x.m.spares.entries.gone) > 0 {
		t.Error("a record was kept that a snapshot may still walk over")
	}
	snapshot.Close()
}

// TestSpareRecordsHaveNoData: what a record held is free when it goes, even if nothing follows.
func TestSpareRecordsHaveNoData(t *testing.T) {
	x := newBenchMachine(1)
	x.begin()
	m := protocol.Acquire{Head: x.head(0), Name: []byte("a"), Count: 1, Timeout: protocol.Forever, Ephemeral: true, Data: []byte("data")}
	x.body = m.AppendBody(x.body[:0])
	x.command(CmdAcquire)
	x.release(0, []byte("a"))
	x.commit()
	if n := len(x.m.spares.entries.gone); n > 0 {
		t.Errorf("%d entries with data were kept", n)
	}
	if n := len(x.m.spares.semaphores.gone); n != 1 {
		t.Errorf("%d semaphores were kept, want the one without data", n)
	}
}

func TestSpareRecordsAreBounded(t *testing.T) {
	var r recordPool[entry]
	for range 2 {
		for range maxSpareRecords {
			r.put(&entry{orderID: 1})
		}
		r.beginApply()
	}
	for range maxSpareRecords {
		if e := r.get(); e == nil || e.orderID != 0 {
			t.Fatal("a spare record is missing, or not zero")
		}
	}
	if r.get() != nil {
		t.Error("more records than the bound were kept")
	}
}
