package transport

import "strings"

// tlsScheme marks the TLS address of an instance in the cluster map.
const tlsScheme = "tls://"

// JoinAddresses returns an instance's client addresses as the cluster map holds them: "plain",
// "plain,tls://other", or "tls://other". An empty argument is left out.
func JoinAddresses(plain, tls string) string {
	var list []string
	if plain != "" {
		list = append(list, plain)
	}
	if tls != "" {
		list = append(list, tlsScheme+tls)
	}
	return strings.Join(list, ",")
}

// AddressFor returns a client's address, with TLS if secure, from the text of [JoinAddresses]. If
// the instance has only the other kind, it returns that: the client cannot connect there, and its
// error is clearer than one about an instance without an address.
func AddressFor(addresses string, secure bool) string {
	other := addresses
	for one := range strings.SplitSeq(addresses, ",") {
		rest, is := strings.CutPrefix(one, tlsScheme)
		if is == secure {
			return rest
		}
		other = rest
	}
	return other
}
