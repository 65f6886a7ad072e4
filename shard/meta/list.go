package meta

// first is the first record of a list that is the one wanted.
func first[T any](list []T, wanted func(*T) bool) (x T, ok bool) {
	for i := range list {
		if wanted(&list[i]) {
			return list[i], true
		}
	}
	return x, false
}

// word is the word of a value, by number.
func word[T ~uint8](value T, words ...string) string {
	if int(value) < len(words) && words[value] != "" {
		return words[value]
	}
	return "unknown"
}
