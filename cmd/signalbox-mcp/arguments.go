package main

import (
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

// readArguments reads the arguments of a tool; null is one that is not given. agent is nil if they
// do not say which agent calls.
func readArguments(raw json.RawMessage, schema *jsonschema.Schema, in any) (agent *string, err error) {
	var values map[string]any
	if len(raw) == 0 {
		raw = json.RawMessage("null")
	}
	err = json.Unmarshal(raw, &values)
	name, ok := values["agent"].(string)
	if err == nil && (ok || values["agent"] == nil) {
		if err = checkText("agent", name, maxAgentName); err != nil {
			return nil, err
		}
		agent = &name
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if schema.Properties[key] == nil {
			return agent, refuse("%s is not an argument. Give %s.", quote(key), strings.Join(schema.PropertyOrder, ", "))
		}
	}
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](json.Unmarshal(raw, in))
	if !ok {
		return agent, err
	}
	must := "a whole number"
	switch wrong.Type.Kind() {
	case reflect.Slice:
		must = `a list of texts, such as ["a"]`
	case reflect.String:
		must = "a text"
	case reflect.Bool:
		must = "true or false"
	case reflect.Struct:
		return agent, refuse("The arguments must be an object (got %s).", wrong.Value)
	}
	return agent, refuse("The argument %s must be %s (got %s).", wrong.Field, must, wrong.Value)
}
