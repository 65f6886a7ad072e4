package transport

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sendRing sends to many sockets with one system call: an io_uring, whose queues this process and
// the kernel both have in memory. One goroutine at a time uses it.
//
// Invariant: between calls of send both queues are empty, and the kernel refers to no bytes of
// ours. A send never waits, because of MSG_DONTWAIT, so each is done when the call returns.
type sendRing struct {
	kernel   ringResources
	sqTail   *uint32
	entries  []ringEntry
	cqHead   *uint32
	cqTail   *uint32
	finished []ringResult
}

// ringResources are given back when a ring is collected.
type ringResources struct {
	fd                   int
	queues, entriesBytes []byte
}

// ringParams is struct io_uring_params of Linux' include/uapi/linux/io_uring.h.
type ringParams struct {
	sqEntries, cqEntries uint32
	_                    [3]uint32
	features             uint32
	_                    [4]uint32
	sq                   struct {
		head, tail, ringMask, ringEntries, flags, dropped, array, _ uint32
		_                                                           uint64
	}
	cq struct {
		head, tail, ringMask, ringEntries, overflow, cqes, flags, _ uint32
		_                                                           uint64
	}
}

// ringEntry is struct io_uring_sqe.
type ringEntry struct {
	opcode  uint8
	_       [3]uint8
	fd      int32
	_       uint64
	address uint64
	length  uint32
	flags   uint32
	number  uint64 // given back with the result
	_       [3]uint64
}

// ringResult is struct io_uring_cqe.
type ringResult struct {
	number uint64
	sent   int32 // bytes, or below zero an error's number
	_      uint32
}

const (
	ringSend      = 26         // IORING_OP_SEND
	ringGetEvents = 1          // IORING_ENTER_GETEVENTS: wait for results
	ringEntries   = 0x10000000 // IORING_OFF_SQES: the offset from which the entries are mapped
	ringFeatures  = 1 | 1<<3   // IORING_FEAT_SINGLE_MMAP, and IORING_FEAT_RW_CUR_POS, which came with sends
)

// newSendRing asks the kernel for a ring. It needs Linux 5.6, and many container profiles forbid
// rings.
func newSendRing() (*sendRing, error) {
	var p ringParams
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, maxGroup, uintptr(unsafe.Pointer(&p)), 0)
	if errno != 0 {
		return nil, fmt.Errorf("io_uring_setup: %w", errno)
	}
	k := ringResources{fd: int(fd)}
	err := k.mapQueues(&p)
	if err != nil {
		k.release()
		return nil, err
	}
	at := func(offset uint32) unsafe.Pointer { return unsafe.Pointer(&k.queues[offset]) }
	r := &sendRing{
		kernel:   k,
		sqTail:   (*uint32)(at(p.sq.tail)),
		entries:  unsafe.Slice((*ringEntry)(unsafe.Pointer(&k.entriesBytes[0])), p.sqEntries),
		cqHead:   (*uint32)(at(p.cq.head)),
		cqTail:   (*uint32)(at(p.cq.tail)),
		finished: unsafe.Slice((*ringResult)(at(p.cq.cqes)), p.cqEntries),
	}
	for i, order := 0, unsafe.Slice((*uint32)(at(p.sq.array)), p.sqEntries); i < len(order); i++ {
		order[i] = uint32(i)
	}
	runtime.AddCleanup(r, ringResources.release, k)
	return r, nil
}

func (r *ringResources) mapQueues(p *ringParams) (err error) {
	if p.features&ringFeatures != ringFeatures {
		return fmt.Errorf("io_uring of a kernel before Linux 5.6: %w", unix.ENOSYS)
	}
	const both, shared = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_POPULATE
	size := max(p.sq.array+p.sqEntries*uint32(unsafe.Sizeof(uint32(0))),
		p.cq.cqes+p.cqEntries*uint32(unsafe.Sizeof(ringResult{})))
	if r.queues, err = unix.Mmap(r.fd, 0, int(size), both, shared); err == nil {
		r.entriesBytes, err = unix.Mmap(r.fd, ringEntries, int(p.sqEntries)*int(unsafe.Sizeof(ringEntry{})), both, shared)
	}
	if err != nil {
		return fmt.Errorf("map the queues of an io_uring: %w", err)
	}
	return nil
}

func (r ringResources) release() {
	for _, m := range [][]byte{r.queues, r.entriesBytes} {
		if m != nil {
			_ = unix.Munmap(m)
		}
	}
	_ = unix.Close(r.fd)
}

// send sends, and records for each how many bytes the kernel took: 0 if the socket is full or
// broken. After an error the ring may not be used again, since it may hold sends that the kernel
// did not get to.
func (r *sendRing) send(list []socketSend) error {
	tail := *r.sqTail
	for i := range list {
		b := list[i].batch.segs[0]
		r.entries[(tail+uint32(i))%uint32(len(r.entries))] = ringEntry{
			opcode: ringSend, fd: int32(list[i].socket.fd), address: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))),
			length: uint32(len(b)), flags: unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL, number: uint64(i),
		}
	}
	atomic.StoreUint32(r.sqTail, tail+uint32(len(list)))
	waiting := len(list) // for the kernel to take them
	for done := 0; done < len(list); {
		n, _, errno := unix.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.kernel.fd),
			uintptr(waiting), uintptr(len(list)-done), ringGetEvents, 0, 0)
		switch {
		case errno == unix.EINTR:
		case errno != 0:
			return fmt.Errorf("io_uring_enter: %w", errno)
		case n == 0 && waiting > 0:
			return fmt.Errorf("io_uring_enter took none of %d sends: %w", waiting, unix.EIO)
		default:
			waiting -= int(n)
		}
		head := *r.cqHead
		for ; head != atomic.LoadUint32(r.cqTail); head++ {
			f := &r.finished[head%uint32(len(r.finished))]
			list[f.number].sent = int(max(0, f.sent))
			done++
		}
		atomic.StoreUint32(r.cqHead, head)
	}
	runtime.KeepAlive(list)
	runtime.KeepAlive(r)
	return nil
}
