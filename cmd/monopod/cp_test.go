package main

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monopod/internal/testfiles"
)

func TestCopyOfFiles(t *testing.T) {
	d := newDaemon(t)
	d.put("web.yaml", reachable)
	for name, text := range map[string]string{"container/etc/conf.d/a": "A", "container/etc/conf.d/b": "B", "local/one": "1", "local/dir/two": "2", "local/some/x": ""} {
		if err := os.MkdirAll(filepath.Dir(d.path(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		testfiles.Write(t, d.path(name), text)
	}
	if err := errors.Join(os.Symlink("/etc", d.path("container", "link")), os.Symlink("/etc/shadow", d.path("container", "etc", "conf.d", "evil"))); err != nil {
		t.Fatal(err)
	}
	d.start()
	d.eventually("the pod runs", func() error {
		if r := d.cmd("wait", "web", "--timeout", "1s"); r.code != 0 {
			return errors.New(r.stderr)
		}
		return nil
	})
	here := func(name string) string { return d.path("local", name) }
	const evil = "warning: conf.d/evil was left out: it is a link to /etc/shadow\n"
	const usage = "see `monopod cp --help`\n"
	for _, c := range []struct {
		args []string
		want result
	}{
		{[]string{"web:/link/conf.d/a", here("a")}, result{}},
		{[]string{"default/web:etc/conf.d", here("some")}, result{stderr: evil}},
		{[]string{"pod/web:/etc/conf.d", here("renamed")}, result{stderr: evil}},
		{[]string{"web:/etc/conf.d/.", here("content")}, result{stderr: "warning: evil was left out: it is a link to /etc/shadow\n"}},
		{[]string{here("one"), "web:/etc"}, result{}},
		{[]string{here("one"), "web:/link/conf.d/a"}, result{}},
		{[]string{here("dir"), "web:/new"}, result{}},
		{[]string{here("dir") + "/.", "web:/link"}, result{}},
		{[]string{"web:/none", here("x")}, result{stderr: "monopod: open /none: no such file or directory\n", code: 1}},
		{[]string{"web:/etc", here("none/x")}, result{stderr: "monopod: open " + here("none") + ": no such file or directory\n", code: 1}},
		{[]string{here("one"), "web:/none/x"}, result{stderr: "monopod: open /none: no such file or directory\n", code: 1}},
		{[]string{here("none"), "web:/etc"}, result{stderr: "monopod: stat " + here("none") + ": no such file or directory\n", code: 1}},
		{[]string{here("dir"), "web:/etc/one"}, result{stderr: "monopod: dir/: not a directory\n", code: 1}},
		{[]string{"web:/", here("x"), "-c", "none"}, result{stderr: "monopod: pod default/web has no container \"none\"; it has app, other\n", code: 1}},
		{[]string{"gone:/", here("x")}, result{stderr: "monopod: pod \"gone\" not found in namespace \"default\"\n", code: 1}},
		{[]string{"/etc", "./a:b"}, result{stderr: "monopod: neither \"/etc\" nor \"./a:b\" is in a container: write POD:PATH\n" + usage, code: 2}},
		{[]string{"a:b", "c:d"}, result{stderr: "monopod: one of the two must be a local path; for both: monopod cp a:b - | monopod cp - c:d\n" + usage, code: 2}},
		{[]string{"web:", "."}, result{stderr: "monopod: which path in web?\n" + usage, code: 2}},
		{[]string{"web:x"}, result{stderr: "monopod: usage: monopod cp POD:PATH LOCAL | LOCAL POD:PATH [flags]\n" + usage, code: 2}},
	} {
		args := c.args
		if len(args) == 2 {
			args = append(args, "-c", "app")
		}
		if got := d.cmd(append([]string{"cp"}, args...)...); got != c.want {
			t.Errorf("%q:\n%+v, want\n%+v", c.args, got, c.want)
		}
	}
	for name, want := range map[string]string{
		"local/a": "A", "local/some/conf.d/a": "A", "local/some/conf.d/b": "B", "local/renamed/b": "B", "local/content/b": "B",
		"container/etc/one": "1", "container/etc/conf.d/a": "1", "container/new/two": "2", "container/etc/two": "2",
	} {
		if b, err := os.ReadFile(d.path(name)); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	if _, err := os.Lstat(here("renamed/evil")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the link: %v", err)
	}
	d.pipes(t)
}

// pipes copies through standard output and input.
func (d *testDaemon) pipes(t *testing.T) {
	t.Helper()
	p := d.program()
	var archive bytes.Buffer
	p.Stdout = &archive
	if code := NewCommands(p).run(t.Context(), []string{"cp", "web:/etc/conf.d", "-", "-c", "app"}); code != 0 {
		t.Fatal(code, p.Stderr)
	}
	if err := os.Mkdir(d.path("container", "restored"), 0o755); err != nil {
		t.Fatal(err)
	}
	stream := archive.Bytes()
	for _, c := range []struct {
		in   io.Reader
		to   string
		want result
	}{
		{bytes.NewReader(stream), "web:/restored", result{}},
		{bytes.NewReader(stream), "web:/none", result{stderr: "monopod: open /none: no such file or directory\n", code: 1}},
		{io.MultiReader(strings.NewReader("no archive"), endless{}), "web:/restored", result{stderr: "monopod: archive: archive/tar: invalid tar header\n", code: 1}},
		{bytes.NewReader(stream[:600]), "web:/restored", result{stderr: "monopod: archive: unexpected EOF\n", code: 1}},
	} {
		p := d.program()
		var errs bytes.Buffer
		p.Stdin, p.Stderr = c.in, &errs
		code := NewCommands(p).run(t.Context(), []string{"cp", "-", c.to, "-c", "app"})
		if got := (result{"", errs.String(), code}); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.to, got, c.want)
		}
	}
	if b, err := os.ReadFile(d.path("container", "restored", "conf.d", "b")); err != nil || string(b) != "B" {
		t.Errorf("%q, %v", b, err)
	}
	if to, err := os.Readlink(d.path("container", "restored", "conf.d", "evil")); err != nil || to != "/etc/shadow" {
		t.Errorf("%q, %v", to, err)
	}
}

// endless never ends: the client must notice that the server refused it nevertheless.
type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }
