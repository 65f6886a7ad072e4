package protocol

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// source parses the package's files without its tests.
func source(t *testing.T) map[string]*ast.File {
	t.Helper()
	files := map[string]*ast.File{}
	names, err := fs.Glob(os.DirFS("."), "*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = f
	}
	return files
}

// constants are the names and values of the constants of a type that are written out as "Name Type
// = value".
func constants(t *testing.T, file, typ string) map[string]uint64 {
	t.Helper()
	found := map[string]uint64{}
	ast.Inspect(source(t)[file], func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if id, ok := spec.Type.(*ast.Ident); !ok || id.Name != typ {
			return true
		}
		if lit, ok := spec.Values[0].(*ast.BasicLit); ok {
			v, err := strconv.ParseUint(lit.Value, 0, 64)
			if err != nil {
				t.Fatal(err)
			}
			found[spec.Names[0].Name] = v
		}
		return true
	})
	return found
}

// kinds are the declared kinds of requests and events.
func kinds(t *testing.T) map[string]uint64 {
	k := constants(t, "kind.go", "Kind")
	delete(k, "KindReply")
	delete(k, "firstEvent")
	delete(k, "lastEvent")
	return k
}

// methods are the names of the operators' methods.
func methods(t *testing.T) (list []string) {
	t.Helper()
	for _, f := range source(t) {
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || !strings.HasPrefix(spec.Names[0].Name, "Method") {
				return true
			}
			name, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, name)
			return true
		})
	}
	if len(list) == 0 {
		t.Fatal("the package has no constant Method...")
	}
	return list
}

// TestEveryKindHasMessages: each kind is in the table of messages (with its reply, if it is a
// request), has a name of its own, a number of its own, and a check of its arguments. The table
// feeds the golden vectors and every other test.
func TestEveryKindHasMessages(t *testing.T) {
	table := map[Kind]messageCase{}
	for _, e := range messages {
		if _, twice := table[e.kind]; twice {
			t.Errorf("kind %v is twice in the table", e.kind)
		}
		table[e.kind] = e
	}
	declared := kinds(t)
	if len(declared) < 36 {
		t.Fatalf("only %d kinds found", len(declared))
	}
	numbers, names := map[uint64]string{}, map[string]string{}
	for name, number := range declared {
		k := Kind(number)
		if other := numbers[number]; other != "" {
			t.Errorf("%s and %s have the number %d", name, other, number)
		}
		numbers[number] = name
		if other := names[k.String()]; other != "" || strings.Contains(k.String(), "kind_") {
			t.Errorf("%s has the name %q, as %s has", name, k.String(), other)
		}
		names[k.String()] = name
		e, ok := table[k]
		if !ok {
			t.Errorf("%s has no message in the table", name)
			continue
		}
		if k.IsRequest() == k.IsEvent() || k.IsReply() {
			t.Errorf("%s: request %v, event %v, reply %v", name, k.IsRequest(), k.IsEvent(), k.IsReply())
		}
		if k.IsEvent() {
			continue
		}
		if _, ok := table[k|KindReply]; !ok && k != KindPing {
			t.Errorf("%s has no reply in the table", name)
		}
		if err := Validate(e.sample); err != nil {
			t.Errorf("%s: the sample is not valid: %v", name, err)
		}
	}
	for k := range table {
		if numbers[uint64(k&^KindReply)] == "" {
			t.Errorf("the table has kind %d, which is not declared", k)
		}
	}
}

// TestEveryStructIsReached: each struct of the messages' files is a message of the table or a part
// of one, so no test leaves it out.
func TestEveryStructIsReached(t *testing.T) {
	reached := map[string]bool{}
	for _, e := range allMessages() {
		for _, s := range structs(reflect.TypeOf(e.sample).Elem()) {
			reached[s.Name()] = true
		}
	}
	found := 0
	for name, file := range source(t) {
		if !strings.HasPrefix(name, "messages_") {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if _, ok := spec.Type.(*ast.StructType); ok {
					found++
					if !reached[spec.Name.Name] {
						t.Errorf("%s of %s is in no message of the table", spec.Name.Name, name)
					}
				}
			}
			return true
		})
	}
	if found < 45 {
		t.Errorf("only %d structs found", found)
	}
}

// structs lists a struct and the structs inside it.
func structs(t reflect.Type) []reflect.Type {
	list := []reflect.Type{t}
	for f := range t.Fields() {
		ft := f.Type
		if ft.Kind() == reflect.Slice || ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		if ft.Kind() == reflect.Struct {
			list = append(list, structs(ft)...)
		}
	}
	return list
}

// wireType names a field's type as DESIGN.md does.
func wireType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bin"
		}
		return "[" + wireType(t.Elem()) + "]"
	case reflect.Struct:
		return t.Name()
	case reflect.Pointer: // left out when it is nil
		return wireType(t.Elem()) + "?"
	case reflect.String:
		return "str"
	case reflect.Bool:
		return "bool"
	}
	if t.PkgPath() != "" {
		return t.Name() // Status and the other small enumerations, one byte each
	}
	return fmt.Sprintf("u%d", t.Bits())
}

// wireFields lists a struct's fields as DESIGN.md does.
func wireFields(t reflect.Type) string {
	var list []string
	for f := range t.Fields() {
		if f.Anonymous {
			list = append(list, f.Type.Name())
			continue
		}
		field := f.Name
		if typ := wireType(f.Type); typ != "u64" {
			field += " " + typ
		}
		list = append(list, field)
	}
	return strings.Join(list, ", ")
}

// TestDesignListsEverything: DESIGN.md has an entry for each kind with its message and its reply,
// for each struct with its fields in wire order, and a row for each enumeration with its values, for
// each status and refusal, and for each operators' method.
func TestDesignListsEverything(t *testing.T) {
	raw, err := os.ReadFile("DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	design := string(raw)
	table := map[Kind]string{}
	rows := map[string]string{}
	for _, e := range allMessages() {
		table[e.kind] = e.typeName()
		for _, s := range structs(reflect.TypeOf(e.sample).Elem()) {
			rows[s.Name()] = wireFields(s)
		}
	}
	need := func(row string) {
		if !strings.Contains(design, "\n"+row) {
			t.Errorf("DESIGN.md lacks the row\n%s", row)
		}
	}
	words := strings.Join(strings.Fields(design), " ")
	listed := map[string]bool{"Empty": true}
	list := func(name, fields, reply string) {
		if fields != "" {
			name += " (" + fields + ")"
		}
		if reply != "" && reply != "Empty" {
			name += " → " + reply
		}
		if !strings.Contains(words, " - "+name+": ") && !strings.Contains(words, " - "+name+" ") {
			t.Errorf("DESIGN.md lacks the message\n- %s", name)
		}
	}
	for _, number := range kinds(t) {
		k := Kind(number)
		body := table[k]
		name := body
		if body == "Empty" {
			name = strings.ToUpper(k.String()[:1]) + k.String()[1:]
		}
		listed[body] = true
		if k.IsEvent() {
			list(fmt.Sprintf("event **%d %s**", k, name), rows[body], "")
		} else {
			list(fmt.Sprintf("**%d %s**", k, name), rows[body], table[k|KindReply])
		}
	}
	for name, fields := range rows {
		if !listed[name] {
			list(name, fields, "")
		}
	}
	for _, number := range constants(t, "status.go", "Status") {
		need(fmt.Sprintf("| %d | %s | ", number, Status(number).String()))
	}
	for r := RefusalNone + 1; r < refusals; r++ {
		need(fmt.Sprintf("| %d | %v | %v | ", r, r, r.Status().String()))
	}
	for _, method := range methods(t) {
		need(fmt.Sprintf("| `%s` | ", method))
	}
	for name, values := range enumerations(t) {
		_, row, found := strings.Cut(design, "\n| "+name+" | ")
		row, _, _ = strings.Cut(row, "\n")
		if !found {
			t.Errorf("DESIGN.md lacks the enumeration %s", name)
		}
		for _, v := range values {
			if !strings.Contains(", "+row, fmt.Sprintf(", %d ", v)) {
				t.Errorf("DESIGN.md lacks the value %d of %s", v, name)
			}
		}
	}
}

// enumerations are the small types of fields with their constants, but for statuses and refusals.
func enumerations(t *testing.T) map[string][]uint64 {
	t.Helper()
	values := map[string][]uint64{}
	for name, file := range source(t) {
		for _, decl := range file.Decls {
			d, ok := decl.(*ast.GenDecl)
			if !ok || d.Tok != token.TYPE {
				continue
			}
			for _, spec := range d.Specs {
				typ := spec.(*ast.TypeSpec).Name.Name
				if typ == "Status" || typ == "Refusal" || typ == "Kind" {
					continue
				}
				for _, v := range constants(t, name, typ) {
					values[typ] = append(values[typ], v)
				}
			}
		}
	}
	if len(values) < 30 {
		t.Errorf("only %d enumerations were found", len(values))
	}
	return values
}

// TestPure: the package both ends share does no I/O, reads no clock, starts no goroutine and brings
// no dependency but the hash of the routing rule.
func TestPure(t *testing.T) {
	allowed := map[string]bool{"encoding/binary": true, "errors": true, "fmt": true, "strconv": true, "sync": true,
		"unicode/utf8": true, "github.com/cespare/xxhash/v2": true}
	documented := map[string]bool{"AppendBody": true, "DecodeBody": true, "Validate": true} // by the functions of these names
	for name, file := range source(t) {
		for _, imp := range file.Imports {
			if path, _ := strconv.Unquote(imp.Path.Value); !allowed[path] {
				t.Errorf("%s imports %s", name, path)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s starts a goroutine", name)
			case *ast.CallExpr:
				if id, ok := n.Fun.(*ast.Ident); ok && id.Name == "panic" {
					t.Errorf("%s panics", name)
				}
			case *ast.FuncDecl:
				if n.Name.IsExported() && n.Doc == nil && !documented[n.Name.Name] {
					t.Errorf("%s: %s has no doc", name, n.Name.Name)
				}
			}
			return true
		})
	}
}
