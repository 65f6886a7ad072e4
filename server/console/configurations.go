package console

import (
	"context"
	"net/url"
	"strconv"
	"strings"

	"github.com/signalbox-dev/signalbox/client"
)

// configurationsPage lists the configurations of a node.
func configurationsPage(ctx context.Context, v *viewer, q url.Values) (*page, error) {
	path, n, after, err := listOf(ctx, v, q)
	if err != nil {
		return nil, err
	}
	prefix, err := prefixOf(q)
	if err != nil {
		return nil, err
	}
	p := &page{
		Section: "Configurations", Node: path, Title: "Configurations in", Name: visible(path), Crumbs: nodeCrumbs(path),
		Lead:   "A configuration is a small value with a version, its author and the values before it.",
		Filter: &filter{Action: "/configurations", Node: path, Prefix: prefix},
	}
	t := newTable("configurations", "Configurations", "No configuration here.", col("Name"), col("Value"), col("Set"),
		col("By"), numCol("Version"))
	if prefix != "" {
		t.Empty = "No configuration has a name that begins with “" + visible(prefix) + "”."
	}
	if after != "" {
		t.First = address("/configurations", "node", path, "prefix", prefix)
	}
	var found []client.ConfigInfo
	err = fill(&t, n.Configs(ctx, prefix, client.After(after), client.MaxItems(pageSize+1)),
		func(c *client.ConfigInfo) row {
			found = append(found, *c)
			return row{}
		}, func(last *client.ConfigInfo) string {
			return address("/configurations", "node", path, "prefix", prefix, "after", encodeName(last.Name))
		})
	t.Rows = rowsOf(ctx, found, func(c *client.ConfigInfo) row {
		r := row{Key: encodeName(c.Name), Cells: []cell{nameCell(c.Name, semaphoreURL(path, client.ConfigPrefix+c.Name))}}
		now, err := n.Config(c.Name).Get(ctx, client.ReadConsistency(client.Relaxed))
		if err != nil { // it is gone meanwhile, or no configuration
			return row{Key: r.Key, Cells: append(r.Cells, none(), none(), none(), number(c.Version))}
		}
		r.Cells = append(r.Cells, valueCell(now.Data), since(now.Time), authorCell(&now), number(now.Version))
		return r
	})
	p.Tables = []table{t}
	return p, err
}

// valueCell is the beginning of a value.
func valueCell(data []byte) cell {
	c := cell{Text: visibleData(string(cut(data, maxRowData))), Kind: "data"}
	if len(data) > maxRowData {
		c.Text += "…"
	}
	return c
}

// configuration makes the page of a semaphore that of the configuration that it holds.
func (s *semaphoreView) configuration(p *page, values []client.Value) {
	now := &values[0]
	p.Section, p.Title = "Configurations", "Configuration"
	p.Name = visible(strings.TrimPrefix(s.name, client.ConfigPrefix))
	p.Crumbs = nodeCrumbs(s.path, link{"Configurations", address("/configurations", "node", s.path)})
	p.Facts = []fact{
		{"version", "Version", text(group(now.Version))}, {"set", "Set", since(now.Time)},
		{"author", "By", authorCell(now)},
	}
	if now.Reason != "" {
		p.Facts = append(p.Facts, fact{"reason", "Because", text(visibleText(now.Reason))})
	}
	if len(now.Data) > 0 {
		value := cell{Text: visibleLines(string(cut(now.Data, maxShown))), Kind: "data"}
		if len(now.Data) > maxShown {
			value.Note = "The first part of " + bytesText(uint64(len(now.Data))) + "."
		}
		p.Facts = append(p.Facts, fact{"data", "Value", value})
	}
	t := newTable("history", "Values before", "It has had no other value.",
		column{"Version", "num id"}, col("Set"), col("By"), col("Because"), col("Value"))
	for i := range values[1:] {
		x := &values[i+1]
		t.Rows = append(t.Rows, row{Key: strconv.FormatUint(x.Version, 10), Cells: []cell{
			{Text: group(x.Version), Kind: "num id"}, since(x.Time), authorCell(x), reasonCell(x), valueCell(x.Data),
		}})
	}
	p.Tables = []table{t}
}

func reasonCell(v *client.Value) cell {
	if v.Reason == "" {
		return none()
	}
	return text(visibleText(v.Reason))
}

func authorCell(v *client.Value) cell {
	if v.Author == "" {
		return none()
	}
	return text(visible(v.Author))
}
