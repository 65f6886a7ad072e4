package discovery

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
)

// TestEndpoint: what members store, and what is left out of the list and why.
func TestEndpoint(t *testing.T) {
	for _, c := range []struct{ data, want string }{
		{`10.0.0.1:80`, `{"addr":"10.0.0.1:80"}`},
		{`[::1]:80`, `{"addr":"[::1]:80"}`},
		{`[fe80::1%eth0]:80`, `{"addr":"[fe80::1%eth0]:80"}`},
		{`api-1.example_x:65535`, `{"addr":"api-1.example_x:65535"}`},
		{`[0:0:0:0:0:0:0:1]:80`, `{"addr":"[::1]:80"}`},
		{`[2001:DB8::00A]:80`, `{"addr":"[2001:db8::a]:80"}`},
		{`[::ffff:10.0.0.1]:80`, `{"addr":"10.0.0.1:80"}`},
		{`{"addr":"Host.Example.:80"}`, `{"addr":"host.example.:80"}`},
		{`{"addr":"[FE80::1%eth0.A]:80"}`, `{"addr":"[fe80::1%eth0.A]:80"}`},
		{`127.0.0.1:80`, `{"addr":"127.0.0.1:80"}`},
		{`1.2.3.4.example:80`, `{"addr":"1.2.3.4.example:80"}`},
		{`a.x0:80`, `{"addr":"a.x0:80"}`},
		{` {"addr":"a:1","zone":"SAS","weight":100,"state":"ready","why":"","meta":{"version":"7"}}`,
			`{"addr":"a:1","meta":{"version":"7"},"zone":"SAS"}`},
		{`{"addr":"a:1","weight":1000,"state":"draining","why":"<&>"}`, `{"addr":"a:1","state":"draining","weight":1000,"why":"<&>"}`},
		{`{"addr":"a:1","x":{ "y": [1.50, null] },"Zone":"of another case"}`, `{"Zone":"of another case","addr":"a:1","x":{"y":[1.50,null]}}`},
		{`{"addr":"a:1","meta":{}}`, `{"addr":"a:1"}`},
		{`{"addr":"a:1","addr":"b:1"}`, `{"addr":"b:1"}`},

		{``, `addr is missing; it is host:port`},
		{`{}`, `addr is missing; it is host:port`},
		{`10.0.0.1`, `addr is "10.0.0.1"; it must be host:port, with IPv6 in brackets`},
		{`::1:80`, `addr is "::1:80"; it must be host:port, with IPv6 in brackets`},
		{`:80`, `addr is ":80"; it must be host:port, with IPv6 in brackets`},
		{`a:0`, `addr is "a:0"; its port must be 1 to 65535`},
		{`a:65536`, `addr is "a:65536"; its port must be 1 to 65535`},
		{`a:080`, `addr is "a:080"; its port must be 1 to 65535`},
		{`a:http`, `addr is "a:http"; its port must be 1 to 65535`},
		{`a:+80`, `addr is "a:+80"; its port must be 1 to 65535`},
		{`a:-1`, `addr is "a:-1"; its port must be 1 to 65535`},
		{`[a]:80`, `addr is "[a]:80"; brackets are for an IPv6 address`},
		{`[10.0.0.1]:80`, `addr is "[10.0.0.1]:80"; brackets are for an IPv6 address`},
		{`0.0.0.0:80`, `addr is "0.0.0.0:80"; that is where a server listens; name an address that callers reach`},
		{`0.1.2.3:80`, `addr is "0.1.2.3:80"; that is where a server listens; name an address that callers reach`},
		{`[::]:80`, `addr is "[::]:80"; that is where a server listens; name an address that callers reach`},
		{`[0:0:0:0:0:0:0:0]:80`, `addr is "[0:0:0:0:0:0:0:0]:80"; that is where a server listens; name an address that callers reach`},
		{`[::ffff:0.0.0.0]:80`, `addr is "[::ffff:0.0.0.0]:80"; that is where a server listens; name an address that callers reach`},
		{`[::%eth0]:80`, `addr is "[::%eth0]:80"; that is where a server listens; name an address that callers reach`},
		{`224.0.0.1:80`, `addr is "224.0.0.1:80"; callers cannot connect to multicast or broadcast; name an address that they reach`},
		{`239.255.255.250:80`, `addr is "239.255.255.250:80"; callers cannot connect to multicast or broadcast; name an address that they reach`},
		{`255.255.255.255:80`, `addr is "255.255.255.255:80"; callers cannot connect to multicast or broadcast; name an address that they reach`},
		{`[ff02::1]:80`, `addr is "[ff02::1]:80"; callers cannot connect to multicast or broadcast; name an address that they reach`},
		{`[::ffff:224.0.0.1]:80`, `addr is "[::ffff:224.0.0.1]:80"; callers cannot connect to multicast or broadcast; name an address that they reach`},
		{`999.1.1.1:80`, `addr is "999.1.1.1:80"; its host is no IPv4 address`},
		{`1.2.3:80`, `addr is "1.2.3:80"; its host is no IPv4 address`},
		{`010.0.0.1:80`, `addr is "010.0.0.1:80"; its host is no IPv4 address`},
		{`1.2.3.4.:80`, `addr is "1.2.3.4.:80"; its host is no IPv4 address`},
		{`2130706433:80`, `addr is "2130706433:80"; its host is no IPv4 address`},
		{`0x7f000001:80`, `addr is "0x7f000001:80"; its host is no IPv4 address`},
		{`a..b:80`, `addr is "a..b:80"; its host must be an address, or a name of letters, digits, points and hyphens`},
		{`a.-b:80`, `addr is "a.-b:80"; its host must be an address, or a name of letters, digits, points and hyphens`},
		{strings.Repeat("a", 64) + ":80", `addr is "` + strings.Repeat("a", 64) + `:80"; its host must be an address, or a name of letters, digits, points and hyphens`},
		{`[::1%a;b]:80`, `addr is "[::1%a;b]:80"; its host is no IPv6 address`},
		{`[1:2]:80`, `addr is "[1:2]:80"; its host is no IPv6 address`},
		{`a b:80`, `addr is "a b:80"; its host must be an address, or a name of letters, digits, points and hyphens`},
		{`a;:80`, `addr is "a;:80"; its host must be an address, or a name of letters, digits, points and hyphens`},
		{"\xff:80", `addr is "` + "\uFFFD" + `:80"; its host must be an address, or a name of letters, digits, points and hyphens`},
		{strings.Repeat("a", 253) + ":80", `addr has 256 bytes; at most 255 are allowed`},
		{`{"addr":1}`, `addr is 1, which is not of its type`},
		{`{"addr":"a:1","zone":null}`, `zone is null, which is not of its type`},
		{`{"addr":"a:1","zone":"` + strings.Repeat("z", 65) + `"}`, `zone has 65 bytes; at most 64 are allowed`},
		{`{"addr":"a:1","weight":0}`, `weight is 0 and state "ready"; leave out what is not meant`},
		{`{"addr":"a:1","state":""}`, `weight is 100 and state ""; leave out what is not meant`},
		{`{"addr":"a:1","weight":1001}`, `weight is 1001; it must be 1 to 1000`},
		{`{"addr":"a:1","weight":-1}`, `weight is -1; it must be 1 to 1000`},
		{`{"addr":"a:1","weight":1.5}`, `weight is 1.5, which is not of its type`},
		{`{"addr":"a:1","weight":"7"}`, `weight is "7", which is not of its type`},
		{`{"addr":"a:1","state":"Ready"}`, `state is "Ready"; it must be ready, failing or draining`},
		{`{"addr":"a:1","why":"` + strings.Repeat("w", 201) + `"}`, `why has 201 bytes; at most 200 are allowed`},
		{`{"addr":"a:1","meta":{"a":1}}`, `meta is {"a":1}, which is not of its type`},
		{`{"addr":"a:1","meta":{"a":"` + strings.Repeat("m", 4<<10) + `"}}`, `meta has 4097 bytes; at most 4096 are allowed`},
		{`{"addr":"a:1","meta":{` + manyKeys(33) + `}}`, `meta has 33 strings; at most 32 are allowed`},
		{`{"addr":"a:1"} x`, `the data is not an object in JSON: invalid character 'x' after top-level value`},
		{`{"addr":"a:1","x":"` + strings.Repeat("x", 8<<10) + `"}`, `the data has 8213 bytes; at most 8192 are allowed`},
	} {
		e, err := ParseEndpoint([]byte(c.data))
		got := fmt.Sprint(err)
		if err == nil {
			b, err := e.Data()
			got = string(b)
			if err != nil {
				got = err.Error()
			}
		}
		if got != c.want {
			t.Errorf("%.60s: got\n%s, want\n%s", c.data, got, c.want)
		}
	}
	if _, err := (Endpoint{Addr: "a:1", Zone: "\xff"}).Data(); err == nil {
		t.Error("a zone that is no text")
	}
}

// TestOneAddress: members whose addresses are forms of one are one endpoint, and those that nobody
// can call are left out, with the reason.
func TestOneAddress(t *testing.T) {
	var list []client.Member
	for i, addr := range []string{"[0:0:0:0:0:0:0:1]:80", "[::1]:80", "Host:80", "HOST:80", "host:80", "[::ffff:10.0.0.1]:80",
		"10.0.0.1:80", "0.0.0.0:80", "[::]:80"} {
		list = append(list, client.Member{Token: uint64(i + 1), Data: []byte(addr)})
	}
	v, err := ViewOf(list)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range v.All {
		got = append(got, fmt.Sprint(e.Token, " ", e.Addr))
	}
	if text := strings.Join(got, ", "); text != "2 [::1]:80, 5 host:80, 7 10.0.0.1:80" || v.Ignored != 2 {
		t.Errorf("%s; %d ignored", text, v.Ignored)
	}
	if e, why := v.Find(&list[0]); e == nil || why != "a newer member has the address" {
		t.Error(e, why)
	}
	if e, why := v.Find(&list[8]); e != nil || !strings.Contains(why, "where a server listens") {
		t.Error(e, why)
	}
}

func manyKeys(n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(`"k%d":"v"`, i))
	}
	return strings.Join(list, ",")
}

// FuzzEndpoint: nothing panics, and what is read is written so that it is read alike.
func FuzzEndpoint(f *testing.F) {
	for _, seed := range []string{"10.0.0.1:80", `{"addr":"[::1]:80","weight":3,"x":[1]}`, `{"addr":"a:1","meta":{"a":"b"},"state":"failing"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := ParseEndpoint(data)
		if err != nil {
			return
		}
		again, err := e.Data()
		if err != nil {
			if len(data) < MaxData/8 { // what is written may be longer, by its escapes
				t.Fatalf("%q is read, and not written: %v", data, err)
			}
			return
		}
		e2, err := ParseEndpoint(again)
		if err != nil || !reflect.DeepEqual(e, e2) {
			t.Fatalf("%q is read as %+v, written as %q and read as %+v, %v", data, e, again, e2, err)
		}
	})
}
