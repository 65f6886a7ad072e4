package console

import (
	"context"
	"net/url"
	"strconv"

	"github.com/signalbox-dev/signalbox/client"
)

// maxRowData is how much of an owner's data a row shows, in bytes; the rest is a download.
const maxRowData = 200

// dataCell shows the first of data, with a link to all of it if it is long.
func dataCell(node, name string, token uint64, data []byte) cell {
	if len(data) == 0 {
		return none()
	}
	c := cell{Text: visibleLines(string(cut(data, maxShown))), Kind: "data"}
	if token > 0 {
		c.Text = visibleData(string(cut(data, maxRowData)))
		if len(data) > maxRowData {
			c.Text += "…"
		}
	}
	if token == 0 && len(data) > maxShown || token > 0 && len(data) > maxRowData {
		c.Note = "The first part of " + bytesText(uint64(len(data))) + "; follow the text to download all of it."
		pairs := []string{"node", node, "name", encodeName(name)}
		if token > 0 {
			pairs = append(pairs, "token", strconv.FormatUint(token, 10))
		}
		c.Href = address("/data", pairs...)
	}
	return c
}

// number64 reads a number of an address; 0 for what is none.
func number64(s string) uint64 {
	n, _ := strconv.ParseUint(s, 10, 64)
	return n
}

func readData(ctx context.Context, v *viewer, q url.Values) ([]byte, error) {
	_, n, name, err := objectOf(ctx, v, q)
	if err != nil {
		return nil, err
	}
	token := number64(q.Get("token"))
	if token == 0 {
		sem, err := n.Describe(ctx, name, client.MaxItems(1))
		if err != nil {
			return nil, err
		}
		return sem.Data, nil
	}
	sem, err := n.Describe(ctx, name, client.IncludeOwners(), client.AfterToken(token-1), client.MaxItems(1))
	if err != nil {
		return nil, err
	}
	if len(sem.Owners) == 0 || sem.Owners[0].Token != token {
		return nil, &notFoundError{"This owner has released what it held."}
	}
	return sem.Owners[0].Data, nil
}
