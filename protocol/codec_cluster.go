package protocol

func (m *Cluster) AppendBody(b []byte) []byte {
	b = appendStr(appendArray(b, 2), m.Method)
	return appendBin(b, m.Body)
}

func (m *Cluster) DecodeBody(body []byte) error {
	c := openBody(body, "cluster")
	m.Method = c.str("method")
	m.Body = c.bytes("body")
	return c.end()
}

func (m *ClusterReply) AppendBody(b []byte) []byte {
	return appendBin(appendArray(b, 1), m.Body)
}

func (m *ClusterReply) DecodeBody(body []byte) error {
	c := openBody(body, "cluster reply")
	m.Body = c.bytes("body")
	return c.end()
}
