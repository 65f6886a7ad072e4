package peer

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
)

// The handshake. Each message is magic (4 bytes), version, type, length (2 bytes, big-endian) and a
// body of at most 1 KiB; a string is a byte of length and its bytes.
//
//	dialer                                               acceptor
//	hello:  purpose, nonce, own address, dialled address ->
//	                                                     <-  challenge: nonce, own address
//	proof:  own cluster, MAC("dialer", ...)              ->
//	                                                     <-  accept: own cluster,
//	                                                         MAC("acceptor", ...)
//	                                                         or refuse: reason
//
// A MAC is HMAC-SHA256 with a key made from the join token over the role's label, the whole hello,
// the whole challenge and the sender's cluster. So it binds both nonces, both addresses, purpose
// and version. It cannot be used in the other role, or twice. The dialer proves first: a stranger
// who does not know the token gets nothing that depends on it.
const (
	magic           = "sbxm"
	handshakeHeader = 8
	maxHandshake    = 1024
	nonceSize       = 32
	macSize         = sha256.Size
)

// HandshakeVersion is the version of the handshake, and of the messages of instances after it.
const HandshakeVersion = 1

// purpose of a connection. Numbers are stable.
type purpose uint8

const (
	purposeRaft     purpose = 1
	purposeSnapshot purpose = 2
	purposeCalls    purpose = 3 // and one-way messages
)

func (p purpose) known() bool { return p >= purposeRaft && p <= purposeCalls }

func (p purpose) String() string {
	switch p {
	case purposeRaft:
		return "raft"
	case purposeSnapshot:
		return "snapshot"
	case purposeCalls:
		return "calls"
	}
	return "unknown"
}

const (
	msgHello     = 1
	msgChallenge = 2
	msgProof     = 3
	msgAccept    = 4
	msgRefuse    = 5
)

// Reasons of a rejected connection. The dialer's errors wrap them.
var (
	ErrToken   = errors.New("join tokens differ: the instance is one of another cluster, or give all instances of a cluster the same one")
	ErrCluster = errors.New("the instance belongs to another cluster; give this one the addresses of its own")
	ErrAddress = errors.New("another instance answers at this address; correct the address it advertises")
	ErrVersion = errors.New("the instance speaks another version of the protocol between instances; upgrade the older one")
	ErrBusy    = errors.New("the instance has too many connections")
	errGarbage = errors.New("not a handshake between instances")
)

// reasons by their number in a rejection. Numbers are stable.
var reasons = []error{1: ErrToken, 2: ErrCluster, 3: ErrAddress, 4: ErrVersion, 5: ErrBusy}

// identity is one end's part of a handshake.
type identity struct {
	keys    [][]byte // the first is the one that it proves when it dials; it accepts all
	address string
	cluster string
}

// keyOf derives the key of proofs from the join token.
func keyOf(token []byte) []byte {
	h := hmac.New(sha256.New, token)
	h.Write([]byte("signalbox mesh 1"))
	return h.Sum(nil)
}

func prove(key []byte, role string, hello, challenge []byte, cluster string) []byte {
	h := hmac.New(sha256.New, key)
	for _, part := range [][]byte{[]byte(role), hello, challenge, []byte(cluster)} {
		var n [4]byte
		binary.BigEndian.PutUint32(n[:], uint32(len(part)))
		h.Write(n[:])
		h.Write(part)
	}
	return h.Sum(nil)
}

// handshakeMessage encodes a message.
func handshakeMessage(kind byte, parts ...[]byte) []byte {
	b := make([]byte, handshakeHeader, 128)
	for _, p := range parts {
		b = append(b, p...)
	}
	copy(b, magic)
	b[4], b[5] = HandshakeVersion, kind
	binary.BigEndian.PutUint16(b[6:], uint16(len(b)-handshakeHeader))
	return b
}

func text(s string) []byte { return append([]byte{byte(len(s))}, s...) }

// bodyReader decodes a message's body.
type bodyReader struct {
	rest []byte
	bad  bool
}

func (r *bodyReader) bytes(n int) []byte {
	if r.bad || n > len(r.rest) {
		r.bad = true
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *bodyReader) byte() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *bodyReader) text() string { return string(r.bytes(int(r.byte()))) }

func (r *bodyReader) done() bool { return !r.bad && len(r.rest) == 0 }

// readHandshake reads exactly one message. It returns the whole message and its body.
func readHandshake(r io.Reader) (kind byte, whole, body []byte, err error) {
	var buf [maxHandshake + handshakeHeader]byte
	// The first bytes reveal strangers: no more of an HTTP request or a TLS hello is read.
	if _, err := io.ReadFull(r, buf[:len(magic)]); err != nil {
		return 0, nil, nil, err
	}
	if string(buf[:len(magic)]) != magic {
		return 0, nil, nil, errGarbage
	}
	if _, err := io.ReadFull(r, buf[len(magic):handshakeHeader]); err != nil {
		return 0, nil, nil, err
	}
	if buf[4] != HandshakeVersion {
		return 0, nil, nil, ErrVersion
	}
	n := handshakeHeader + int(binary.BigEndian.Uint16(buf[6:]))
	if n > len(buf) {
		return 0, nil, nil, errGarbage
	}
	if _, err := io.ReadFull(r, buf[handshakeHeader:n]); err != nil {
		return 0, nil, nil, err
	}
	whole = append([]byte(nil), buf[:n]...)
	return buf[5], whole, whole[handshakeHeader:], nil
}

// dialHandshake is the dialer's side. strict rejects a peer that advertises another address than
// the dialled one. It returns the address that the acceptor advertises, and the acceptor's cluster,
// empty if that is not known there.
func dialHandshake(
	rw io.ReadWriter, me identity, address string, p purpose, strict bool,
) (peer, cluster string, err error) {
	var nonce [nonceSize]byte
	rand.Read(nonce[:])
	hello := handshakeMessage(msgHello, []byte{byte(p)}, nonce[:], text(me.address), text(address))
	if _, err := rw.Write(hello); err != nil {
		return "", "", err
	}
	kind, challenge, body, err := readHandshake(rw)
	if err != nil {
		return "", "", err
	}
	if kind == msgRefuse {
		return "", "", rejection(body)
	}
	f := bodyReader{rest: body}
	f.bytes(nonceSize)
	peer = f.text()
	if kind != msgChallenge || !f.done() {
		return "", "", errGarbage
	}
	if strict && peer != address {
		return "", "", ErrAddress
	}
	if _, err := rw.Write(handshakeMessage(msgProof, text(me.cluster),
		prove(me.keys[0], "dialer", hello, challenge, me.cluster))); err != nil {
		return "", "", err
	}
	kind, _, body, err = readHandshake(rw)
	if err != nil {
		return "", "", err
	}
	if kind == msgRefuse {
		return "", "", rejection(body)
	}
	f = bodyReader{rest: body}
	cluster = f.text()
	mac := f.bytes(macSize)
	if kind != msgAccept || !f.done() {
		return "", "", errGarbage
	}
	if !hmac.Equal(mac, prove(me.keys[0], "acceptor", hello, challenge, cluster)) {
		return "", "", ErrToken
	}
	if !sameCluster(me.cluster, cluster) {
		return "", "", ErrCluster
	}
	return peer, cluster, nil
}

// sameCluster: an unknown cluster matches any.
func sameCluster(a, b string) bool { return a == "" || b == "" || a == b }

func rejection(body []byte) error {
	if len(body) == 1 && int(body[0]) < len(reasons) && reasons[body[0]] != nil {
		return reasons[body[0]]
	}
	return errGarbage
}

// writeRejection sends the dialer the reason, if it has a number. The bytes do not depend on a
// secret.
func writeRejection(w io.Writer, why error) {
	for i, r := range reasons {
		if r != nil && errors.Is(why, r) {
			_, _ = w.Write(handshakeMessage(msgRefuse, []byte{byte(i)}))
			return
		}
	}
	// A client that took this for its own address recognises it by the magic.
	if plain, ok := errors.AsType[tls.RecordHeaderError](why); ok && plain.Conn != nil {
		w = plain.Conn
	} else if !errors.Is(why, errGarbage) {
		return
	}
	_, _ = w.Write(handshakeMessage(msgRefuse, []byte{0}))
}

// acceptHandshake is the acceptor's side without its last message: on success accept is that
// message, which the caller sends. On failure the caller rejects with the error.
func acceptHandshake(rw io.ReadWriter, me identity) (peer string, p purpose, accept []byte, err error) {
	kind, hello, body, err := readHandshake(rw)
	if err != nil {
		return "", 0, nil, err
	}
	f := bodyReader{rest: body}
	p = purpose(f.byte())
	f.bytes(nonceSize)
	peer = f.text()
	meant := f.text()
	if kind != msgHello || !f.done() || peer == "" {
		return "", 0, nil, errGarbage
	}
	if !p.known() {
		return "", 0, nil, ErrVersion
	}
	var nonce [nonceSize]byte
	rand.Read(nonce[:])
	challenge := handshakeMessage(msgChallenge, nonce[:], text(me.address))
	if _, err := rw.Write(challenge); err != nil {
		return "", 0, nil, err
	}
	kind, _, body, err = readHandshake(rw)
	if err != nil {
		return "", 0, nil, err
	}
	f = bodyReader{rest: body}
	cluster := f.text()
	mac := f.bytes(macSize)
	if kind != msgProof || !f.done() {
		return "", 0, nil, errGarbage
	}
	var key []byte // that of the dialer
	for _, k := range me.keys {
		if hmac.Equal(mac, prove(k, "dialer", hello, challenge, cluster)) {
			key = k
		}
	}
	if key == nil {
		return "", 0, nil, ErrToken
	}
	// From here on the dialer knows the token, and may learn why it is rejected.
	if p != purposeCalls && meant != me.address {
		return "", 0, nil, ErrAddress
	}
	if !sameCluster(me.cluster, cluster) {
		return "", 0, nil, ErrCluster
	}
	return peer, p, handshakeMessage(msgAccept, text(me.cluster), prove(key, "acceptor", hello, challenge, me.cluster)),
		nil
}
