package protocol

// ValidatePath checks the path of a coordination node: "/" and then segments joined by "/", each of
// letters, digits, ".", "_" and "-", none of them empty, "." or "..", at most MaxPathLen bytes in
// all. "/" itself is the root of the tree and not a node. Errors are StatusBadRequest and name the
// illegal character.
func ValidatePath(path string) error {
	switch {
	case path == "":
		return Errorf(StatusBadRequest, "node path is empty; write it like /services/billing")
	case len(path) > MaxPathLen:
		return Errorf(StatusBadRequest, "node path is %d bytes long; at most %d are allowed", len(path), MaxPathLen)
	case path == "/":
		return Errorf(StatusBadRequest,
			"node path / is the root of the tree, which is no coordination node; name one below it, like /default")
	case path[0] != '/':
		return Errorf(StatusBadRequest, "node path %q does not start with /; write it like /services/billing", path)
	case path[len(path)-1] == '/':
		return Errorf(StatusBadRequest, "node path %q ends with the illegal character '/'; leave it out", path)
	}
	if err := validatePathBytes(path, "node path"); err != nil {
		return err
	}
	start := 1
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		switch segment := path[start:i]; segment {
		case "":
			return Errorf(StatusBadRequest, "node path %q has the illegal character '/' at byte %d: a segment is empty", path,
				i)
		case ".", "..":
			return Errorf(StatusBadRequest,
				"node path %q has the segment %q; paths are not relative, write the whole path", path, segment)
		}
		start = i + 1
	}
	return nil
}

// validatePathPrefix checks the beginning of a path, as a list by prefix takes it: anything that a
// path could start with, empty included.
func validatePathPrefix(prefix string) error {
	switch {
	case prefix == "":
		return nil
	case len(prefix) > MaxPathLen:
		return Errorf(StatusBadRequest, "path prefix is %d bytes long; at most %d are allowed", len(prefix), MaxPathLen)
	case prefix[0] != '/':
		return Errorf(StatusBadRequest, "path prefix %q does not start with /; write it like /services/", prefix)
	}
	return validatePathBytes(prefix, "path prefix")
}

func validatePathBytes(path, what string) error {
	for i, r := range path {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-', r == '/':
		default:
			return Errorf(StatusBadRequest,
				"%s %q has the illegal character %q at byte %d; letters, digits, '.', '_' and '-' are allowed between '/'",
				what, path, r, i)
		}
	}
	return nil
}

// ValidateProcessName checks the name of a coordination process: parts of a-z, A-Z and 0-9, with
// single dashes or dots between them, at most MaxProcessName bytes.
func ValidateProcessName(name []byte) error {
	if len(name) == 0 || len(name) > MaxProcessName {
		return Errorf(StatusBadRequest, "process name is %d bytes long; it must be 1 to %d", len(name), MaxProcessName)
	}
	inner := false // the byte before was a letter or digit
	for _, c := range name {
		alphanumeric := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alphanumeric && (c != '-' && c != '.' || !inner) {
			inner = false
			break
		}
		inner = alphanumeric
	}
	if !inner {
		return Errorf(StatusBadRequest, "process name must be letters and digits, with single dashes or dots between them")
	}
	return nil
}
