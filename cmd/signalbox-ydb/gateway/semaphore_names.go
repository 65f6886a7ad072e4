package gateway

import (
	"github.com/ydb-platform/ydb-go-genproto/protos/Ydb_Coordination"
	"google.golang.org/protobuf/encoding/protowire"
)

// YDB's DescribeNode has two fields that the Go protobufs do not know yet: the request's
// include_semaphore_names and the result's semaphore_names. They are read and written as unknown
// fields, which a client with newer protobufs sees under their names.
const (
	fieldIncludeSemaphoreNames protowire.Number = 3 // bool
	fieldSemaphoreNames        protowire.Number = 3 // repeated string
)

// wantsSemaphoreNames reports whether a request has include_semaphore_names set.
func wantsSemaphoreNames(req *Ydb_Coordination.DescribeNodeRequest) (wants bool) {
	for b := req.ProtoReflect().GetUnknown(); len(b) > 0; {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return wants
		}
		b = b[n:]
		if number == fieldIncludeSemaphoreNames && kind == protowire.VarintType {
			v, _ := protowire.ConsumeVarint(b)
			wants = v != 0
		}
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return wants
		}
		b = b[n:]
	}
	return wants
}

// appendSemaphoreNames sets semaphore_names.
func appendSemaphoreNames(result *Ydb_Coordination.DescribeNodeResult, names []string) {
	b := result.ProtoReflect().GetUnknown()
	for _, name := range names {
		b = protowire.AppendTag(b, fieldSemaphoreNames, protowire.BytesType)
		b = protowire.AppendString(b, name)
	}
	result.ProtoReflect().SetUnknown(b)
}
