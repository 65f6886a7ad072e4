package console

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
	"github.com/signalbox-dev/signalbox/client/admin"
	"github.com/signalbox-dev/signalbox/client/discovery"
)

// member registers a session under a service with data of its own.
func (s *site) member(service, data string) *client.Session {
	s.t.Helper()
	x := s.session(client.Description("backend"))
	if _, err := x.Service(service).Register(s.t.Context(), []byte(data)); err != nil {
		s.t.Fatal(err)
	}
	return x
}

// cells are the texts of a row of a page, by the titles of the columns.
func (a answer) cells(t testing.TB, table, key string) map[string]string {
	t.Helper()
	_, rest, found := strings.Cut(a.body, `<table id="`+table+`"`)
	if found {
		_, rest, found = strings.Cut(rest, `<tr data-key="`+key+`"`)
	}
	if !found {
		t.Fatalf("table %s has no row %q:\n%s", table, key, a.body)
	}
	rest, _, _ = strings.Cut(rest, "</tr>")
	list := map[string]string{}
	for _, part := range strings.Split(rest, `data-label="`)[1:] {
		title, text, _ := strings.Cut(part, `">`)
		text, _, _ = strings.Cut(strings.ReplaceAll(text, "</th>", "</td>"), "</td>")
		list[title] = regexp.MustCompile(`<small>`).ReplaceAllString(text, ": ")
		list[title] = html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(list[title], ""))
	}
	return list
}

// TestService: members by state and zone, who is left out and why, and whom a caller in a zone uses.
func TestService(t *testing.T) {
	s := openSite(t, nil)
	ready := s.member("api", `{"addr":"10.0.0.1:80","zone":"SAS","weight":300}`)
	s.member("api", `{"addr":"10.0.0.2:80","zone":"SAS"}`)
	failing := s.member("api", `{"addr":"10.0.0.3:80","zone":"MAN","state":"failing","why":"dial: refused"}`)
	s.member("api", `{"addr":"10.0.0.4:80","zone":"MAN"}`)
	stranger := s.member("api", "no address <b>")
	old := s.member("api", `{"addr":"10.0.0.1:80","zone":"SAS"}`) // a newer one with the first one's address
	lock := s.session()
	if _, err := lock.Mutex("job").Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.session().RWMutex("readers").RLock(t.Context()); err != nil {
		t.Fatal(err)
	}

	list := s.get("/services?node=/default")
	list.wants(t, http.StatusOK, "MAN, SAS", "3 of 4", "1 failing, 2 left out")
	for _, other := range []string{"job", "readers"} {
		if strings.Contains(list.body, `data-key="`+encodeName(other)+`"`) {
			t.Errorf("%s is listed as a service", other)
		}
	}
	s.get("/services?node=/default&prefix=x").wants(t, http.StatusOK, "No service has members here.")

	here := semaphoreURL("/default", "api")
	p := s.get(here)
	p.wants(t, http.StatusOK, "Service <code", "Used by a caller without a zone")
	id := func(x *client.Session) string { return strconv.FormatUint(x.ID(), 10) }
	for _, x := range []struct {
		who  *client.Session
		want map[string]string
	}{
		{old, map[string]string{"State": "ready", "Weight": "100"}},
		{ready, map[string]string{"State": "left out: A newer member has the address.", "Address": "10.0.0.1:80"}},
		{failing, map[string]string{"State": "failing: dial: refused", "Used": "no: it is failing"}},
		{stranger, map[string]string{"State": "left out: Addr is", "Address": "no address <b>"}},
	} {
		row := p.cells(t, "members", id(x.who))
		for title, want := range x.want {
			if !strings.HasPrefix(row[title], want) {
				t.Errorf("session %s: %s is %q, want %q", id(x.who), title, row[title], want)
			}
		}
	}
	zones := p.cells(t, "zones", "zone SAS")
	if zones["A caller there uses"] != "2 members: of this zone alone" {
		t.Errorf("a caller in SAS uses %q", zones["A caller there uses"])
	}
	if got := p.cells(t, "zones", "zone MAN")["A caller there uses"]; got != "3 members: of all zones" {
		t.Errorf("a caller in MAN uses %q", got)
	}
	s.get(here+"&zone=SAS").wants(t, http.StatusOK, "Used by a caller in SAS", "it is in the zone")
	s.get(here+"&zone="+strings.Repeat("z", 100)).wants(t, http.StatusBadRequest, "the zone has 100 bytes")
	if first := strings.Index(p.body, "left out<small>"); first > strings.Index(p.body, "10.0.0.2:80") {
		t.Error("members without a trouble come first")
	}
}

// TestDrainMember: the form asks first, the right use is enough, and the member follows.
func TestDrainMember(t *testing.T) {
	s := openSite(t, nil, withAuth())
	a := s.administrator()
	tokens := map[string]string{}
	for identity, right := range map[string]string{"carol": "use", "rita": "read"} {
		if _, err := a.Grant(t.Context(), identity, "/default", right); err != nil {
			t.Fatal(err)
		}
		x, err := a.CreateToken(t.Context(), "", identity)
		if err != nil {
			t.Fatal(err)
		}
		tokens[identity] = x.Secret
	}
	member, err := s.sdk.Session(t.Context(), "/default")
	if err != nil {
		t.Fatal(err)
	}
	r, err := discovery.Register(t.Context(), member, "api", discovery.Endpoint{Addr: "10.0.0.1:80"})
	if err != nil {
		t.Fatal(err)
	}
	here := semaphoreURL("/default", "api")
	id := strconv.FormatUint(member.ID(), 10)
	action := actionURL("drain-member", "node", "/default", "name", encodeName("api"), "session", id)

	s.login(tokens["rita"]).wants(t, http.StatusSeeOther)
	s.get(here).wants(t, http.StatusOK, "10.0.0.1:80")
	if strings.Contains(s.get(here).body, "drain-member") {
		t.Error("who may only read is offered a drain")
	}
	s.act(action, "api").wants(t, http.StatusForbidden)
	if r.State() != discovery.Ready {
		t.Fatal("the member drains without the right")
	}

	s.login(tokens["carol"]).wants(t, http.StatusSeeOther)
	s.get(here).wants(t, http.StatusOK, "/action/drain-member?")
	s.get(action).wants(t, http.StatusOK, "This is a dry run", "10.0.0.1:80")
	s.act(action, "another").wants(t, http.StatusUnprocessableEntity, "the name that you typed is another one")
	s.act(action, "api").wants(t, http.StatusOK, "The member is asked to drain.")
	tab := s.open(here)
	state := func(text, note string) func(string, update) bool {
		return func(_ string, u update) bool {
			for _, x := range u.Tables {
				if x.ID == "members" && len(x.Set) == 1 {
					c := x.Set[0].Cells[memberState]
					return c.Text == text && c.Note == note
				}
			}
			return false
		}
	}
	tab.until("the drain", state("draining", "drained by carol: host is broken"))
	if r.State() != discovery.Draining {
		t.Error("the page shows what the member is not")
	}
	undrain := actionURL("undrain-member", "node", "/default", "name", encodeName("api"), "session", id)
	s.get(here).wants(t, http.StatusOK, "/action/undrain-member?")
	s.act(undrain, "api").wants(t, http.StatusOK, "The request is taken back.")
	tab.until("the end of the drain", state("ready", ""))
	tab.close()
	s.get(actionURL("drain-member", "node", "/default", "name", encodeName("api"), "session", "77")).
		wants(t, http.StatusNotFound, "no member of the service now")
}

// TestManyNames: the list of services goes through names page by page.
func TestManyNames(t *testing.T) {
	s := openSite(t, nil)
	holder := s.session()
	for i := range scannedNames + 10 {
		if err := holder.Create(t.Context(), fmt.Sprintf("a%05d", i), 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	for i := range scannedRows + 1 {
		s.member(fmt.Sprintf("b%02d", i), "10.0.0.1:80")
	}
	first := s.get("/services?node=/default")
	first.wants(t, http.StatusOK, "None is among the")
	second := s.get(first.next("services"))
	second.wants(t, http.StatusOK, `data-key="`+encodeName("b24")+`"`)
	third := s.get(second.next("services"))
	third.wants(t, http.StatusOK, `data-key="`+encodeName("b25")+`"`)
	if strings.Contains(third.body, `data-key="`+encodeName("b24")+`"`) || third.next("services") != "" {
		t.Error("the last page has more than the last service")
	}
}

// TestKindsByName: elections and configurations are shown as what they are.
func TestKindsByName(t *testing.T) {
	s := openSite(t, nil)
	x := s.session(client.Description("leader@a"))
	if _, err := x.Election("head").Campaign(t.Context(), client.Data("host-1:80")); err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"dark", "light <i>"} {
		if _, err := x.Config("flags").Set(t.Context(), []byte(value), client.Reason("it is "+value)); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.Create(t.Context(), client.ConfigPrefix+"broken", 1, []byte("\xff")); err != nil {
		t.Fatal(err)
	}
	s.get("/elections?node=/default").wants(t, http.StatusOK, ">head<", "leader@a")
	s.get(semaphoreURL("/default", "head")).wants(t, http.StatusOK, "Lock or election <code", "leader@a", "host-1:80")
	s.get("/configurations?node=/default").wants(t, http.StatusOK, ">flags<", `<td class="num" data-label="Version">2</td>`)
	s.get("/configurations?node=/default&prefix=x").wants(t, http.StatusOK, "No configuration has a name that begins with")
	p := s.get(semaphoreURL("/default", client.ConfigPrefix+"flags"))
	p.wants(t, http.StatusOK, "Configuration <code", "light &lt;i&gt;", "leader@a", "it is light &lt;i&gt;")
	if row := p.cells(t, "history", "1"); row["Value"] != "dark" || row["Because"] != "it is dark" {
		t.Errorf("the value before is %q", row["Value"])
	}
	s.get(semaphoreURL("/default", client.ConfigPrefix+"broken")).wants(t, http.StatusOK, "Its data is no configuration")
	s.get("/semaphores?node=/default").wants(t, http.StatusOK, "lock or election", "configuration")
	s.get("/elections?node=/default&prefix="+url.QueryEscape(strings.Repeat("x", 2000))).wants(t, http.StatusBadRequest, "The prefix is")
}

// TestBusiest: the first page shows what waits longest, over all nodes.
func TestBusiest(t *testing.T) {
	s := openSite(t, nil)
	if _, err := admin.Nodes(s.program()).Create(t.Context(), "/other", admin.NodeConfig{}); err != nil {
		t.Fatal(err)
	}
	s.holder("mine")
	s.waiters("mine", 1, 1)
	x, err := s.program().Session(t.Context(), "/other")
	if err == nil {
		err = x.Create(t.Context(), "theirs", 1, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		l, err := x.Acquire(t.Context(), "theirs")
		if err == nil {
			err = l.Release(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	p := s.get("/")
	if row := p.cells(t, "waits", encodeName("/default\x00mine")); row["Node"] != "/default" || row["Waiters"] != "1" {
		t.Errorf("what waits longest is %v", row)
	}
	if row := p.cells(t, "busy", encodeName("/other\x00theirs")); row["Node"] != "/other" {
		t.Errorf("what is granted most often is %v", row)
	}
}
