package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// number is a whole number. Models write it as 2, 2.0 or "2", and null for none.
type number int

// UnmarshalJSON reads a number or a text.
func (n *number) UnmarshalJSON(raw []byte) error {
	if string(raw) == "null" {
		return nil
	}
	x, err := strconv.ParseFloat(strings.Trim(string(raw), `"`), 64)
	if err != nil || x != math.Trunc(x) || math.Abs(x) > 1<<53 {
		return &json.UnmarshalTypeError{Value: clean(string(raw)), Type: reflect.TypeFor[number]()}
	}
	*n = number(x)
	return nil
}

// mustBe says what arguments of a kind must be.
var mustBe = map[reflect.Kind]string{reflect.Slice: `a list of texts, such as ["a"]`, reflect.String: "a text",
	reflect.Bool: "true or false", reflect.Int: "a whole number", reflect.Struct: "an object", reflect.Map: "an object"}

// readArguments reads the arguments of a tool, and enters the agent that they name, which is not nil
// unless that is wrong. Null is an argument that is not given.
func (all *agents) readArguments(raw json.RawMessage, schema *jsonschema.Schema, in any) (a *agent, err error) {
	if len(raw) == 0 {
		raw = json.RawMessage("null")
	}
	var who struct {
		Agent string `json:"agent"`
	}
	if err = decode(raw, &who); err == nil {
		err = checkText("agent", who.Agent, maxAgentName)
	}
	if err == nil {
		a, err = all.enter(who.Agent)
	}
	if err != nil {
		return nil, err
	}
	var values map[string]any
	_ = json.Unmarshal(raw, &values)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if schema.Properties[name] == nil {
			return a, refuse("%s is not an argument. Give %s.", quote(name), strings.Join(schema.PropertyOrder, ", "))
		}
	}
	return a, decode(raw, in)
}

// decode decodes arguments. Its error names the one that is wrong.
func decode(raw json.RawMessage, in any) error {
	err := json.Unmarshal(raw, in)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return refuse("%s must be %s (got %s).", cmp.Or(wrong.Field, "The arguments"), mustBe[wrong.Type.Kind()], wrong.Value)
	}
	return err
}
