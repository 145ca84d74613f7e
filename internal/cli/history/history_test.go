package history

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"monopod/internal/testfiles"
)

func TestUnifiedDiffIsWhatDiffPrints(t *testing.T) {
	if _, err := exec.LookPath("diff"); err != nil {
		t.Skip("there is no diff to compare with")
	}
	dir := t.TempDir()
	for _, c := range [][2]string{
		{"a", "b"},
		{"a\nb\nc", "a\nc"},
		{"a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl", "a\nB\nc\nd\ne\nf\ng\nh\ni\nj\nK\nl"},
		{"a\nb\nc\nd\ne\nf\ng\nh", "x\na\nb\nc\nd\ne\nf\ng\nh\ny"},
		{"1\n2\n3\n4\n5\n6\n7\n8\n9", "1\n2\n3\n4\n5\n6\n7\n8\n9\n10"},
	} {
		from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
		testfiles.Write(t, from, c[0]+"\n")
		testfiles.Write(t, to, c[1]+"\n")
		out, _ := exec.Command("diff", "-U", "3", "--label", "f", "--label", "t", from, to).Output()
		// diff omits the length of a range of one line.
		want := strings.NewReplacer("@@ -1 +1 @@", "@@ -1,1 +1,1 @@").Replace(string(out))
		if got := unifiedDiff("f", "t", strings.Split(c[0], "\n"), strings.Split(c[1], "\n")); got != want {
			t.Errorf("%q to %q:\n%s\ndiff says\n%s", c[0], c[1], got, want)
		}
	}
	if got := unifiedDiff("f", "t", []string{"a"}, []string{"a"}); got != "" {
		t.Errorf("equal: %q", got)
	}
}
