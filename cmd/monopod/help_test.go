package main

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"monopod/internal/daemontest"
	"monopod/internal/daemontest/clitest"
	"monopod/internal/program"
	"monopod/internal/reference"
	"monopod/internal/testfiles"
	"monopod/runner/ctrd"
	"monopod/runner/ctrd/image"
	"monopod/runner/runtimetest"
)

// help runs a command that prints help.
func help(t *testing.T, args ...string) []string {
	t.Helper()
	p := newCommands()
	var out, errs strings.Builder
	p.Stdout, p.Stderr = &out, &errs
	if code := p.run(t.Context(), args); code != 0 || errs.Len() > 0 {
		t.Fatalf("%q: code %d: %s", args, code, errs.String())
	}
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

func fits(t *testing.T, what string, lines []string, low, high int) {
	t.Helper()
	if n := len(lines); n < low || n > high {
		t.Errorf("%s has %d lines, want %d to %d", what, n, low, high)
	}
	for _, l := range lines {
		if utf8.RuneCountInString(l) > reference.Width {
			t.Errorf("%s: more than %d columns: %s", what, reference.Width, l)
		}
	}
}

func TestHelpFitsOnAScreenAndHasEachCommandOnce(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"help"}, {"--help"}} {
		fits(t, "monopod help", help(t, args...), 24, 40)
	}
	var listed []string
	for _, g := range groups() {
		for _, r := range g.Rows {
			names := strings.Split(r.Commands, ", ")
			if len(names) > 1 != (r.Text != "") {
				t.Errorf("%s: a text is for several commands", r.Commands)
			}
			listed = append(listed, names...)
		}
	}
	var all []string
	root := newCommands().root()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		all = append(all, cmd.Name())
	}
	slices.Sort(listed)
	slices.Sort(all)
	if !slices.Equal(listed, all) {
		t.Errorf("help lists\n%v, the commands are\n%v", listed, all)
	}
}

// eachCommand calls do for each command with a description, at any depth.
func eachCommand(do func(cmd *cobra.Command)) {
	var walk func(cmds []*cobra.Command)
	walk = func(cmds []*cobra.Command) {
		for _, cmd := range cmds {
			if cmd.Name() != "help" && cmd.Name() != "completion" {
				do(cmd)
				walk(cmd.Commands())
			}
		}
	}
	walk(newCommands().root().Commands())
}

func TestHelpOfACommandFitsOnAScreenAndHasExamples(t *testing.T) {
	t.Parallel()
	eachCommand(func(cmd *cobra.Command) {
		words := strings.Fields(cmd.CommandPath())[1:]
		fits(t, cmd.CommandPath()+" --help", help(t, append(words, "--help")...), 5, 40)
		if n := len(reference.Examples(cmd)); n < 2 || n > 3 {
			t.Errorf("%s has %d examples, want 2 or 3", cmd.CommandPath(), n)
		}
		if len(cmd.Short) > 60 {
			t.Errorf("%s: long summary: %s", cmd.CommandPath(), cmd.Short)
		}
	})
}

func TestHelpConfigListsTheFlagsOfKeysWithDefaults(t *testing.T) {
	t.Parallel()
	text := strings.Join(help(t, "up", "--help-config"), "\n")
	for _, want := range []string{"--max-pods integer (default '", "--static-pod-path path (default '/etc/monopod/manifests')"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if plain := strings.Join(help(t, "up", "--help"), "\n"); strings.Contains(plain, "--max-pods") || !strings.Contains(plain, "--help-config") {
		t.Errorf("--help lists keys:\n%s", plain)
	}
}

// splitWords splits a command line as a shell does that knows single quotes only.
func splitWords(line string) []string {
	var all []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			all[len(all)-1] += part
			continue
		}
		fields := strings.Fields(part)
		all = append(all, fields...)
	}
	return all
}

const exampleWorkloads = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: app, image: example.com/web:1, ports: [{name: http, containerPort: 80}]}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{name: http, port: 80}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: migrate}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: app, image: example.com/tool:1}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: tool}
spec: {containers: [{name: app, image: example.com/tool:1}]}
`

// others are commands whose examples are only parsed here: they run containers, or change the machine. e2e runs them.
var others = map[string]bool{"run": true, "once": true, "up": true, "down": true, "cleanup": true, "install": true, "uninstall": true}

// refused are examples with another exit code on a fake runtime.
var refused = map[string]bool{
	"monopod wait job/migrate --for=condition=complete": true,
	"monopod exec web -- ls /":                          true, // the fake command ends with a code of its own
	"monopod exec -it web -c app -- sh":                 true,
	"monopod exec deploy/web -- env":                    true,
	"monopod diff pod web":                              true,
	"monopod diff pod web --from 1 --to 2":              true,
	"monopod top containers web":                        true, // the fake runtime measures nothing

	// the API of the daemon is on its socket only
	"monopod kubeconfig --output ~/.kube/config":                                        true,
	"monopod kubeconfig view --server https://edge-1.example:6443 --output viewer.yaml": true,
	"monopod kubeconfig edit --user alice -n team-a --output alice.yaml":                true,
}

// TestExamplesInHelpRun runs each example against a daemon on a fake runtime.
func TestExamplesInHelpRun(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	d.Put("web.yaml", clitest.Reachable)
	d.Start()
	d.Shows("2/2", "get", "pods")
	for _, tag := range []string{"i2", "i3"} { // revisions
		d.Put("web.yaml", strings.ReplaceAll(clitest.Reachable, "image: i", "image: "+tag))
		d.Shows(tag, "get", "pod", "web", "-o", "yaml")
		d.Shows("2/2", "get", "pods")
	}
	if err := os.MkdirAll(d.Path("files", "manifests"), 0o755); err != nil {
		t.Fatal(err)
	}
	testfiles.Write(t, d.Path("files", "web.yaml"), exampleWorkloads)
	testfiles.Write(t, d.Path("files", "manifests", "pod.yaml"), daemontest.PodYAML("other", runtimetest.ScriptServe))
	testfiles.Write(t, d.Path("files", "site"), "a file")
	if r := d.Cmd("apply", "-f", d.Path("files", "web.yaml")); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	for _, place := range []string{"container/srv", "container/etc/nginx"} {
		if err := os.MkdirAll(d.Path(place), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	testfiles.Write(t, d.Path("container", "etc", "nginx", "nginx.conf"), "events {}")
	d.Shows("default     web-1", "get", "pods", "-l", "app=web", "-A")
	d.Shows("2/2", "get", "deploy", "web")
	for pod, containers := range map[string]string{"web": "app other", "web-0": "app", "web-1": "app"} {
		for c := range strings.FieldsSeq(containers) {
			d.LogLines(pod, c, "2026-01-01T00:00:01Z stdout F one\n")
		}
	}
	for _, ref := range []string{"example.com/web:1", "example.com/tool:1"} {
		d.Images.Coming[ref] = make(chan error)
		close(d.Images.Coming[ref])
		d.Images.All = append(d.Images.All, ctrd.ImageUse{Info: image.Info{Digest: "sha256:" + ref, Names: []string{ref}}})
	}
	var first, last [][]string
	eachCommand(func(cmd *cobra.Command) {
		lines := reference.Examples(cmd)
		switch cmd.Name() {
		case "delete", "drain", "rm":
			last = append(last, lines)
		case "cordon":
		case "undrain":
			defer func() { last = append(last, lines) }()
		default:
			first = append(first, lines)
		}
	})
	for _, lines := range slices.Concat(first, last) {
		for _, line := range lines {
			example(t, d, line)
		}
	}
}

// example runs one example. Those that follow something are interrupted.
func example(t *testing.T, d *clitest.Daemon, line string) {
	t.Helper()
	words := splitWords(line)
	if words[0] != "monopod" {
		t.Errorf("%s: not a command of monopod", line)
		return
	}
	for i, w := range words {
		if file := d.Path("files", w); w != "." && exists(file) {
			words[i] = file
		}
		if w == "." || w == "man" {
			words[i] = d.Path("files")
		}
	}
	if others[words[1]] {
		parses(t, line, words[1:])
		return
	}
	ctx, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer stop()
	r := d.CmdContext(ctx, words[1:]...)
	cut := ctx.Err() != nil
	if r.Code == program.ExitUsage && !refused[line] && !cut || r.Code != 0 && !cut && !refused[line] {
		t.Errorf("%s: code %d\n%s%s", line, r.Code, r.Stdout, r.Stderr)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// parses checks flags and arguments of a command line.
func parses(t *testing.T, line string, words []string) {
	t.Helper()
	cmd, rest, err := newCommands().root().Find(words)
	if err == nil {
		err = cmd.ParseFlags(rest)
	}
	if err == nil {
		err = cmd.ValidateArgs(cmd.Flags().Args())
	}
	if err != nil {
		t.Errorf("%s: %v", line, err)
	}
}
