package discovery

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/signalbox-dev/signalbox/protocol"
)

// State is a member's report about itself.
type State string

const (
	Ready    State = "ready"
	Failing  State = "failing"  // its check fails
	Draining State = "draining" // it leaves soon
)

// Bounds of an Endpoint.
const (
	maxAddr       = 255     // bytes
	maxZone       = 64      // bytes
	MaxWeight     = 1000    // the least is 1
	DefaultWeight = 100     // of a member that names none
	maxWhy        = 200     // bytes
	maxMeta       = 32      // strings
	maxMetaBytes  = 4 << 10 // of all keys and values together
	MaxData       = 8 << 10 // of the whole as it is stored
)

// Endpoint is where a member of a service is, and how it is.
type Endpoint struct {
	// Addr is host:port: a name, an IPv4 address or an IPv6 address in brackets, of at most 255
	// bytes, and a port from 1 to 65535. It is what callers connect to, so 0.0.0.0, [::], multicast
	// and broadcast are refused. It is stored in one form: HOST:80 as host:80, [0:0::1]:80 as
	// [::1]:80, [::ffff:10.0.0.1]:80 as 10.0.0.1:80.
	Addr string
	// Zone is where the member runs, of at most 64 bytes. Without one it is in the zone of no
	// caller.
	Zone string
	// Weight is the share of calls that the member takes: 1 to 1,000, and 100 if it is 0.
	Weight int
	// State is Ready if it is empty.
	State State
	// Why is the error of the last check, or the reason of a drain; at most 200 bytes.
	Why string
	// Meta is for the program's own use: at most 32 strings, 4 KiB with their keys.
	Meta map[string]string

	// Token is the member's fencing token, which is never reused. A View has it; it is not a part of
	// the data.
	Token uint64

	unknown map[string]json.RawMessage // keys that ParseEndpoint does not know, kept
}

// ParseEndpoint reads the data of a member: an object in JSON, or host:port alone, which is a ready
// member of weight 100. Keys that it does not know stay with the endpoint, and Data writes them
// again. The error says what is wrong.
func ParseEndpoint(data []byte) (*Endpoint, error) {
	if len(data) > MaxData {
		return nil, fmt.Errorf("the data has %d bytes; at most %d are allowed", len(data), MaxData)
	}
	e := &Endpoint{Weight: DefaultWeight, State: Ready}
	if !bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) {
		var err error
		e.Addr, err = canonicalAddr(string(data))
		return e, err
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(data, &keys); err != nil {
		return nil, fmt.Errorf("the data is not an object in JSON: %w", err)
	}
	for _, f := range []struct {
		key   string
		field any
	}{{"addr", &e.Addr}, {"zone", &e.Zone}, {"weight", &e.Weight}, {"state", &e.State}, {"why", &e.Why},
		{"meta", &e.Meta}} {
		value, set := keys[f.key]
		if !set {
			continue
		}
		delete(keys, f.key)
		if err := json.Unmarshal(value, f.field); err != nil || string(value) == "null" {
			return nil, fmt.Errorf("%s is %s, which is not of its type", f.key, shorten(string(value), 40))
		}
	}
	if e.Weight == 0 || e.State == "" { // which would be the defaults
		return nil, fmt.Errorf("weight is %d and state %q; leave out what is not meant", e.Weight, e.State)
	}
	if len(e.Meta) == 0 {
		e.Meta = nil
	}
	if len(keys) > 0 {
		e.unknown = keys
		for key, value := range keys {
			var b bytes.Buffer
			if err := json.Compact(&b, value); err != nil {
				return nil, err
			}
			keys[key] = b.Bytes()
		}
	}
	if err := e.check(); err != nil {
		return e, err
	}
	e.Addr, _ = canonicalAddr(e.Addr)
	return e, nil
}

// Data is the endpoint as members store it: what is left out has its default. The error says what
// is out of range.
func (e Endpoint) Data() ([]byte, error) {
	if err := e.check(); err != nil {
		return nil, protocol.Errorf(protocol.StatusBadRequest, "%v", err)
	}
	addr, _ := canonicalAddr(e.Addr)
	keys := map[string]any{"addr": addr}
	for key, value := range e.unknown {
		keys[key] = value
	}
	if e.Zone != "" {
		keys["zone"] = e.Zone
	}
	if e.weight() != DefaultWeight {
		keys["weight"] = e.Weight
	}
	if e.state() != Ready {
		keys["state"] = e.State
	}
	if e.Why != "" {
		keys["why"] = e.Why
	}
	if len(e.Meta) > 0 {
		keys["meta"] = e.Meta
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // people read it
	if err := enc.Encode(keys); err != nil {
		return nil, err
	}
	data := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	if len(data) > MaxData {
		return nil, fmt.Errorf("the data has %d bytes; at most %d are allowed", len(data), MaxData)
	}
	return data, nil
}

func (e *Endpoint) weight() int {
	if e.Weight == 0 {
		return DefaultWeight
	}
	return e.Weight
}

func (e *Endpoint) state() State {
	if e.State == "" {
		return Ready
	}
	return e.State
}

// check says which field is out of range.
func (e *Endpoint) check() error {
	size := 0
	for key, value := range e.Meta {
		size += len(key) + len(value)
	}
	switch {
	case len(e.Zone) > maxZone:
		return fmt.Errorf("zone has %d bytes; at most %d are allowed", len(e.Zone), maxZone)
	case e.weight() < 1 || e.weight() > MaxWeight:
		return fmt.Errorf("weight is %d; it must be 1 to %d", e.Weight, MaxWeight)
	case e.state() != Ready && e.state() != Failing && e.state() != Draining:
		return fmt.Errorf("state is %q; it must be %s, %s or %s", shorten(string(e.State), 40), Ready, Failing, Draining)
	case len(e.Why) > maxWhy:
		return fmt.Errorf("why has %d bytes; at most %d are allowed", len(e.Why), maxWhy)
	case len(e.Meta) > maxMeta:
		return fmt.Errorf("meta has %d strings; at most %d are allowed", len(e.Meta), maxMeta)
	case size > maxMetaBytes:
		return fmt.Errorf("meta has %d bytes; at most %d are allowed", size, maxMetaBytes)
	}
	for _, text := range append(slices.Collect(maps.Keys(e.Meta)), slices.Collect(maps.Values(e.Meta))...) {
		if !utf8.ValidString(text) {
			return errors.New("meta is not valid UTF-8")
		}
	}
	if !utf8.ValidString(e.Zone) || !utf8.ValidString(e.Why) {
		return errors.New("zone or why is not valid UTF-8")
	}
	_, err := canonicalAddr(e.Addr)
	return err
}

// canonicalAddr is the one form of an address: an IP address in its shortest form, a name in lower
// case. It refuses whatever is not host:port, and addresses that nobody can call. What it lets
// through has no character that means something to a shell, to a URL or in the configuration of a
// proxy.
func canonicalAddr(addr string) (string, error) {
	switch {
	case addr == "":
		return "", errors.New("addr is missing; it is host:port")
	case len(addr) > maxAddr:
		return "", fmt.Errorf("addr has %d bytes; at most %d are allowed", len(addr), maxAddr)
	}
	wrong := func(why string) (string, error) { return "", fmt.Errorf("addr is %q; %s", shorten(addr, 80), why) }
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" {
		return wrong("it must be host:port, with IPv6 in brackets")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
		return wrong("its port must be 1 to 65535")
	}
	var ip netip.Addr
	switch {
	case strings.Contains(host, ":"):
		ip, err = netip.ParseAddr(host)
		if _, zone, _ := strings.Cut(host, "%"); err != nil || strings.Contains(host, "%") && !isInterface(zone) {
			return wrong("its host is no IPv6 address")
		}
	case strings.HasPrefix(addr, "["):
		return wrong("brackets are for an IPv6 address")
	case isNumber(host): // resolvers read 10.1 or 0x7f000001 as an IPv4 address, each in its way
		if ip, err = netip.ParseAddr(host); err != nil {
			return wrong("its host is no IPv4 address")
		}
	case !isHostName(host):
		return wrong("its host must be an address, or a name of letters, digits, points and hyphens")
	default:
		return strings.ToLower(addr), nil
	}
	ip = ip.Unmap()
	switch {
	case ip.WithZone("").IsUnspecified(), ip.Is4() && ip.As4()[0] == 0:
		return wrong("that is where a server listens; name an address that callers reach")
	case ip.IsMulticast(), ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return wrong("callers cannot connect to multicast or broadcast; name an address that they reach")
	}
	return net.JoinHostPort(ip.String(), port), nil
}

// isNumber reports whether a resolver may read a host as an IPv4 address: its last label is a number.
func isNumber(host string) bool {
	label := strings.TrimSuffix(host, ".")
	label = strings.ToLower(label[strings.LastIndexByte(label, '.')+1:])
	hex, isHex := strings.CutPrefix(label, "0x")
	return strings.Trim(label, "0123456789") == "" || isHex && strings.Trim(hex, "0123456789abcdef") == ""
}

// isHostName reports whether a name has labels of 1 to 63 bytes of which none begins with a hyphen. A
// point at its end is allowed: it is a name without a search domain.
func isHostName(name string) bool {
	for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
		if len(label) == 0 || len(label) > 63 || label[0] == '-' || strings.ContainsFunc(label, notInName) {
			return false
		}
	}
	return true
}

func notInName(c rune) bool {
	return c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
}

// isInterface reports whether a name may be that of a network interface.
func isInterface(name string) bool {
	return name != "" && name[0] != '-' && !strings.ContainsFunc(name, func(c rune) bool {
		return c != '.' && notInName(c)
	})
}

// shorten cuts a text at the start of a character, so that it has no more than most bytes.
func shorten(text string, most int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}
