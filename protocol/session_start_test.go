package protocol

import (
	"encoding/hex"
	"reflect"
	"testing"
)

// TestSessionMessagesOf01 reads a start and its reply as version 0.1 wrote them.
func TestSessionMessagesOf01(t *testing.T) {
	for _, x := range []struct {
		body string
		into Message
		want Message
	}{
		{"9602c41066656463626139383736353433323130c41030313233343536373839616263646566cd2710a962696c6c696e672d3107", &SessionStart{},
			&SessionStart{Node: 2, CreateID: []byte("fedcba9876543210"), Key: []byte("0123456789abcdef"), Timeout: 10_000,
				Description: "billing-1", Nonce: 7}},
		{"96cf00004d20000000070101cd2710cd2710c403010203", &SessionReply{},
			&SessionReply{Session: 84799834292231, Epoch: 1, Shard: 1, Timeout: 10_000, Grace: 10_000, Ticket: []byte{1, 2, 3}}},
	} {
		b, err := hex.DecodeString(x.body)
		if err == nil {
			err = x.into.DecodeBody(b)
		}
		if err != nil || !reflect.DeepEqual(x.into, x.want) {
			t.Errorf("%s is read as %+v, %v", x.body, x.into, err)
		}
	}
}
