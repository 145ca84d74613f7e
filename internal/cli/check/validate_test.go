package check

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"golang.org/x/tools/txtar"

	"monopod/internal/daemontest"
	"monopod/internal/daemontest/clitest"
	"monopod/internal/program"
	"monopod/internal/testfiles"
	"monopod/internal/verdict"
)

// TestValidateStories runs testdata/validate/*.txtar: files, "stdin", "args" (one line each; relative to the
// files) and "want": stdout, stderr and the exit code.
func TestValidateStories(t *testing.T) {
	files, err := filepath.Glob("testdata/validate/*.txtar")
	if err != nil || len(files) < 5 {
		t.Fatalf("stories: %v %v", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			story, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			args, want, stdin := []string{"validate"}, -1, ""
			for i, f := range story.Files {
				switch f.Name {
				case "args":
					for a := range strings.FieldsSeq(string(f.Data)) {
						if a != "-" && !strings.HasPrefix(a, "-") && a != "json" && a != "xml" {
							a = filepath.Join(dir, a)
						}
						args = append(args, a)
					}
				case "stdin":
					stdin = string(f.Data)
				case "want":
					want = i
				default:
					testfiles.Write(t, filepath.Join(dir, f.Name), string(f.Data))
				}
			}
			var out, errs bytes.Buffer
			p := &clitest.Process{Program: &program.Program{Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs, Euid: func() int { return 1000 }}}
			code := commands(t.Context(), p, args)
			got := strings.ReplaceAll(fmt.Sprintf("%s[stderr]\n%s[exit code %d]\n", &out, &errs, code), dir+"/", "")
			got = clitest.OwnText(strings.ReplaceAll(got, dir, "$DIR"))
			if testfiles.Update() {
				story.Files[want].Data = []byte(got)
				if err := os.WriteFile(file, txtar.Format(story), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(string(story.Files[want].Data), got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestValidateReportsWhatItCannotRead(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("nowhere", filepath.Join(dir, "dangling.yaml")); err != nil {
		t.Fatal(err)
	}
	testfiles.Write(t, filepath.Join(dir, "big.yaml"), "#"+strings.Repeat("x", 11<<20))
	var out, errs bytes.Buffer
	p := &clitest.Process{Program: &program.Program{Stdout: &out, Stderr: &errs}}
	if code := commands(t.Context(), p, []string{"validate", dir}); code != program.ExitError {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"dangling.yaml: no such file or directory\n", "big.yaml: "} {
		if !strings.Contains(errs.String(), want) {
			t.Errorf("%q is missing in:\n%.2000s", want, &errs)
		}
	}
}

func TestValidateAsJSONIsCompleteAlsoForErrors(t *testing.T) {
	dir := t.TempDir()
	testfiles.Write(t, filepath.Join(dir, "a.yaml"), daemontest.PodYAML("a", "x"))
	testfiles.Write(t, filepath.Join(dir, "b.yaml"), "kind: Pod\n")
	var out, errs bytes.Buffer
	p := &clitest.Process{Program: &program.Program{Stdout: &out, Stderr: &errs}}
	code := commands(t.Context(), p, []string{"validate", "-o", "json", dir})
	var v ValidateAnswer
	if err := json.Unmarshal(out.Bytes(), &v); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if code != program.ExitError || v.Valid || errs.Len() > 0 || len(v.Files) != 2 || len(v.Files[0].Pods) != 1 || len(v.Files[1].Errors) == 0 || v.Files[1].Errors[0].Line == 0 {
		t.Errorf("code %d, stderr %q:\n%s", code, &errs, &out)
	}
}

// TestManifestFilesAreThoseThatTheDaemonReads: what is hidden is not one, and nothing that blocks is waited for.
func TestManifestFilesAreThoseThatTheDaemonReads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a.yaml", "b.json", "notes.txt", "sub/c.yml", "sub/notes.txt", "empty/notes.txt", ".hidden.yaml", ".git/d.yaml"} {
		testfiles.Write(t, filepath.Join(dir, name), "# "+name)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := NewCommands(&program.Program{Stdin: strings.NewReader("typed")})
	list := func(path string) string {
		var all []string
		for _, f := range p.ManifestFiles([]string{path}) {
			what := string(f.Content)
			switch {
			case f.Ignored != "":
				what = "ignored, " + f.Ignored
			case f.Err != nil:
				what = f.Err.Error()
			}
			all = append(all, strings.TrimPrefix(f.Name, dir+"/")+": "+what)
		}
		return strings.ReplaceAll(strings.Join(all, "\n"), dir, "$DIR")
	}
	for path, want := range map[string]string{
		dir: "a.yaml: # a.yaml\nb.json: # b.json\nfifo.yaml: open $DIR/fifo.yaml: not a regular file\nnotes.txt: ignored, not a .yaml, .yml or .json file\n" +
			"sub: ignored, manifests in sub-directories are not read; name the directory, too",
		filepath.Join(dir, "sub"):           "sub/c.yml: # sub/c.yml\nsub/notes.txt: ignored, not a .yaml, .yml or .json file",
		filepath.Join(dir, ".hidden.yaml"):  ".hidden.yaml: # .hidden.yaml", // which somebody has named
		filepath.Join(dir, "sub/notes.txt"): "sub/notes.txt: # sub/notes.txt",
		filepath.Join(dir, "none"):          "none: open $DIR/none: no such file or directory",
		"-":                                 verdict.StdinName + ": typed",
		"https://h/a.yaml":                  "https://h/a.yaml: URLs are not fetched here; use curl -fsSL URL | monopod ... -, or add it to sources in the configuration",
	} {
		if got := list(path); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", path, got, want)
		}
	}
	if got, want := list(t.TempDir()), "no manifests in this directory; their names end with .yaml, .yml or .json"; !strings.HasSuffix(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestTheWalkBelowSubDirectoriesIsBounded: validate may be called with a directory of anything, such as /.
func TestTheWalkBelowSubDirectoriesIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 20 {
		testfiles.Write(t, filepath.Join(dir, fmt.Sprintf("many/%02d.txt", i)), "x")
		testfiles.Write(t, filepath.Join(dir, fmt.Sprintf("deep/%02d/%02d/a.txt", i/5, i)), "x")
	}
	testfiles.Write(t, filepath.Join(dir, "many/a/b/c.yaml"), "# c")
	for _, c := range []struct {
		sub  string
		most int
		want bool
		left int
	}{
		{"many", 100, true, 77}, // 21 entries, b, and c.yaml
		{"many", 22, false, 0},
		{"many", 0, false, 0},
		{"deep", 100, false, 56}, // 4, 20 and 20 entries
		{"deep", 10, false, 0},
		{"none", 10, false, 10},
	} {
		left := c.most
		if got := hasManifests(filepath.Join(dir, c.sub), &left); got != c.want || left != c.left {
			t.Errorf("%s with %d: %v, %d left", c.sub, c.most, got, left)
		}
	}
}
