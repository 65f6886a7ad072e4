package meta

import (
	"errors"
	"fmt"

	"github.com/signalbox-dev/signalbox/protocol"
	"github.com/signalbox-dev/signalbox/protocol/varint"
)

// Kind is what a command does. The numbers are stable: logs contain them.
type Kind uint8

const (
	KindBootstrap        Kind = 1
	KindRotateKeys       Kind = 2
	KindInstanceAddress  Kind = 3
	KindShardReady       Kind = 4
	KindJoin             Kind = 5
	KindInstanceUpdate   Kind = 6
	KindInstanceCurrent  Kind = 7
	KindClusterVersion   Kind = 8
	KindInstanceDrain    Kind = 9
	KindNodeCreate       Kind = 10
	KindNodeAlter        Kind = 11
	KindNodeDrop         Kind = 12
	KindNodeCommit       Kind = 13
	KindGraceFloorClear  Kind = 14
	KindInstanceReassign Kind = 15
	KindUpgradeHold      Kind = 16
	KindRightsPut        Kind = 20
	KindRightsRemove     Kind = 21
	KindTokenPut         Kind = 22
	KindTokenRemove      Kind = 23
	KindAuthSet          Kind = 24
	KindTokensUsed       Kind = 25
	KindTrustPut         Kind = 26
	KindTrustRemove      Kind = 27

	KindReplicasetIsReady     Kind = 30
	KindWeightSet             Kind = 31
	KindReplicasetExpel       Kind = 32
	KindReplicasetIsExpelled  Kind = 33
	KindTierReplicationFactor Kind = 34
	KindTierShards            Kind = 35
	KindTierRestored          Kind = 37

	KindShardsCreate  Kind = 40
	KindReplicaAdd    Kind = 41
	KindReplicaTarget Kind = 42
	KindReplicaRole   Kind = 43
	KindMasterTarget  Kind = 44
	KindMasterCurrent Kind = 45
	KindShardsRemove  Kind = 46
	KindShardAdd      Kind = 47
	KindShardRemove   Kind = 48

	KindBucketsAssign Kind = 50
	KindMoveBegin     Kind = 51
	KindMoveCommit    Kind = 52
	KindMoveAbort     Kind = 53
	KindMoveEnd       Kind = 54
)

// OpID makes it safe to propose a command again while the outcome of the first try is unknown. A
// command whose OpID was applied before gets the same answer as then, refusals included, and
// changes nothing. It is 16 random bytes from the proposer; zero means that the result is not
// remembered. The last MaxOps are kept.
type OpID [16]byte

// Command is one entry of the meta shard's log: a pointer to one of the structs of this package
// that have these methods.
type Command interface {
	kind() Kind
	fields(f *varint.Fields)
	// apply changes s, a copy that is dropped unless the status is OK, and returns the result. The
	// caller handles the revision and the memory of ops.
	apply(s *State) Result
}

// AppendCommand appends the entry for a command in the format of this binary. Instances propose
// what [State.Entry] returns.
func AppendCommand(b []byte, op OpID, c Command) []byte { return appendEntry(b, FormatVersion, op, c) }

// appendEntry appends the entry for a command: format version, kind, op id, fields.
func appendEntry(b []byte, format uint8, op OpID, c Command) []byte {
	b = append(b, format, byte(c.kind()))
	b = append(b, op[:]...)
	return varint.Encode(b, c.fields)
}

// newCommand makes an empty command of a kind; it is nil for an unknown kind.
var newCommand = [256]func() Command{
	KindBootstrap:             empty[Bootstrap],
	KindRotateKeys:            empty[RotateKeys],
	KindInstanceAddress:       empty[InstanceAddress],
	KindShardReady:            empty[ShardReady],
	KindNodeCreate:            empty[NodeCreate],
	KindNodeAlter:             empty[NodeAlter],
	KindNodeDrop:              empty[NodeDrop],
	KindNodeCommit:            empty[NodeCommit],
	KindGraceFloorClear:       empty[GraceFloorClear],
	KindRightsPut:             empty[RightsPut],
	KindRightsRemove:          empty[RightsRemove],
	KindTokenPut:              empty[TokenPut],
	KindTokenRemove:           empty[TokenRemove],
	KindTokensUsed:            empty[TokensUsed],
	KindAuthSet:               empty[AuthSet],
	KindTrustPut:              empty[TrustPut],
	KindTrustRemove:           empty[TrustRemove],
	KindJoin:                  empty[Join],
	KindInstanceUpdate:        empty[InstanceUpdate],
	KindInstanceCurrent:       empty[InstanceCurrent],
	KindInstanceDrain:         empty[InstanceDrain],
	KindInstanceReassign:      empty[InstanceReassign],
	KindClusterVersion:        empty[ClusterVersion],
	KindUpgradeHold:           empty[UpgradeHold],
	KindReplicasetIsReady:     empty[ReplicasetIsReady],
	KindWeightSet:             empty[WeightSet],
	KindReplicasetExpel:       empty[ReplicasetExpel],
	KindReplicasetIsExpelled:  empty[ReplicasetIsExpelled],
	KindTierReplicationFactor: empty[TierReplicationFactor],
	KindTierShards:            empty[TierShards],
	KindTierRestored:          empty[TierRestored],
	KindShardsCreate:          empty[ShardsCreate],
	KindShardsRemove:          empty[ShardsRemove],
	KindShardAdd:              empty[ShardAdd],
	KindShardRemove:           empty[ShardRemove],
	KindReplicaAdd:            empty[ReplicaAdd],
	KindReplicaTarget:         empty[ReplicaTarget],
	KindReplicaRole:           empty[ReplicaRole],
	KindMasterTarget:          empty[MasterTarget],
	KindMasterCurrent:         empty[MasterCurrent],
	KindBucketsAssign:         empty[BucketsAssign],
	KindMoveBegin:             empty[MoveBegin],
	KindMoveCommit:            empty[MoveCommit],
	KindMoveAbort:             empty[MoveAbort],
	KindMoveEnd:               empty[MoveEnd],
}

func empty[T any, P interface {
	*T
	Command
}]() Command {
	return P(new(T))
}

// ErrFormat: a newer binary wrote an entry.
var ErrFormat = errors.New("meta: entry has a format version this binary does not know; start the newer version, " +
	"or make a new cluster from a backup that this version can read: signalbox cluster restore")

// CheckFormat reports whether Apply reads entries of this format version. The replica must stop on
// ErrFormat: Apply would skip what another binary applies.
func CheckFormat(entry []byte) error {
	if len(entry) > 0 && entry[0] > FormatVersion {
		return ErrFormat
	}
	return nil
}

// decodeCommand reads an entry. Nil if this version cannot have written it.
func decodeCommand(entry []byte) (op OpID, c Command) {
	r := varint.Reader{Rest: entry}
	format := r.Byte()
	if format == 0 || format > FormatVersion {
		return op, nil
	}
	command := newCommand[r.Byte()]
	r.Fixed(op[:])
	if command == nil {
		return op, nil
	}
	c = command()
	varint.Decode(&r, c.fields)
	if !r.Done() || formatOf(c) > format {
		return op, nil
	}
	return op, c
}

// MaxOps is how many op ids are remembered. An entry may come again, or late, within seconds;
// commands are rare. Part of format version 1.
const MaxOps = 8192

// opEntry is the remembered result of one op.
type opEntry struct {
	number uint64 // its key in opOrder
	result Result
}

// opMemory remembers the results of the last ops.
type opMemory struct {
	// Invariant: ops and opOrder are inverse to one another, and hold at most MaxOps.
	ops     tree[string, opEntry]
	opOrder tree[uint64, string]
	opCount uint64
}

func (m *opMemory) opResult(op OpID) (Result, bool) {
	if op == (OpID{}) {
		return Result{}, false
	}
	e, ok := m.ops.get(string(op[:]))
	return e.result, ok
}

func (m *opMemory) rememberOp(op OpID, res Result) {
	if op == (OpID{}) {
		return
	}
	m.opCount++
	m.ops = m.ops.put(string(op[:]), opEntry{m.opCount, res})
	m.opOrder = m.opOrder.put(m.opCount, string(op[:]))
	if m.opOrder.len() > MaxOps {
		for number, oldest := range m.opOrder.all() {
			m.ops = m.ops.without(oldest)
			m.opOrder = m.opOrder.without(number)
			break
		}
	}
}

// Result is the answer to a command.
type Result struct {
	// OK: the command took effect, or there was nothing left to change. ABORTED: it met a pending
	// change, or names an old revision; look again and retry. Any other status is a final refusal.
	// Only OK changes anything.
	Status   protocol.Status
	Refusal  protocol.Refusal
	Message  string // the reason of a refusal; empty when OK
	Revision uint64 // of the machine, after the command
	Node     uint64 // of node commands
	Version  uint64 // of that node's config, after the command; for MoveBegin the move's epoch
	Instance uint64 // of commands that join, update or host an instance
	Replica  uint64 // of replica commands
}

// Err is nil for an OK result, else a *protocol.Error.
func (r *Result) Err() error {
	if r.Status == protocol.StatusOK {
		return nil
	}
	return &protocol.Error{Status: r.Status, Refusal: r.Refusal, Message: r.Message}
}

func refuse(status protocol.Status, format string, args ...any) Result {
	message := fmt.Sprintf(format, args...)
	return Result{Status: status, Message: message[:min(len(message), maxMessage)]}
}

// maxMessage has room for a sentence and two paths; longer messages are cut. Part of format version
// 1.
const maxMessage = 2*protocol.MaxPathLen + 256

func (r *Result) fields(f *varint.Fields) {
	varint.Byte(f, &r.Status)
	varint.Byte(f, &r.Refusal)
	f.Text(&r.Message, maxMessage)
	f.Uint(&r.Revision, &r.Node, &r.Version, &r.Instance, &r.Replica)
}

// AppendResult appends the bytes of a result: the format version that first had its fields, and the
// fields. Instances of an older version get results of newer ones, so the version is not the
// newest.
func AppendResult(b []byte, res Result) []byte {
	return varint.Encode(append(b, firstFormat), res.fields)
}

// DecodeResult reads what Apply returned.
func DecodeResult(b []byte) (res Result, err error) {
	r := varint.Reader{Rest: b}
	format := r.Byte()
	varint.Decode(&r, res.fields)
	if format != firstFormat || !r.Done() {
		return Result{},
			errors.New("the meta shard's answer is not readable; check that all instances run compatible versions")
	}
	return res, nil
}
