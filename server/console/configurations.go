package console

import (
	"context"
	"iter"
	"strconv"
	"strings"

	"github.com/signalbox-dev/signalbox/client"
)

// configurationsPage lists the configurations of a node.
var configurationsPage = (&nodeList[client.ConfigInfo]{
	path: "/configurations", noun: "configuration",
	page: page{Section: "Configurations", Title: "Configurations in",
		Lead: "A configuration is a small value with a version, its author and the values before it."},
	table: newTable("configurations", "Configurations", "No configuration here.",
		col("Name"), col("Value"), col("Set"), col("By"), numCol("Version")),
	read: func(ctx context.Context, n *client.Node, prefix string, opts ...client.ReadOption,
	) iter.Seq2[client.ConfigInfo, error] {
		return n.Configs(ctx, prefix, opts...)
	},
	name: func(c *client.ConfigInfo) string { return c.Name }, rows: rowsOf[client.ConfigInfo],
	row: func(ctx context.Context, n *client.Node, c *client.ConfigInfo) row {
		name := nameCell(c.Name, semaphoreURL(n.Path(), client.ConfigPrefix+c.Name))
		r := row{Key: encodeName(c.Name), Cells: []cell{name}}
		now, err := n.Config(c.Name).Get(ctx, client.ReadConsistency(client.Relaxed))
		if err != nil { // it is gone meanwhile, or no configuration
			return row{Key: r.Key, Cells: append(r.Cells, none(), none(), none(), number(c.Version))}
		}
		r.Cells = append(r.Cells, valueCell(now.Data), since(now.Time), authorCell(&now), number(now.Version))
		return r
	},
}).show

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
