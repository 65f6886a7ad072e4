package console

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"html/template"
	"net/http"
	"strconv"
	"time"

	"github.com/signalbox-dev/signalbox/client/admin"
)

//go:embed assets/style.css
var styleSheet []byte

//go:embed assets/console.js
var script []byte

//go:embed assets/icon.svg
var icon []byte

//go:embed templates/page.html
var layout string

var templates = template.Must(template.New("page").Funcs(template.FuncMap{
	"age":  func(ms int64) string { return age(time.Since(ofMillis(ms))) },
	"left": func(ms int64) string { return age(time.Until(ofMillis(ms))) },
	"iso":  func(ms int64) string { return ofMillis(ms).UTC().Format("2006-01-02T15:04:05Z") },
	"kind": func(c column) string { return c.Kind },
	"folded": func(list []note) string {
		n := uint64(0)
		for i := range list {
			if list[i].Fold {
				n++
			}
		}
		if n == 0 {
			return ""
		}
		return plural(n, "detail")
	},
	"title": func(cols []column, i int) string {
		if i < len(cols) {
			return cols[i].Title
		}
		return ""
	},
}).Parse(layout))

// document is what the layout shows around a page.
type document struct {
	*page
	Identity string // empty: nobody is logged in
	LogOut   bool
	Node     string // that the navigation leads to
	Live     string // address of the page's stream; empty: it has none
	Failed   bool   // the page is an error in place of what was asked for
	Sections []section
	Inner    []section // pages of the current section
	Now      int64     // ms since 1970, by this machine's clock
}

// section is a part of the console: a page, or a group of pages.
type section struct {
	Text, Href string
	Current    bool
	Pages      []section // of the group; none for a single page
}

// defaultNode is where the navigation leads while no node is chosen.
const defaultNode = "/default"

// sectionsOf are the parts of the console, and the pages of the current group. The audit log is for
// those with the right admin on "/".
func sectionsOf(current, node string, who *admin.Identity) (groups, inner []section) {
	of := func(text, path string) section { return section{Text: text, Href: address(path, "node", node)} }
	cluster := []section{{Text: "Nodes", Href: "/nodes"}}
	if who != nil && may(who, "admin", "/") {
		cluster = append(cluster, section{Text: "Audit", Href: "/audit"})
	}
	groups = []section{
		{Text: "Overview", Href: "/"},
		{Text: "Semaphores", Pages: []section{of("Semaphores", "/semaphores"), of("Elections", "/elections")}},
		{Text: "Services", Pages: []section{of("Services", "/services"), of("Configurations", "/configurations")}},
		of("Rate limits", "/limits"),
		{Text: "Rollouts", Pages: []section{of("Rollouts", "/rollouts"), of("Processes", "/processes")}},
		of("Sessions", "/sessions"),
		{Text: "Cluster", Pages: cluster},
	}
	for i := range groups {
		g := &groups[i]
		g.Current = g.Text == current
		for k := range g.Pages {
			g.Href = g.Pages[0].Href
			if g.Pages[k].Current = g.Pages[k].Text == current; g.Pages[k].Current {
				g.Current, inner = true, g.Pages
			}
		}
	}
	return groups, inner
}

// render writes a page as a document.
func (c *Console) render(w http.ResponseWriter, r *http.Request, v *viewer, p *page) {
	c.renderDocument(w, r, v, p, false)
}

func (c *Console) renderDocument(w http.ResponseWriter, r *http.Request, v *viewer, p *page, failed bool) {
	node := cmp.Or(p.Node, defaultNode)
	d := document{page: p, Node: node, Now: millis(time.Now()), Failed: failed}
	var who *admin.Identity
	if v != nil {
		if who, _ = v.identity(r.Context()); who != nil {
			d.Identity = who.Identity
		}
		d.LogOut = c.sessionOf(r) != nil && (c.cfg.Secret != "" || who != nil && who.Enabled)
	}
	d.Sections, d.Inner = sectionsOf(p.Section, node, who)
	if _, ok := pages[r.URL.Path]; ok && r.Method == http.MethodGet {
		switch p.Status {
		case 0, http.StatusNotFound, http.StatusServiceUnavailable:
			d.Live = "/live" + r.URL.RequestURI()
		}
	}
	var b bytes.Buffer
	if err := templates.Execute(&b, d); err != nil {
		c.cfg.Log.Error("page of the console is not rendered", "path", r.URL.Path, "error", err)
		http.Error(w, "the console met a defect; its log has the details", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(b.Len()))
	if p.Status != 0 {
		w.WriteHeader(p.Status)
	}
	if r.Method != http.MethodHead {
		_, _ = w.Write(b.Bytes())
	}
}

// fail writes an error as a page.
func (c *Console) fail(w http.ResponseWriter, r *http.Request, v *viewer, err error) {
	status, title, text := explain(err)
	c.renderDocument(w, r, v, &page{Status: status, Title: title,
		Notes: []note{{Tone: "bad", Text: sentence(visibleText(text))}}}, true)
}

// serveData sends the data of a semaphore, or of an owner, as a file. A browser must not show it:
// it is anything that a client wrote.
func (c *Console) serveData(w http.ResponseWriter, r *http.Request, v *viewer) {
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	q := r.URL.Query()
	data, err := readData(ctx, v, q)
	if err != nil {
		c.fail(w, r, v, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", `attachment; filename="data.bin"`)
	h.Set("Content-Length", strconv.Itoa(len(data)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(data)
	}
}

func serveAsset(contentType string, body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		if r.Method != http.MethodHead {
			_, _ = w.Write(body)
		}
	}
}
