package core

import (
	"fmt"
	"strings"
)

// noticeText is a notice in a script: what it has.
func noticeText(n Notice) string {
	kinds := map[NoticeKind]string{
		ConnMade: "connection made", ConnFailed: "connection failed", ConnLost: "connection lost",
		SessionAttached: "session attached", SessionDetached: "session detached", SessionOver: "session over",
		RequestRetried: "retry",
	}
	text := []string{kinds[n.Kind]}
	if n.Request != 0 {
		text = append(text, n.Request.String())
	}
	for _, field := range []struct {
		name string
		is   uint64
	}{{"instance", n.Instance}, {"session", n.Session}, {"shard", n.Shard}} {
		if field.is != 0 {
			text = append(text, fmt.Sprintf("%s=%d", field.name, field.is))
		}
	}
	for _, s := range []string{n.Address, n.Node} {
		if s != "" {
			text = append(text, s)
		}
	}
	if n.Err != nil {
		text = append(text, "("+n.Err.Error()+")")
	}
	return strings.Join(text, " ")
}
