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
)

// State is what a member says of itself.
type State string

const (
	Ready    State = "ready"
	Failing  State = "failing"  // its check fails
	Draining State = "draining" // it leaves soon
)

// Bounds of an Endpoint.
const (
	MaxAddr       = 255     // bytes
	MaxZone       = 64      // bytes
	MaxWeight     = 1000    // the least is 1
	DefaultWeight = 100     // of a member that names none
	MaxWhy        = 200     // bytes
	MaxMeta       = 32      // strings
	MaxMetaBytes  = 4 << 10 // of all keys and values together
	MaxData       = 8 << 10 // of the whole as it is stored
)

// Endpoint is where a member of a service is, and how it is.
type Endpoint struct {
	// Addr is host:port: a name, an IPv4 address or an IPv6 address in brackets, of at most 255
	// bytes, and a port from 1 to 65535.
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

	unknown map[string]json.RawMessage // keys that Parse does not know, kept
}

// Parse reads the data of a member: an object in JSON, or host:port alone, which is a ready member
// of weight 100. Keys that it does not know stay with the endpoint, and Data writes them again. The
// error says what is wrong.
func Parse(data []byte) (*Endpoint, error) {
	if len(data) > MaxData {
		return nil, fmt.Errorf("the data has %d bytes; at most %d are allowed", len(data), MaxData)
	}
	e := &Endpoint{Weight: DefaultWeight, State: Ready}
	if !bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) {
		e.Addr = string(data)
		return e, checkAddr(e.Addr)
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(data, &keys); err != nil {
		return nil, fmt.Errorf("the data is not an object in JSON: %w", err)
	}
	for _, f := range []struct {
		key   string
		field any
	}{{"addr", &e.Addr}, {"zone", &e.Zone}, {"weight", &e.Weight}, {"state", &e.State}, {"why", &e.Why}, {"meta", &e.Meta}} {
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
	return e, e.check()
}

// Data is the endpoint as members store it: what is left out has its default. The error says what
// is out of range.
func (e Endpoint) Data() ([]byte, error) {
	if err := e.check(); err != nil {
		return nil, err
	}
	keys := map[string]any{"addr": e.Addr}
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
	case len(e.Zone) > MaxZone:
		return fmt.Errorf("zone has %d bytes; at most %d are allowed", len(e.Zone), MaxZone)
	case e.weight() < 1 || e.weight() > MaxWeight:
		return fmt.Errorf("weight is %d; it must be 1 to %d", e.Weight, MaxWeight)
	case e.state() != Ready && e.state() != Failing && e.state() != Draining:
		return fmt.Errorf("state is %q; it must be %s, %s or %s", shorten(string(e.State), 40), Ready, Failing, Draining)
	case len(e.Why) > MaxWhy:
		return fmt.Errorf("why has %d bytes; at most %d are allowed", len(e.Why), MaxWhy)
	case len(e.Meta) > MaxMeta:
		return fmt.Errorf("meta has %d strings; at most %d are allowed", len(e.Meta), MaxMeta)
	case size > MaxMetaBytes:
		return fmt.Errorf("meta has %d bytes; at most %d are allowed", size, MaxMetaBytes)
	}
	for _, text := range append(slices.Collect(maps.Keys(e.Meta)), slices.Collect(maps.Values(e.Meta))...) {
		if !utf8.ValidString(text) {
			return errors.New("meta is not valid UTF-8")
		}
	}
	if !utf8.ValidString(e.Zone) || !utf8.ValidString(e.Why) {
		return errors.New("zone or why is not valid UTF-8")
	}
	return checkAddr(e.Addr)
}

// checkAddr refuses whatever is not host:port. What it lets through has no character that means
// something to a shell, to a URL or in the configuration of a proxy.
func checkAddr(addr string) error {
	switch {
	case addr == "":
		return errors.New("addr is missing; it is host:port")
	case len(addr) > MaxAddr:
		return fmt.Errorf("addr has %d bytes; at most %d are allowed", len(addr), MaxAddr)
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" {
		return fmt.Errorf("addr is %q; it must be host:port, with IPv6 in brackets", shorten(addr, 80))
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
		return fmt.Errorf("addr is %q; its port must be 1 to 65535", shorten(addr, 80))
	}
	if strings.Contains(host, ":") {
		ip, zone, _ := strings.Cut(host, "%")
		if a, err := netip.ParseAddr(ip); err != nil || a.Is4() || strings.Contains(host, "%") && !isHostName(zone) {
			return fmt.Errorf("addr is %q; its host is no IPv6 address", shorten(addr, 80))
		}
		return nil
	}
	if !isHostName(host) || strings.HasPrefix(addr, "[") {
		return fmt.Errorf("addr is %q; its host must be an address, or a name of letters, digits, points and hyphens", shorten(addr, 80))
	}
	return nil
}

func isHostName(name string) bool {
	for _, c := range []byte(name) {
		if c != '.' && c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return false
		}
	}
	return name != "" && name[0] != '-'
}

// shorten cuts a text to at most so many bytes, at the start of a character.
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
