package check

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"monopod/internal/daemontest/clitest"
	"monopod/internal/program"
	"monopod/internal/testfiles"
)

// TestValidateSaysWhatIsWrongWithEachCase: e2e/testdata/cases are manifests that were once misjudged, or whose pods were not explained.
// What becomes of those that are accepted is tested in package e2e.
func TestValidateSaysWhatIsWrongWithEachCase(t *testing.T) {
	t.Parallel()
	const cases = "../../../e2e/testdata/cases/"
	files, err := filepath.Glob(cases + "*.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("cases: %v %v", files, err)
	}
	var all strings.Builder
	for _, file := range files {
		var out, errs bytes.Buffer
		p := &clitest.Process{Program: &program.Program{Stdout: &out, Stderr: &errs, Euid: func() int { return 1000 }}}
		code := commands(t.Context(), p, []string{"validate", "--strict", file})
		fmt.Fprintf(&all, "%s%s[exit code %d]\n", &out, &errs, code)
	}
	testfiles.Compare(t, "testdata/cases.golden", strings.ReplaceAll(all.String(), cases, ""))
}
