package main

import (
	"fmt"
	"strings"
)

// choice is a word of a flag or a file, and its value.
type choice[T comparable] struct {
	word  string
	value T
}

// choices are the values of a small enumeration, in the order in which errors name them.
type choices[T comparable] []choice[T]

// choicesOf are values that know their words.
func choicesOf[T interface {
	comparable
	fmt.Stringer
}](values ...T) choices[T] {
	var list choices[T]
	for _, v := range values {
		list = append(list, choice[T]{v.String(), v})
	}
	return list
}

func (list choices[T]) parse(text string) (v T, err error) {
	var words []string
	for _, c := range list {
		if c.word == text {
			return c.value, nil
		}
		words = append(words, c.word)
	}
	last := len(words) - 1
	return v, fmt.Errorf("%q is unknown; choose %s or %s", text, strings.Join(words[:last], ", "), words[last])
}

func (list choices[T]) word(v T) string {
	for _, c := range list {
		if c.value == v {
			return c.word
		}
	}
	return "unknown"
}
