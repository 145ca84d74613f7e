package house

import (
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"
)

// sweepers lists the files that create temporary files or directories, each with the code that removes leftovers of a killed process.
func sweepers() map[string]string {
	const once = "a program that is run by hand; what it leaves is in the system's directory for temporary files"
	return map[string]string{
		"internal/atomicfile/atomicfile.go":   "SweepOld at startup (ctrd: cleanTemps), or Sweep by the owner of the directory",
		"internal/bundle/bundle.go":           "removeAbandoned, when the next one is unpacked",
		"runner/rollout/store.go":             "the store, when it is opened",
		"runner/ctrd/claims/book.go":          "Book.Clean at startup",
		"runner/ctrd/image/repair/refetch.go": "ctrd: cleanTemps at startup",
		"runner/ctrd/payload/payload.go":      "sweep at the next write; all of it goes with the pod",
		"internal/setup/install.go":           "the next installation",
		"examples/mkimage/main.go":            once,
	}
}

func TestTemporaryFilesAreSweptAfterAKill(t *testing.T) {
	makers := map[string]bool{}
	eachFile(t, func(path string, _ *token.FileSet, f *ast.File) {
		if strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "e2e/") || strings.HasSuffix(pathDir(path), "test") {
			return
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if isCall(n, "os", "CreateTemp", "MkdirTemp") {
				makers[path] = true
			}
			return true
		})
	})
	known := sweepers()
	for _, path := range slices.Sorted(maps.Keys(makers)) {
		if known[path] == "" {
			t.Errorf("%s makes temporary files: what removes those that a kill leaves? Name it in sweepers", path)
		}
		delete(known, path)
	}
	for path := range known {
		t.Errorf("%s makes no temporary files any more", path)
	}
}

// pathDir is the directory of a file.
func pathDir(path string) string { return path[:max(0, strings.LastIndexByte(path, '/'))] }
