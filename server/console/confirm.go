package console

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/protocol"
)

// askForm asks for a value that the dry run needs.
type askForm struct {
	Action, Label, Field, Value, Hint string
	Hidden                            []hidden
}

type hidden struct{ Name, Value string }

// confirmForm asks for the reason and for the object's name.
type confirmForm struct {
	Action, Title, Name, CSRF, Back string
	Reason                          string // as typed before
	Hidden                          []hidden
}

// serveAction shows the dry run of an action, or does it.
func (c *Console) serveAction(w http.ResponseWriter, r *http.Request, v *viewer) {
	verb := r.PathValue("verb")
	a, ok := actions[verb]
	if !ok {
		c.fail(w, r, v, &notFoundError{"There is no such action."})
		return
	}
	q, token := r.URL.Query(), c.formToken(r)
	if r.Method == http.MethodPost {
		if err := r.ParseForm(); err != nil {
			c.refuseForm(w, r, err)
			return
		}
		q = r.PostForm
		if token == "" || subtle.ConstantTimeCompare([]byte(q.Get("csrf")), []byte(token)) != 1 {
			c.refuse(w, r, http.StatusForbidden, "Not done",
				"This form is too old, or was not made for you. Load its page again.")
			return
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	t, err := a.prepare(ctx, v, q)
	if err != nil {
		c.fail(w, r, v, err)
		return
	}
	if token == "" {
		cookie := random()
		c.setCookie(w, cookie, int(sessionMost.Seconds()))
		token = c.tokenOf(cookie)
	}
	p := a.page(verb, t, token)
	if r.Method != http.MethodPost {
		c.render(w, r, v, p)
		return
	}
	reason := strings.TrimSpace(q.Get("reason"))
	status, why := t.refuses(q, reason)
	if why == "" {
		c.perform(w, r, v, a, t, reason)
		return
	}
	p.Status = status
	p.note("bad", "Not done: "+why)
	if p.Confirm != nil {
		p.Confirm.Reason = reason
	}
	c.render(w, r, v, p)
}

// formToken is what the forms of a browser carry: its session's token. While nobody has to log in,
// there is no session, and forms are bound to the browser's cookie all the same. Empty: it has
// none.
func (c *Console) formToken(r *http.Request) string {
	if s := c.sessionOf(r); s != nil {
		return s.csrf
	}
	if cookie := c.cookieOf(r); cookie != "" {
		return c.tokenOf(cookie)
	}
	return ""
}

// tokenOf is the token of a cookie without a session. Nothing is kept for it: only this console,
// for as long as it runs, can make it.
func (c *Console) tokenOf(cookie string) string {
	h := hmac.New(sha256.New, c.formKey[:])
	h.Write([]byte(cookie))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// refuses says in a sentence why a form is not acted upon; empty: it is.
func (t *target) refuses(form url.Values, reason string) (status int, why string) {
	switch {
	case t.ask != nil && t.ask.Value == "":
		return http.StatusUnprocessableEntity, "“" + t.ask.Label + "” is missing."
	case reason == "":
		return http.StatusUnprocessableEntity, "say why. The reason is kept in the audit log."
	case len(reason) > protocol.MaxDescriptionLen:
		return http.StatusUnprocessableEntity,
			fmt.Sprintf("the reason has %d bytes, and at most %d are allowed.", len(reason), protocol.MaxDescriptionLen)
	case strings.TrimSpace(form.Get("confirm")) != strings.TrimSpace(t.name):
		return http.StatusUnprocessableEntity, "the name that you typed is another one. Type it as this page shows it."
	}
	return http.StatusConflict, t.differs(form.Get("seen"))
}

// page is the dry run with its forms.
func (a *action) page(verb string, t *target, csrf string) *page {
	p := *t.page
	p.Title, p.Lead, p.Actions, p.Filter, p.Figure = a.title, a.consequence, nil, nil, nil
	p.Notes = append([]note{{Tone: "warn", Text: "This is a dry run: nothing has been changed yet."}}, p.Notes...)
	var fields []hidden
	for k := range t.q {
		fields = append(fields, hidden{k, t.q.Get(k)})
	}
	if t.ask != nil {
		ask := *t.ask
		ask.Action = "/action/" + verb
		for _, f := range fields {
			if f.Name != ask.Field {
				ask.Hidden = append(ask.Hidden, f)
			}
		}
		p.Ask = &ask
	}
	if t.ask == nil || t.ask.Value != "" {
		fields = append(fields, hidden{"seen", t.seen.Encode()})
		p.Confirm = &confirmForm{
			Action: "/action/" + verb, Title: a.title, Name: t.name, CSRF: csrf, Back: t.back, Hidden: fields,
		}
	}
	return &p
}

// perform does an action that was confirmed.
func (c *Console) perform(w http.ResponseWriter, r *http.Request, v *viewer, a action, t *target, reason string) {
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	done, err := a.do(ctx, v, t, reason)
	who := ""
	if x, bad := v.identity(ctx); bad == nil {
		who = x.Identity
	}
	c.cfg.Log.Info("console: action",
		"action", a.title, "node", t.path, "object", t.name, "identity", who, "reason", reason, "error", err)
	p := &page{
		Section: t.page.Section, Node: t.page.Node, Title: a.title, Name: t.page.Name, Crumbs: t.page.Crumbs,
		Actions: []link{{"Back to it", t.back}},
	}
	switch {
	case err == nil:
		p.Notes = []note{{Tone: "good", Text: done}}
	case errors.Is(err, client.ErrOutcomeUnknown), errors.Is(err, context.DeadlineExceeded):
		p.Status = http.StatusServiceUnavailable
		p.Notes = []note{{Tone: "bad", Text: "It is not known whether this was done: no instance has answered in time. " +
			"Look at the object before you try again."}}
	default:
		var text string
		p.Status, _, text = explain(err)
		p.Notes = []note{{Tone: "bad", Text: "Not done: " + visibleText(text)}}
	}
	c.render(w, r, v, p)
}
