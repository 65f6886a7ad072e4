package httpapi

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/signalbox-dev/signalbox/client"
)

var update = flag.Bool("update", false, "rewrite openapi.json")

// described is what the description adds to a route of the table.
type described struct {
	id, summary string
	schema      string   // of the answer 200; empty: bytes
	also        []int    // other answers that are no errors
	codes       []string // beside those of all routes
}

// ofSession are the codes of routes that need a session.
var ofSession = []string{"410 session_expired", "503 session_moved"}

var descriptions = map[string]described{
	"POST /v1/locks/": {"acquire", "Acquire a lock, or units of a semaphore. With Accept: text/event-stream the answer is events.",
		"Acquired", []int{202}, append([]string{"409 not_acquired", "409 aborted", "409 precondition_failed", "410 lease_lost"}, ofSession...)},
	"DELETE /v1/locks/": {"release", "Release a lock, or leave its queue.", "Released", nil, append([]string{"409 aborted"}, ofSession...)},
	"GET /v1/locks/":    {"lock", "Who holds a lock, and who waits for it.", "Lock", []int{304}, ofSession},
	"GET /v1/locks":     {"locks", "A page of the list of locks.", "Locks", nil, nil},
	"GET /v1/session":   {"session", "What a session holds and waits for.", "Session", nil, ofSession},
	"DELETE /v1/session": {"endSession", "End a session: what it holds is free when the answer comes.", "Ended", nil,
		ofSession},
	"POST /v1/session/keepalive": {"keepAlive", "Renew a session, and check what it holds.", "Alive", nil,
		append([]string{"410 lease_lost"}, ofSession...)},
	"GET /v1/config/": {"config", "The value of a configuration. Its ETag is the version.", "", []int{304}, nil},
	"PUT /v1/config/": {"setConfig", "Set a configuration to the body.", "Version", nil, []string{"412 version_mismatch",
		"409 precondition_failed"}},
	"DELETE /v1/config/": {"deleteConfig", "Delete a configuration.", "Deleted", nil, []string{"412 version_mismatch",
		"409 precondition_failed"}},
	"GET /v1/services/":    {"service", "The members of a service.", "Service", []int{304}, nil},
	"POST /v1/limits/":     {"takeUnits", "Take units of a rate limit.", "Admitted", nil, []string{"429 limited"}},
	"GET /v1/openapi.json": {"openapi", "This document.", "Document", nil, nil},
	"GET /v1/ready":        {"ready", "Whether the cluster answers.", "Ready", nil, nil},
}

// commonCodes are those of all routes, and ofCluster those of all that ask the cluster.
var (
	commonCodes = []string{"400 bad_request", "403 browser", "406 not_acceptable", "414 uri_too_long", "415 unsupported_media_type",
		"421 misdirected", "503 closing", "503 overloaded", "503 unavailable"}
	ofCluster = []string{"401 unauthenticated", "403 forbidden", "404 not_found", "413 content_too_large", "429 overloaded",
		"500 internal", "501 unsupported", "504 outcome_unknown"}
	// rare are codes that no test here can bring about.
	rare = []string{"429 overloaded", "500 internal", "501 unsupported", "503 overloaded", "504 outcome_unknown",
		"409 precondition_failed", "503 unavailable"}
)

// parameter is one of the query.
type parameter struct {
	schema  document
	meaning string
}

func text() document { return document{"type": "string"} }

var duration = document{"type": "string", "pattern": `^([0-9.]+(ns|us|µs|ms|s|m|h))+$|^0$`, "example": "30s"}

var parameters = map[string]parameter{
	"mode":  {document{"type": "string", "enum": []string{"exclusive", "shared"}}, "Of a lock; exclusive if it is not given."},
	"count": {text(), "Units of a semaphore, instead of mode: a number from 1 on, or max."},
	"limit": {text(), "Of an acquire: the limit that the semaphore is made with. Of a list: names of a page, 1 to 1000."},
	"wait":  {duration, "How long the answer may wait; at most 5m."},
	"leave": {document{"type": "string", "enum": []string{"true"}},
		"At the end of wait the place in the queue is left, and the answer is 409."},
	"ttl":    {duration, "Of the session, in whole seconds, at most 25m. It starts the session if there is none."},
	"holder": {document{"type": "string", "maxLength": 200}, "Who holds it, for people."},
	"priority": {document{"type": "integer", "minimum": 0, "maximum": 9},
		"Of a semaphore with the policy priority."},
	"key":       {text(), "Who shares, of a semaphore with the policy fair."},
	"label":     {document{"type": "array", "items": text()}, "The slots have it. It may come several times."},
	"slot":      {document{"type": "array", "items": text()}, "A slot by name. It may come several times."},
	"hold":      {duration, "The longest time to hold it."},
	"prefix":    {text(), "Of the names."},
	"after":     {text(), "The name that the page begins behind."},
	"holding":   {document{"type": "array", "items": text(), "maxItems": 16}, "A name that the session must hold. It may come several times."},
	"zone":      {text(), "Of the caller."},
	"units":     {text(), "How many; 1 if it is not given."},
	"token":     {document{"type": "integer", "minimum": 1}, "Of the grant that is released: nothing else is taken away."},
	consistency: {document{"type": "string", "enum": []string{"strict"}}, "Strict reads show each change that was acknowledged before."},
	"node":      {text(), "The coordination node; /default if it is not given."},
	"name64":    {text(), "The name in base64url, instead of one in the path."},
}

// object is the schema of an object: its fields by name and type. A name with a ? may be missing.
func object(fields ...string) document {
	properties, required := document{}, []string{}
	for _, f := range fields {
		name, kind, _ := strings.Cut(f, " ")
		if !strings.HasSuffix(name, "?") {
			required = append(required, name)
		}
		properties[strings.TrimSuffix(name, "?")] = schemaOf(kind)
	}
	return document{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
}

func schemaOf(kind string) document {
	if item, ok := strings.CutPrefix(kind, "[]"); ok {
		return document{"type": "array", "items": schemaOf(item)}
	}
	switch kind {
	case "string", "integer", "boolean", "object":
		return document{"type": kind}
	case "amount":
		return document{"type": []any{"integer", "string"}, "description": "A number, or max; above 2^53 in decimal."}
	case "time":
		return document{"type": "string", "format": "date-time"}
	}
	return document{"$ref": "#/components/schemas/" + kind}
}

var schemas = document{
	"Acquired": object("state string", "name? string", "name_base64? string", "node string", "token integer", "count amount",
		"slots? []string", "holder string", "session_id string", "preempt boolean", "ends_in_ms? integer", "expires_in_ms integer",
		"waited_ms integer"),
	"Waiting": object("state string", "name? string", "name_base64? string", "node string", "position? integer",
		"holders? []Holder", "session_id string", "expires_in_ms integer", "waited_ms integer"),
	"Holder": object("token integer", "count amount", "holder string", "since time", "session_id string", "preempted boolean",
		"slots? []string", "data? string", "data_base64? string", "data_len? integer"),
	"Waiter":   object("position integer", "count amount", "holder string", "since time", "session_id string"),
	"Released": object("released boolean"),
	"Lock": object("name? string", "name_base64? string", "node string", "exists boolean", "ephemeral? boolean", "used? amount",
		"limit? amount", "num_owners? integer", "num_waiters? integer", "owners []Holder", "waiters []Waiter", "why? []string"),
	"Locks": object("node string", "locks []Item", "next? string", "next_base64? string"),
	"Item": object("name? string", "name_base64? string", "ephemeral boolean", "used amount", "limit amount", "num_owners integer",
		"num_waiters integer"),
	"Held": object("name? string", "name_base64? string", "token integer", "count amount"),
	"Session": object("holder string", "ttl_ms integer", "holds []Held", "waits []Held", "node string", "session_id string",
		"expires_in_ms integer", "waited_ms integer"),
	"Ended": object("ended boolean"),
	"Alive": object("state string", "preempt boolean", "num_holds integer", "node string", "session_id string", "expires_in_ms integer",
		"waited_ms integer"),
	"Version": object("version integer"),
	"Deleted": object("deleted boolean"),
	"Endpoint": object("addr string", "zone string", "weight integer", "state string", "why string", "token integer",
		"used boolean", "meta object"),
	"Service": object("service string", "node string", "endpoints []Endpoint", "live boolean", "age_ms integer", "panic boolean",
		"ignored integer"),
	"Admitted": object("admitted boolean", "units amount", "waited_ms integer"),
	"Ready":    object("ready boolean"),
	"Document": document{"type": "object"},
	"Problem": object("type string", "title string", "status integer", "code string", "detail string", "name? string",
		"holders? []Holder", "position? integer", "version? integer", "retry_after_ms? integer", "loss? Loss"),
	"Loss": object("cause string", "since_ms integer", "stood_ms integer", "steps []string", "advice string"),
}

// codesOf are the errors of a route.
func codesOf(r *route) []string {
	codes := append(slices.Clone(commonCodes), descriptions[r.method+" "+r.path].codes...)
	if !r.open {
		codes = append(codes, ofCluster...)
	}
	slices.Sort(codes)
	return codes
}

// openAPI describes the route table.
func openAPI(t *testing.T) []byte {
	paths, problems := document{}, document{}
	for i := range routes {
		r := &routes[i]
		d, ok := descriptions[r.method+" "+r.path]
		if !ok {
			t.Fatalf("%s %s is not described", r.method, r.path)
		}
		path := r.path
		var params []document
		names := slices.Clone(r.params)
		if strings.HasSuffix(path, "/") {
			path += "{name}"
			params = append(params, document{"name": "name", "in": "path", "required": true, "schema": text(),
				"description": "The rest of the path, percent-decoded once: a slash in a name may be sent as it is."})
			names = append(names, "name64")
		}
		if !r.open {
			names = append(names, "node")
		}
		for _, name := range names {
			p, ok := parameters[name]
			if !ok {
				t.Fatalf("the parameter %s is not described", name)
			}
			params = append(params, document{"name": name, "in": "query", "schema": p.schema, "description": p.meaning})
		}
		if slices.Contains(d.codes, ofSession[0]) {
			params = append(params, document{"name": sessionHeader, "in": "header", "schema": document{"type": "string",
				"minLength": 8, "maxLength": 128}, "description": "The caller's name for its session.",
				"required": !r.stream && r.path != "/v1/locks/" || r.method == "DELETE"})
		}
		if slices.Contains(d.also, http.StatusNotModified) || slices.Contains(d.codes, "412 version_mismatch") {
			params = append(params, document{"name": "If-None-Match", "in": "header", "schema": text(),
				"description": "Of a read: the ETags that are known. Of a write: * alone, for a new value."})
		}
		if slices.Contains(d.codes, "412 version_mismatch") {
			params = append(params, document{"name": "If-Match", "in": "header", "schema": text(),
				"description": "The ETag of the version that is replaced."})
		}
		answers := document{}
		content := document{jsonKind: document{"schema": schemaOf(d.schema)}}
		if d.schema == "" {
			content = document{bytesKind: document{}}
		}
		if r.stream {
			content[eventStream] = document{"schema": text()}
		}
		answers["200"] = document{"description": "Done.", "content": content}
		for _, status := range d.also {
			answers[strconv.Itoa(status)] = document{"description": http.StatusText(status) + "."}
			if status == http.StatusAccepted {
				answers["202"].(document)["content"] = document{jsonKind: document{"schema": schemaOf("Waiting")}}
			}
		}
		byStatus := map[string][]string{}
		for _, c := range codesOf(r) {
			status, code, _ := strings.Cut(c, " ")
			byStatus[status] = append(byStatus[status], code)
		}
		for status, codes := range byStatus {
			name := "Error" + status + "." + strings.Join(codes, ".")
			answers[status] = document{"$ref": "#/components/responses/" + name}
			problems[name] = document{"description": strings.Join(codes, ", "), "content": document{problemKind: document{
				"schema": document{"allOf": []document{schemaOf("Problem"), {"properties": document{"code": document{"enum": codes}}}}}}}}
		}
		op := document{"operationId": d.id, "summary": d.summary, "responses": answers}
		if len(params) > 0 {
			op["parameters"] = params
		}
		if r.body {
			op["requestBody"] = document{"description": "Data, as it is, of any type.", "content": document{"*/*": document{}}}
		}
		if r.open {
			op["security"] = []document{}
		}
		if paths[path] == nil {
			paths[path] = document{}
		}
		paths[path].(document)[strings.ToLower(r.method)] = op
	}
	d := document{
		"openapi":  "3.1.0",
		"info":     document{"title": "signalbox: locks by HTTP", "version": "1", "license": document{"name": "Apache-2.0", "identifier": "Apache-2.0"}},
		"paths":    paths,
		"security": []document{{}, {"bearer": []string{}}, {"basic": []string{}}},
		"components": document{"schemas": schemas, "responses": problems, "securitySchemes": document{
			"bearer": document{"type": "http", "scheme": "bearer"},
			"basic":  document{"type": "http", "scheme": "basic", "description": "The token is the password."}}},
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(d); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestOpenAPI: the description is that of the route table, and the handlers know the parameters
// that it has, and no other.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	now := openAPI(t)
	if *update {
		if err := os.WriteFile("openapi.json", now, 0o644); err != nil {
			t.Fatal(err)
		}
	} else if !bytes.Equal(now, openAPIDocument) {
		t.Fatal("openapi.json is not that of the route table; run `make golden`")
	}
	if len(descriptions) != len(routes) {
		t.Errorf("%d routes are described, of %d", len(descriptions), len(routes))
	}
	api, err := New(Config{Client: client.Config{Endpoints: []string{"127.0.0.1:1"}}, TokenRequired: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	known := append(slices.Collect(maps.Keys(parameters)), "unknown")
	for i := range routes {
		r := &routes[i]
		path := r.path
		if strings.HasSuffix(path, "/") {
			path += "a"
		}
		for _, name := range known {
			w, req := httptest.NewRecorder(), httptest.NewRequest(r.method, "http://localhost"+path+"?"+name+"=", nil)
			api.ServeHTTP(w, req)
			has := slices.Contains(r.params, name) || name == "node" && !r.open || name == "name64" && path != r.path
			want := "is empty"
			if !has {
				want = "is not known"
			}
			if w.Code != 400 || !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s %s with %s is answered %d %s", r.method, path, name, w.Code, w.Body)
			}
		}
	}
}

// seen are the answers of this run, by route, status and code.
var seen struct {
	sync.Mutex
	answers map[string]bool
}

// check holds an answer to the description.
func (a *answer) check(method, path string) {
	a.t.Helper()
	path, _, _ = strings.Cut(path, "?")
	var r *route
	for i := range routes {
		if p := &routes[i]; p.method == method && (p.path == path || strings.HasSuffix(p.path, "/") && strings.HasPrefix(path, p.path)) {
			r = p
		}
	}
	if r == nil {
		return
	}
	d := descriptions[method+" "+r.path]
	key := strconv.Itoa(a.status)
	schema := d.schema
	switch {
	case a.status >= 400:
		key += " " + fmt.Sprint(a.doc["code"])
		if !slices.Contains(codesOf(r), key) {
			a.t.Errorf("%s %s is answered %s, which is not described", method, path, key)
		}
		schema = "Problem"
	case a.status == http.StatusAccepted:
		schema = "Waiting"
	case a.status != 200 && !slices.Contains(d.also, a.status):
		a.t.Errorf("%s %s is answered %d, which is not described", method, path, a.status)
	}
	if a.doc != nil {
		if err := validate(schemaOf(schema), a.doc); err != nil {
			a.t.Errorf("%s %s is answered %s: %v", method, path, a.body, err)
		}
	}
	seen.Lock()
	defer seen.Unlock()
	if seen.answers == nil {
		seen.answers = make(map[string]bool)
	}
	seen.answers[method+" "+r.path+" "+key] = true
	seen.answers[key] = true
}

// unseen are answers that are described, and that no test has had.
func unseen() (list []string) {
	seen.Lock()
	defer seen.Unlock()
	for i := range routes {
		r := &routes[i]
		d := descriptions[r.method+" "+r.path]
		for _, status := range append([]int{200}, d.also...) {
			if key := fmt.Sprintf("%s %s %d", r.method, r.path, status); !seen.answers[key] {
				list = append(list, key)
			}
		}
		for _, code := range codesOf(r) {
			if !seen.answers[code] && !slices.Contains(rare, code) && !slices.Contains(list, code) {
				list = append(list, code)
			}
		}
	}
	return list
}

// validate reports what of a document a schema does not allow, as far as the description uses
// schemas.
func validate(schema document, v any) error {
	if ref, ok := schema["$ref"].(string); ok {
		return validate(schemas[ref[strings.LastIndex(ref, "/")+1:]].(document), v)
	}
	kind := "string"
	switch v := v.(type) {
	case json.Number:
		if kind = "integer"; strings.ContainsAny(v.String(), ".eE") {
			kind = "number"
		}
	case bool:
		kind = "boolean"
	case []any:
		kind = "array"
		for _, x := range v {
			if err := validate(schema["items"].(document), x); err != nil {
				return err
			}
		}
	case map[string]any:
		kind = "object"
		properties, closed := schema["properties"].(document)
		for key, x := range v {
			if p, ok := properties[key].(document); ok {
				if err := validate(p, x); err != nil {
					return fmt.Errorf("%s: %w", key, err)
				}
			} else if closed {
				return fmt.Errorf("the field %s is not described", key)
			}
		}
		required, _ := schema["required"].([]string)
		for _, key := range required {
			if _, ok := v[key]; !ok {
				return fmt.Errorf("the field %s is missing", key)
			}
		}
	}
	if types, several := schema["type"].([]any); schema["type"] != kind && (!several || !slices.Contains(types, any(kind))) {
		return fmt.Errorf("it is of type %s, not %v", kind, schema["type"])
	}
	return nil
}
