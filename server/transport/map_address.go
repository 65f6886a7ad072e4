package transport

import "strings"

// tlsScheme marks the TLS address of an instance in the cluster map.
const tlsScheme = "tls://"

// JoinAddresses makes the text by which the cluster map has an instance's addresses for clients:
// "plain", "plain,tls://other", or "tls://other". An empty address is none.
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

// AddressFor is the address of its own kind for a client, from the text of [JoinAddresses]. When
// there is none, it is the other address: the client cannot connect there, and its error says so better
// than an instance without an address.
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
