package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// importedModules are the nested modules that programs import. Importers ignore their replace, so
// the version of the main module that they require must exist.
var importedModules = []string{"client/grpcsignalbox", "client/otelsignalbox"}

var (
	semantic = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)$`)
	required = regexp.MustCompile(`(?m)^(?:require|\t)\s*github\.com/signalbox-dev/signalbox v(\S+)`)
)

// refusals returns all reasons why the tree at root is not to be released as version.
func refusals(ctx context.Context, root, version, treeVersion string) error {
	var reasons []error
	refuse := func(format string, args ...any) { reasons = append(reasons, fmt.Errorf(format, args...)) }
	if !semantic.MatchString(version) {
		return fmt.Errorf("version %q is not written as 1.2.3; name one without v and without a suffix, or build a snapshot", version)
	}
	if version+"-dev" != treeVersion {
		refuse("the tree is of version %s; release %s, or change TreeVersion in server/release",
			treeVersion, strings.TrimSuffix(treeVersion, "-dev"))
	}
	changes, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	if heading := `(?m)^## ` + regexp.QuoteMeta(version) + ` - \d{4}-\d\d-\d\d$`; !regexp.MustCompile(heading).Match(changes) {
		refuse("CHANGELOG.md has no heading \"## %s - YYYY-MM-DD\"; write the day of the release there", version)
	}
	changed, err := command(ctx, root, "git", "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		refuse("the tree has changes that are not committed; commit them, or put them aside:\n%s", changed)
	}
	tags, err := command(ctx, root, "git", "tag", "--list", "v*", "--sort=-version:refname")
	if err != nil {
		return err
	}
	for tag := range strings.FieldsSeq(tags) {
		previous := strings.TrimPrefix(tag, "v")
		if !semantic.MatchString(previous) || previous == version {
			continue
		}
		if _, err := os.Stat(filepath.Join(root, "server/testdata/releases", previous)); err != nil {
			refuse("server/testdata/releases lacks %s, the release before; keep it first", previous)
		}
		break
	}
	for _, module := range importedModules {
		mod, err := os.ReadFile(filepath.Join(root, module, "go.mod"))
		if err != nil {
			return err
		}
		if m := required.FindSubmatch(mod); m == nil || string(m[1]) != version {
			refuse("%s/go.mod does not require version %s of the main module; run in it: go mod edit -require=github.com/signalbox-dev/signalbox@v%[2]s",
				module, version)
		}
	}
	return errors.Join(reasons...)
}
