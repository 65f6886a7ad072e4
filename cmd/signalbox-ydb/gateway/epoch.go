package gateway

import (
	"crypto/sha256"

	"github.com/signalbox-dev/signalbox/client/gateway"
	"github.com/signalbox-dev/signalbox/protocol"
)

// An attach epoch is seq_no x 2^24 + n, so that the cluster orders attaches by seq_no, whichever
// gateway they come from. n orders the attaches under one seq_no, and goes on when seq_no rises:
//
//	bits 63..24  seq_no of the client's SessionStart
//	bits 23..6   which holder this is: rises with each restore
//	bits  5..0   attaches of this holder that may have been applied: again by itself after a lost
//	             connection, and once to stop; above 63 they count in the bits above
//
// A holder's requests are numbered from 2^40 times its number on, so that they are above all that
// the holder before can have used. The holder's number has 18 bits, and does not begin again when
// seq_no rises: lower request numbers would repeat answers of earlier requests. So a session has
// maxHolders restores at most. The rest of the 18 bits belongs to the last holder's own attaches,
// which must not run into seq_no.
const (
	seqNoShift  = 24
	holderShift = 6
	numberShift = 40

	lastHolder = 1<<(seqNoShift-holderShift) - 1
	maxHolders = lastHolder - 1<<10

	// maxSeqNo is the largest seq_no that an epoch has room for.
	maxSeqNo = 1 << 39
)

// nextEpoch is the epoch and the first request number of the next holder of a session, after a
// holder with the epoch last. Errors: BadSession, if last is of a higher seq_no, or if the session
// has had all its holders.
func nextEpoch(last, seqNo uint64) (epoch, firstNumber uint64, err error) {
	if last>>seqNoShift > seqNo {
		return 0, 0, protocol.Errorf(protocol.StatusBadSession,
			"seq_no %d is lower than %d, the session's last one; a later stream has it", seqNo, last>>seqNoShift)
	}
	holder := (last>>holderShift)&lastHolder + 1
	if holder > maxHolders {
		return 0, 0, protocol.Errorf(protocol.StatusBadSession,
			"the session was restored %d times, the most that may be; start another one", maxHolders)
	}
	return seqNo<<seqNoShift | holder<<holderShift, holder<<numberShift + 1, nil
}

// maxProtectionKey is the longest key of a client, in bytes.
const maxProtectionKey = 16

// sessionKey is the session's key at the cluster. Clients choose keys of 0 to 16 bytes, and the
// cluster wants 16.
func sessionKey(protectionKey []byte) (gateway.Key, error) {
	if len(protectionKey) > maxProtectionKey {
		return gateway.Key{}, protocol.Errorf(protocol.StatusBadRequest,
			"the protection key is %d bytes long; at most %d are allowed", len(protectionKey), maxProtectionKey)
	}
	sum := sha256.Sum256(append([]byte("signalbox-ydb protection key\x00"), protectionKey...))
	return gateway.Key(sum[:len(gateway.Key{})]), nil
}
