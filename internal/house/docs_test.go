package house

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// generated are the generated pages, whose words are not counted.
func generated() []string { return []string{"cli.md", "config.md", "fields.md", "metrics.md"} }

// maxColumns limits all pages, maxWords the sum of those written by hand.
const (
	maxColumns = 140
	maxWords   = 26_000
)

// pages returns README.md and all pages below docs, by path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"README.md", "docs/*.md", "docs/*/*.md"} {
		files, err := filepath.Glob(filepath.Join(root(t), pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			all[strings.TrimPrefix(f, root(t)+"/")] = string(text)
		}
	}
	if len(all) < 20 {
		t.Fatalf("only %d pages", len(all))
	}
	return all
}

func TestPagesAreShortAndNarrow(t *testing.T) {
	words := 0
	for file, text := range pages(t) {
		if !slices.Contains(generated(), filepath.Base(file)) {
			words += len(strings.Fields(text))
		}
		n := 0
		for line := range strings.Lines(text) {
			n++
			if c := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); c > maxColumns {
				t.Errorf("%s:%d: %d columns, at most %d", file, n, c, maxColumns)
			}
		}
	}
	if words > maxWords {
		t.Errorf("%d words written by hand, at most %d", words, maxWords)
	}
}

var (
	linkTarget = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	codePath   = regexp.MustCompile("`((?:cmd|manifests|watcher|runner|node|internal|docs|e2e|fixture|examples|\\.ci)/[\\w./-]+)`")
	testName   = regexp.MustCompile(`\.(Test|Fuzz|Benchmark|[A-Z])\w*$`)
	notInSlug  = regexp.MustCompile(`[^\w\s-]`)
)

// slugs returns the anchors of the headings of a page.
func slugs(text string) map[string]bool {
	all := map[string]bool{}
	for line := range strings.Lines(text) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			all[strings.ReplaceAll(notInSlug.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), ""), " ", "-")] = true
		}
	}
	return all
}

func TestLinksAndPathsInPagesExist(t *testing.T) {
	all := pages(t)
	for file, text := range all {
		for _, m := range linkTarget.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			target, anchor, _ := strings.Cut(m[1], "#")
			path := file
			if target != "" {
				path = filepath.Join(filepath.Dir(file), target)
			}
			if _, err := os.Stat(filepath.Join(root(t), path)); err != nil {
				t.Errorf("%s: %s does not exist", file, m[1])
			} else if anchor != "" && !slugs(all[path])[anchor] {
				t.Errorf("%s: %s has no heading %q", file, path, anchor)
			}
		}
		for _, m := range codePath.FindAllStringSubmatch(text, -1) {
			path := strings.TrimSuffix(testName.ReplaceAllString(m[1], ""), "/...")
			if _, err := os.Stat(filepath.Join(root(t), path)); err != nil {
				t.Errorf("%s: %s does not exist", file, path)
			}
		}
	}
}

func TestDecisionsAreNumberedWithoutGaps(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root(t), "docs/adr/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	for i, f := range files {
		n, err := strconv.Atoi(filepath.Base(f)[:4])
		if err != nil || n != i+1 {
			t.Errorf("%s: want number %04d", filepath.Base(f), i+1)
		}
	}
}

var (
	topicName = regexp.MustCompile("`?monopod docs ([a-z][a-z-]*)")
	pageName  = regexp.MustCompile(`\b[a-z-]+\.md\b`)
)

// TestTopicsThatErrorsAndHelpNameExist: messages refer to pages as `monopod docs TOPIC`, because users do not have the files.
func TestTopicsThatErrorsAndHelpNameExist(t *testing.T) {
	all := pages(t)
	check := func(where, text string) int {
		found := topicName.FindAllStringSubmatch(text, -1)
		for _, m := range found {
			if all["docs/"+m[1]+".md"] == "" {
				t.Errorf("%s: there is no topic %s", where, m[1])
			}
		}
		return len(found)
	}
	named := 0
	eachFile(t, func(file string, set *token.FileSet, f *ast.File) {
		if strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "e2e/") || file == "internal/config/print.go" {
			return
		}
		ast.Inspect(f, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			where := set.Position(lit.Pos()).String()
			named += check(where, lit.Value)
			if m := pageName.FindString(lit.Value); m != "" && strings.Contains(lit.Value, " ") {
				t.Errorf("%s: write `monopod docs TOPIC` instead of %s", where, m)
			}
			return true
		})
	})
	for file, text := range all {
		check(file, text)
	}
	if named < 5 {
		t.Errorf("only %d texts name a topic", named)
	}
}
