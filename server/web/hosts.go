package web

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"
)

// KnownHost reports whether the Host of a request is loopback or one of names. A site whose name
// points here must not make its scripts part of this one.
func KnownHost(host string, names []string) bool {
	name := HostName(host)
	if ip := net.ParseIP(name); ip != nil && ip.IsLoopback() {
		return true
	}
	return name == "localhost" || slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
}

// IsAddress reports whether a Host is an IP address: a site that points its name here cannot send it.
func IsAddress(host string) bool { return net.ParseIP(HostName(host)) != nil }

// HostName is a Host without its port, its brackets and the dot of a full name, in lower case; empty
// if the port is not a number.
func HostName(host string) string {
	name := host
	if h, port, err := net.SplitHostPort(host); err == nil {
		if _, err := strconv.ParseUint(cmp.Or(port, "0"), 10, 16); err != nil {
			return ""
		}
		name = h
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(name, "[]"), "."))
}
