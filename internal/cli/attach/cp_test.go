package attach

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod/internal/daemontest/clitest"
	"monopod/internal/testfiles"
)

func TestCopyOfFiles(t *testing.T) {
	d := newDaemon(t)
	d.Put("web.yaml", clitest.Reachable)
	for name, text := range map[string]string{"container/etc/conf.d/a": "A", "container/etc/conf.d/b": "B", "local/one": "1", "local/dir/two": "2", "local/some/x": ""} {
		if err := os.MkdirAll(filepath.Dir(d.Path(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		testfiles.Write(t, d.Path(name), text)
	}
	if err := errors.Join(os.Symlink("/etc", d.Path("container", "link")), os.Symlink("/etc/shadow", d.Path("container", "etc", "conf.d", "evil"))); err != nil {
		t.Fatal(err)
	}
	d.Start()
	d.Ready("web")
	here := func(name string) string { return d.Path("local", name) }
	const evil = "warning: conf.d/evil was skipped: it is a link to /etc/shadow\n"
	const usage = "see `monopod cp --help`\n"
	for _, c := range []struct {
		args []string
		want clitest.Result
	}{
		{[]string{"web:/link/conf.d/a", here("a")}, clitest.Result{}},
		{[]string{"default/web:etc/conf.d", here("some")}, clitest.Result{Stderr: evil}},
		{[]string{"pod/web:/etc/conf.d", here("renamed")}, clitest.Result{Stderr: evil}},
		{[]string{"web:/etc/conf.d/.", here("content")}, clitest.Result{Stderr: "warning: evil was skipped: it is a link to /etc/shadow\n"}},
		{[]string{here("one"), "web:/etc"}, clitest.Result{}},
		{[]string{here("one"), "web:/link/conf.d/a"}, clitest.Result{}},
		{[]string{here("dir"), "web:/new"}, clitest.Result{}},
		{[]string{here("dir") + "/.", "web:/link"}, clitest.Result{}},
		{[]string{"web:/none", here("x")}, clitest.Result{Stderr: "monopod: open /none: no such file or directory\n", Code: 1}},
		{[]string{"web:/etc", here("none/x")}, clitest.Result{Stderr: "monopod: open " + here("none") + ": no such file or directory\n", Code: 1}},
		{[]string{here("one"), "web:/none/x"}, clitest.Result{Stderr: "monopod: open /none: no such file or directory\n", Code: 1}},
		{[]string{here("none"), "web:/etc"}, clitest.Result{Stderr: "monopod: stat " + here("none") + ": no such file or directory\n", Code: 1}},
		{[]string{here("dir"), "web:/etc/one"}, clitest.Result{Stderr: "monopod: dir/: not a directory\n", Code: 1}},
		{[]string{"web:/", here("x"), "-c", "none"}, clitest.Result{Stderr: "monopod: pod default/web has no container \"none\"; it has app, other\n", Code: 1}},
		{[]string{"gone:/", here("x")}, clitest.Result{Stderr: "monopod: pod \"gone\" not found in namespace \"default\"\n", Code: 1}},
		{[]string{"/etc", "./a:b"}, clitest.Result{Stderr: "monopod: neither \"/etc\" nor \"./a:b\" is in a container: write POD:PATH\n" + usage, Code: 2}},
		{[]string{"a:b", "c:d"}, clitest.Result{Stderr: "monopod: one of the two must be a local path; for both: monopod cp a:b - | monopod cp - c:d\n" + usage, Code: 2}},
		{[]string{"web:", "."}, clitest.Result{Stderr: "monopod: no path given in web\n" + usage, Code: 2}},
		{[]string{"web:x"}, clitest.Result{Stderr: "monopod: usage: monopod cp POD:PATH LOCAL | LOCAL POD:PATH [flags]\n" + usage, Code: 2}},
	} {
		args := c.args
		if len(args) == 2 {
			args = append(args, "-c", "app")
		}
		if got := d.Cmd(append([]string{"cp"}, args...)...); got != c.want {
			t.Errorf("%q:\n%+v, want\n%+v", c.args, got, c.want)
		}
	}
	for name, want := range map[string]string{
		"local/a": "A", "local/some/conf.d/a": "A", "local/some/conf.d/b": "B", "local/renamed/b": "B", "local/content/b": "B",
		"container/etc/one": "1", "container/etc/conf.d/a": "1", "container/new/two": "2", "container/etc/two": "2",
	} {
		if b, err := os.ReadFile(d.Path(name)); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	if _, err := os.Lstat(here("renamed/evil")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the link: %v", err)
	}
	pipes(t, d)
}

// pipes copies through standard output and input.
func pipes(t *testing.T, d *clitest.Daemon) {
	t.Helper()
	p := d.Program()
	var archive bytes.Buffer
	p.Stdout = &archive
	if code := commands(t.Context(), p, []string{"cp", "web:/etc/conf.d", "-", "-c", "app"}); code != 0 {
		t.Fatal(code, p.Stderr)
	}
	if err := os.Mkdir(d.Path("container", "restored"), 0o755); err != nil {
		t.Fatal(err)
	}
	stream := archive.Bytes()
	for _, c := range []struct {
		in   io.Reader
		to   string
		want clitest.Result
	}{
		{bytes.NewReader(stream), "web:/restored", clitest.Result{}},
		{bytes.NewReader(stream), "web:/none", clitest.Result{Stderr: "monopod: open /none: no such file or directory\n", Code: 1}},
		{io.MultiReader(strings.NewReader("no archive"), endless{}), "web:/restored", clitest.Result{Stderr: "monopod: archive: archive/tar: invalid tar header\n", Code: 1}},
		{bytes.NewReader(stream[:600]), "web:/restored", clitest.Result{Stderr: "monopod: archive: unexpected EOF\n", Code: 1}},
	} {
		p := d.Program()
		var errs bytes.Buffer
		p.Stdin, p.Stderr = c.in, &errs
		code := commands(t.Context(), p, []string{"cp", "-", c.to, "-c", "app"})
		if got := clitest.Printed("", errs.String(), code); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.to, got, c.want)
		}
	}
	if b, err := os.ReadFile(d.Path("container", "restored", "conf.d", "b")); err != nil || string(b) != "B" {
		t.Errorf("%q, %v", b, err)
	}
	if to, err := os.Readlink(d.Path("container", "restored", "conf.d", "evil")); err != nil || to != "/etc/shadow" {
		t.Errorf("%q, %v", to, err)
	}
}

// endless never ends: the client must notice that the server refused it nevertheless.
type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }
